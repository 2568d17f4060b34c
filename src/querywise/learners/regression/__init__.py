"""Grades as numbers: what aTVT learns by."""
