"""The training loop: strategy, step, checkpoints, reports."""
