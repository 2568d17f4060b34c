"""RankBoost, ListNet, AdaRank and multiple hyperplanes."""
