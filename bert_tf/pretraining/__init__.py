"""A pre-training run: prepare, build, train and report."""
