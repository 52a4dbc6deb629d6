"""A pre-training run: what it prepares, builds and reports."""
