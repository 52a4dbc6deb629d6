"""Reads and writes checkpoints of many libraries as NumPy arrays under one set of names."""
