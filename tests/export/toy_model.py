"""A small model without weights whose answers depend on every character, for tests of serving."""

import json

import tensorflow as tf

from bert_tf.tasks.base.serving.saved_models import write_checksums

STRINGS = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)
LABELS = ("negative", "neutral", "positive")


class ToyModel(tf.Module):
    """Classifies texts by a hash of their bytes; its signatures have the forms of real ones."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._seed = str(seed)

    @tf.function(input_signature=[STRINGS])
    def classify(self, text):
        """Takes single texts; refuses what is not UTF-8."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="strict")
        hashes = [
            tf.strings.to_hash_bucket_strong(text, 1000, [int(self._seed), i]) for i in (1, 2, 3)
        ]
        logits = tf.cast(tf.stack(hashes, 1), tf.float32) / 100
        probabilities = tf.nn.softmax(logits)  # [B, 3]
        best = tf.argmax(probabilities, 1)
        return {
            "label": tf.gather(tf.constant(LABELS), best),
            "score": tf.reduce_max(probabilities, 1),
            "probabilities": probabilities,
        }

    @tf.function(input_signature=[STRINGS, STRINGS])
    def compare(self, text, text_b):
        """Takes pairs; has one output alone."""
        lengths = [tf.cast(tf.strings.length(part), tf.float32) for part in (text, text_b)]
        return {"value": lengths[0] - lengths[1] / 2}

    @tf.function(input_signature=[STRINGS])
    def tag(self, text):
        """Gives as many words as the longest text of the batch has, padded."""
        words = tf.strings.split(text)
        lengths = tf.strings.length(words)
        ends = tf.ragged.map_flat_values(tf.identity, tf.cumsum(lengths.to_tensor(), 1))
        is_word = tf.sequence_mask(words.row_lengths())
        return {"words": words.to_tensor(""), "ends": tf.where(is_word, ends, -1)}

    @tf.function(input_signature=[IDS, IDS, IDS])
    def pool(self, input_word_ids, input_mask, input_type_ids):
        """Takes ids; gives a vector per text."""
        real = tf.cast(input_word_ids * input_mask, tf.float32)
        types = tf.cast(input_type_ids, tf.float32)
        return {"embedding": tf.stack([tf.reduce_sum(real, 1), tf.reduce_sum(types, 1)], 1)}

    @tf.function(input_signature=[STRINGS])
    def echo(self, examples):
        """Gives its bytes back."""
        return {"back": examples}


def save_toy_export(folder, kind="classifier") -> dict:
    """Writes a SavedModel of texts, or for a regression of pairs, as export.saved_model does.

    Returns:
      The content of its bert_tf.json.
    """
    model = ToyModel()
    is_pair = kind == "regression"
    function = model.compare if is_pair else model.classify
    functions = {"serving_default": function.get_concrete_function()}
    tf.saved_model.save(model, str(folder), functions)
    card = {
        "kind": kind,
        "inputs": ["text", "text_b"] if is_pair else ["text"],
        "labels": [] if is_pair else list(LABELS),
        "max_seq_length": 8,
        "do_lower_case": True,
    }
    (folder / "assets.extra").mkdir()
    (folder / "assets.extra/bert_tf.json").write_text(json.dumps(card))
    write_checksums(folder)
    return card


def save_toy_model(folder, seed: int = 0) -> None:
    """Writes the SavedModel; models of other seeds give other answers."""
    model = ToyModel(seed)
    signatures = {
        "serving_default": model.classify,
        "compare": model.compare,
        "tag": model.tag,
        "ids": model.pool,
        "examples": model.echo,
    }
    tf.saved_model.save(model, str(folder), signatures)
