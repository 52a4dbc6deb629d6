"""One label for each word of a text (BERT section 5.3)."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.examples.columns import (
    check_count,
    is_empty,
    read_column,
    read_label_ids,
    read_numbers,
    read_texts,
)
from bert_tf.metrics.classification import softmax
from bert_tf.metrics.entities import join_words
from bert_tf.models.fine_tuned import LabelledModel
from bert_tf.models.text_fit import BATCH_SIZE, INPUTS, KerasBatch, checked_ids
from bert_tf.network.losses import WeightedSum, class_losses, weigh
from bert_tf.tasks.tagging.features import TaggedExamples, make_examples
from bert_tf.tasks.tagging.files import TaggedSentence
from bert_tf.text.words import word_offsets


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(LabelledModel):
    """The encoder with a head on every position.

        model = bert_tf.BertTokenClassifier.from_pretrained(
            "hf://google-bert/bert-base-cased", labels=tags
        )
        model.fit([["In", "Oslo", "."]], [["O", "B-LOC", "O"]])
        model.tag(["Ada left Oslo."])

    With a preprocessor it takes sentences: lists of words, or texts whose words are separated by
    white space; for each a list of labels, names or indices, one per word. A word is labelled at
    its first piece. A sentence longer than the preprocessor's length is split into overlapping
    windows, so that no word is dropped. `predict` returns the scores of words, float32 [N, W, C], 0
    after the last word of a sentence. Dicts of ids are also accepted.

    Args:
      config: shape of the network.
      num_labels: C. Not needed with labels.
      use_pooler: whether the encoder has a pooler, which is not used here.
      labels: names of the classes; None if they have none.
      recompute, unpad: see `BertEncoder`.
      preprocessor: see `FineTunedModel`.

    Call arguments: as `BertClassifier`.

    Returns:
      float32 [B, T, C], unnormalised.
    """

    head_name = "tagger"
    has_pieces = True
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
        super().__init__(config, num_labels, labels, "tagger", use_pooler, **kwargs)

    def call(self, inputs: dict[str, Any], training: bool = False, dropout_seed: Any = None) -> Any:
        return self.score_pieces(inputs, training, dropout_seed)

    def tag(self, texts: Any, batch_size: int = BATCH_SIZE) -> list[list[dict[str, Any]]]:
        """Returns the label of each word.

        Args:
          texts: raw texts, which the tokenizer splits into words at white space and punctuation; or
            lists of words, which are used unchanged.
          batch_size: rows per batch.

        Returns:
          For each text, a dict per word: `word`, `label`, `score` (the label's probability), and
            for raw texts `start` and `end` in characters.

        Raises:
          ValueError: if a value is not a text or a list of words.
        """
        if is_empty(texts):
            return []
        column = read_column(texts, "texts")
        is_text = isinstance(column[0], str)
        if is_text:
            column = read_texts(column)
            places = [word_offsets(text, self.tokenizer) for text in column]
            words = [
                [text[start:end] for start, end in found]
                for text, found in zip(column, places, strict=True)
            ]
        else:
            words = read_words(column)
        found = [index for index, row in enumerate(words) if len(row)]
        scores: dict[int, np.ndarray] = {}
        if found:
            examples = self.read_examples([words[index] for index in found])
            outputs = self.predict_rows(examples.rows, batch_size)
            scores = dict(zip(found, self.join_rows(examples, outputs), strict=True))
        answers: list[list[dict[str, Any]]] = []
        for index, row in enumerate(words):
            answer = []
            for place, (word, logits) in enumerate(zip(row, scores.get(index, ()), strict=True)):
                label, score = self.known_labels[logits.argmax()], float(softmax(logits).max())
                answer.append({"word": word, "label": label, "score": score})
                if is_text:
                    answer[-1] |= dict(zip(("start", "end"), places[index][place], strict=True))
            answers.append(answer)
        return answers

    def find_entities(self, texts: Any, batch_size: int = BATCH_SIZE) -> list[list[dict[str, Any]]]:
        """Returns the entities of raw texts: the words of `tag`, joined by their B- and I- labels.

        If labels are not O, B-X and I-X, each word with a label other than O is an entity.

        Returns:
          For each text, a dict per entity: `type`, `text`, `start` and `end` in characters, and
            `score`, the lowest of its words'.

        Raises:
          ValueError: if a value is not a text.
        """
        texts = [] if is_empty(texts) else read_texts(texts)
        tagged = zip(texts, self.tag(texts, batch_size), strict=True)
        return [join_words(self.known_labels, text, words) for text, words in tagged]

    # Raw input ---------------------------------------------------------------------------------

    def read_examples(self, x: Any, y: Any = None, weights: Any = None) -> TaggedExamples:
        words = read_sentences(x)
        tags = [None] * len(words) if y is None else self._read_tags(y, words)
        sentences = [
            TaggedSentence(tuple(row), names, f"texts[{index}]")
            for index, (row, names) in enumerate(zip(words, tags, strict=True))
        ]
        made = make_examples(
            *(sentences, self.known_labels, self.tokenizer, self.max_seq_length, y is not None)
        )
        if weights is not None:
            of_sentence = read_numbers(weights, len(words), "sample_weight")
            owners = [row.sentence for row in made.tag_rows]
            made.rows.labels["example_weights"] = of_sentence[owners]
        return made

    def join_rows(self, examples: TaggedExamples, outputs: list[Any]) -> list[np.ndarray]:
        """Returns the logits of the words of each sentence, float32 [W, C]."""
        found = [
            np.zeros((len(sentence.words), self.num_labels), np.float32)
            for sentence in examples.sentences
        ]
        for row, logits in zip(examples.tag_rows, outputs, strict=True):
            found[row.sentence][row.words] = logits[row.positions]
        return found

    def _read_tags(self, y: Any, words: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Returns the name of the label of each word."""
        rows = read_column(y, "y")
        check_count(rows, len(words), "y")
        tags = []
        for index, (row, of_sentence) in enumerate(zip(rows, words, strict=True)):
            if isinstance(row, str):
                row = row.split()
            if not hasattr(row, "__len__") or len(row) != len(of_sentence):
                count = f"{len(row)} labels" if hasattr(row, "__len__") else f"{row!r:.40}"
                raise ValueError(
                    f"y[{index}] is {count} for {len(of_sentence)} words; expected one per word."
                )
            ids = read_label_ids(row, self.labels_to_read, len(of_sentence), f"y[{index}]")
            tags.append(tuple(self.known_labels[place] for place in ids))
        return tags

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        labels = batch["tag_ids"]  # [B, T], below 0 where no word is predicted
        is_word = tf.cast(labels >= 0, tf.float32)
        weights = is_word * batch["example_weights"][:, None]
        return {name: batch[name] for name in INPUTS}, tf.maximum(labels, 0), weights

    def task_loss(self, x: Any, y: Any, outputs: Any, weights: Any) -> WeightedSum:
        if weights is None:
            weights = x["input_mask"]
        weights = ops.cast(weights, "float32")
        if len(weights.shape) == 1:
            weights = weights[:, None]
        losses = class_losses(outputs, checked_ids(y, weights, self.num_labels))  # [B, T]
        return weigh(losses, ops.broadcast_to(weights, ops.shape(losses)))


def read_sentences(x: Any) -> list[list[str]]:
    """Returns the words of sentences given as lists of words or as texts.

    Raises:
      ValueError: naming the first that is neither, or has no words.
    """
    column = read_column(x, "texts")
    if isinstance(column[0], str):
        words = [text.split() for text in read_texts(column)]
    else:
        words = read_words(column)
    for index, row in enumerate(words):
        if not row:
            raise ValueError(f"texts[{index}] has no words; leave it out.")
    return words


def read_words(column: list[Any]) -> list[list[str]]:
    """Returns the words of sentences that are lists of them, which may be empty.

    Raises:
      ValueError: naming the first that is none, or the first word.
    """
    for index, row in enumerate(column):
        if not isinstance(row, list | tuple | np.ndarray):
            expected = "a list of words, like texts[0]" if index else "a text or a list of words"
            raise ValueError(f"texts[{index}] is {row!r:.80}, expected {expected}.")
    return [
        read_texts(row, f"texts[{index}]") if len(row) else [] for index, row in enumerate(column)
    ]
