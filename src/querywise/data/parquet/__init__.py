"""Judged sets and scores in Parquet files. Arrow is used only here."""
