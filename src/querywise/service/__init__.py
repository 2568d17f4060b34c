"""A fitted ranker behind HTTP: bounded, replaced without a pause, with a page to look at it."""
