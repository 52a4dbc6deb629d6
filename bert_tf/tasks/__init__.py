"""What is trained: a task joins a model with its data and losses."""
