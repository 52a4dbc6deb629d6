"""Serving functions: models that take texts or token ids and return named outputs."""
