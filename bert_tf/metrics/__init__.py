"""Metrics of stored predictions, as the official scripts compute them; NumPy alone."""
