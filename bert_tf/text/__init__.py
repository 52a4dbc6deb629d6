"""Vocabulary and tokenizer."""
