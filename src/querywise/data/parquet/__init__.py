"""Judged sets and scores in Parquet files. Arrow is known here alone."""
