"""Text → candidates with features."""
