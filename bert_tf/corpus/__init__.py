"""Raw text for pre-training: tokens, examples, records and the masked batches of tf.data."""
