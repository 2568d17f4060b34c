"""Fitted rankers for the engines that search: files to upload, and a check that the engine scores as we do."""
