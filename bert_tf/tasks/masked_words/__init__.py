"""Masked words: the likeliest tokens, scores of texts, texts with filled gaps."""
