"""Orders and labels → a per-query table, and paired comparisons of such tables."""
