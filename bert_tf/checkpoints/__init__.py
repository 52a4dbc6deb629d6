"""Checkpoints of BERT, whoever wrote them, as NumPy arrays under one set of names."""
