"""Rankings and labels → a table of measures by query, and paired comparisons of such tables."""
