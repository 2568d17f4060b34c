"""What a user fits: rankers with one model for all queries, or one that suits each."""
