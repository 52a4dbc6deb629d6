"""Corpus, examples, records and the tf.data pipeline."""
