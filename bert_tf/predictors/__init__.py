"""Trained models in plain Python: strings in, answers out; see `loading.load`."""
