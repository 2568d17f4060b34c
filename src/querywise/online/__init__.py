"""Rankings before users: interleaving, the log of what was shown and clicked, and when a difference is decided."""
