"""Orders and labels → a per-query table, and honest comparisons of such tables."""
