"""Tasks: each combines a model with its data and losses."""
