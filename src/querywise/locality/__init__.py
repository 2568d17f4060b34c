"""Query similarity: views that place queries as points, and the neighbors, groups and weights computed from them."""
