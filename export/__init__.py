"""Trained models for serving; depends on `bert_tf`, never the other way round."""
