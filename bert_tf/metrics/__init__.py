"""Metrics of stored predictions, as the official scripts compute them, with only NumPy."""
