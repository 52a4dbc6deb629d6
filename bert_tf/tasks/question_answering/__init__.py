"""Answers that are spans of a context: SQuAD 1.1 and 2.0, with a plain or a joint head."""
