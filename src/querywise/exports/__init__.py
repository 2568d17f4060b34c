"""Exports of fitted rankers to search engines: files to upload, and a check of the engine's scores."""
