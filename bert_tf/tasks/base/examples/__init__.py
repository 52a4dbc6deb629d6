"""Labelled examples for fine-tuning: tables and columns, tokenized datasets and their batches."""
