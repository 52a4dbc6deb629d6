"""Finds the nearest of many vectors: exact search, the index on disk, and what is joined to it."""
