"""How objects are displayed: short texts, HTML tables, data frames and figures, made of numbers and names only."""
