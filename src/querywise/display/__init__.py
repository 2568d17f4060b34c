"""How objects show themselves: short texts, HTML tables, data frames and figures. Knows numbers and names alone."""
