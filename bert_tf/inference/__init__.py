"""Trained models of any format with plain Python answers; see `loading.load`."""
