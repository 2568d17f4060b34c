"""Online experiments: interleaving, the log of impressions and clicks, and when a difference is decided."""
