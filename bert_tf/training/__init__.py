"""The training loop: distribution strategy, train step, checkpoints, reports."""
