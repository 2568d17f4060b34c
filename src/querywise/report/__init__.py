"""Results → tables, figures and pages. Formats, and never computes."""
