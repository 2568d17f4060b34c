"""Text → candidates."""
