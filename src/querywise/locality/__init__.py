"""Query similarity: views of queries as points, and the neighbours, groups and weights made from them."""
