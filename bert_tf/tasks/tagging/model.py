"""One label for each word of a text (BERT section 5.3)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.network.losses import LabelLoss, WeightedSum, weigh
from bert_tf.system.type_names import Batch, Column, Labels, Tensor, Texts
from bert_tf.tasks.base.examples import columns
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.graph_labels import checked_ids
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.tagging.answers import TaggerAnswers, gather_words
from bert_tf.tasks.tagging.features import TaggedExamples, make_examples
from bert_tf.tasks.tagging.schemes import respelled_tags, with_entity_names
from bert_tf.tasks.tagging.sentences import TaggedSentence, read_sentences
from bert_tf.text.packing import INPUTS


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TaggerAnswers, FineTunedModel):
    """The encoder with a classification head on every token.

        model = bert_tf.BertTokenClassifier.from_pretrained(
            "hf://google-bert/bert-base-cased", labels=tags
        )
        model.fit([["In", "Oslo", "."]], [["O", "B-LOC", "O"]])
        model.tag(["Ada left Oslo."])

    With a preprocessor, inputs are sentences, given as lists of words or as texts whose words are
    separated by white space. The labels of a sentence are a list of names or indices, one per word.
    A word is labelled at its first token. A sentence longer than the preprocessor's length is split
    into overlapping windows, so that no word is dropped. `predict` returns the scores of words,
    float32 [N, W, C], with zeros after the last word of a sentence. Dicts of ids are also accepted.

    Args:
      config: shape of the network.
      num_labels: number of classes C. Not needed with labels.
      use_pooler: whether the encoder has a pooler, which is not used here.
      labels: names of the classes; None if they have no names.
      recompute, unpad: see `BertEncoder`.
      preprocessor: see `FineTunedModel`.

    Call arguments: see `BertClassifier`.

    Returns:
      float32 [B, T, C], unnormalised.
    """

    head_name = "tagger"
    takes_labels = True
    has_label_loss = True
    scores_tokens = True
    is_one_column = True
    reads_pooler = False

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int = 0,
        use_pooler: bool = False,
        labels: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"name": "bert_token_classifier", **kwargs}
        if labels is not None:
            labels = with_entity_names(labels)
        super().__init__(config, num_labels, "tagger", use_pooler, labels=labels, **kwargs)

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        return self.score_tokens(inputs, training, dropout_seed)  # [B, T, C]

    # Raw input ---------------------------------------------------------------------------------

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> TaggedExamples:
        words = read_sentences(x)
        tags = [None] * len(words) if y is None else self._read_tags(y, words)
        sentences = []
        for index, (words_of_sentence, names) in enumerate(zip(words, tags, strict=True)):
            sentences.append(TaggedSentence(tuple(words_of_sentence), names, f"texts[{index}]"))
        examples = make_examples(
            sentences,
            self.known_labels,
            self.tokenizer,
            self.max_seq_length,
            is_labelled=y is not None,
        )
        # Each window has the weight of its sentence.
        self.set_weights_of_rows(examples, weights, len(words), examples.owners)
        return examples

    def join_rows(self, examples: TaggedExamples, outputs: list[Any]) -> list[np.ndarray]:
        """Returns the logits of the words of each sentence, float32 [W, C]."""
        return gather_words(examples.tag_rows, outputs, examples.sentences)

    def _read_tags(self, y: Labels | None, words: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Returns the name of the label of each word."""
        rows = columns.read_column(y, "y")
        columns.check_count(rows, len(words), "y")
        rows = [row.split() if isinstance(row, str) else row for row in rows]
        # Values of other kinds are reported below.
        names = {tag for row in rows if isinstance(row, list | tuple) for tag in row}
        spelled = respelled_tags(filter(_is_text, names), self.known_labels)
        tags = []
        for index, (row, sentence) in enumerate(zip(rows, words, strict=True)):
            if spelled and isinstance(row, list | tuple):
                row = [spelled.get(tag, tag) for tag in row]
            if not hasattr(row, "__len__") or len(row) != len(sentence):
                count = f"{len(row)} labels" if hasattr(row, "__len__") else f"{row!r:.40}"
                raise ValueError(
                    f"y[{index}] is {count} for {len(sentence)} words; expected one per word."
                )
            ids = columns.read_label_ids(row, self.labels_to_read, len(sentence), f"y[{index}]")
            tags.append(tuple(self.known_labels[label_id] for label_id in ids))
        return tags

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        labels = batch["tag_ids"]  # [B, T], negative where no word is predicted
        is_word = tf.cast(labels >= 0, tf.float32)
        # Keras computes a loss at every position: other positions get the label 0 and the weight 0.
        weights = is_word * batch["example_weights"][:, None]
        return {name: batch[name] for name in INPUTS}, tf.maximum(labels, 0), weights

    def task_loss(
        self,
        x: Batch,
        y: Tensor,
        outputs: Tensor,
        weights: Tensor | None,
        label_loss: LabelLoss | None = None,
    ) -> WeightedSum:
        if weights is None:
            # Without weights, every token that is not padding counts.
            weights = x["input_mask"]
        weights = ops.cast(weights, "float32")
        if len(weights.shape) == 1:
            weights = weights[:, None]  # [B, 1]: one weight for all tokens of a row
        ids = checked_ids(y, weights, self.num_labels)
        losses = (label_loss or LabelLoss()).losses("single_label", outputs, ids)  # [B, T]
        # The sum of weights is the number of words, so that weights need their full shape.
        return weigh(losses, ops.broadcast_to(weights, ops.shape(losses)))


def _is_text(value: object) -> bool:
    return isinstance(value, str)
