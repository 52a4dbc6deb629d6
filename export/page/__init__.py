"""The page to try a model on: its server and what it shows."""
