"""Serve a fitted ranker over HTTP, with limits and an inspection page; models are replaced without downtime."""
