"""What a server calls: a model behind functions of raw texts, of ids and of tf.Examples.

Every kind of model is a class here. All outputs begin with the batch's axis, as TensorFlow
Serving's batching and the row form of its REST interface ask for; lists of different lengths are
padded, with "" or -1. The names of outputs are an interface: add, never rename.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.serving.graph_tokens import check_utf8
from bert_tf.serving.kind import SINGLE
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.kinds import with_trimmed_offsets
from bert_tf.text.packing import INPUTS, num_special_tokens
from bert_tf.text.tensor_packing import cut, longest_first_lengths, pack_rows
from bert_tf.text.tokenization import AnyVocab

Batch = dict[str, tf.Tensor]
Outputs = dict[str, tf.Tensor]
Signatures = dict[str, Any]  # tf.functions that return Outputs

IDS = INPUTS
MAX_ROWS = 64  # of one call of the model on windows of long texts.


def function_of_ids(answer: Callable[[Batch], Outputs]) -> Any:
    """Returns a function of rows as a tf.function of the columns of `IDS`, int32 [B, T] each."""
    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in IDS]

    @tf.function(input_signature=specs, autograph=False)
    def ids(*columns: tf.Tensor) -> Outputs:
        return answer(dict(zip(IDS, columns, strict=True)))

    return ids


class Serving:
    """A model with its tokenizer and the functions that are saved.

    Args:
      model: a Keras model in float32, called with a batch of ids.
      vocab: the tokenizer's pieces.
      do_lower_case: the tokenizer's casing.
      max_seq_length: most pieces of a row; a text loses what is above it, unless said otherwise.
      texts: names of the texts that a request holds.
      long_texts: the part of a longer text that is kept, `head` or `tail`; or `windows`: a
        classifier reads all of it, in overlapping rows.
      labels: names of the classes, if there are any.

    Attributes:
      lists: names of those texts of which a request holds several for each row.
      numbers: names of further inputs, one number each, with one to try.
      as_tokenizers: whether pairs are packed as `pack_pair` does.
    """

    kind = ""
    lists: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    as_tokenizers = False

    def __init__(
        self,
        model: Any,
        vocab: AnyVocab,
        do_lower_case: bool,
        max_seq_length: int,
        texts: tuple[str, ...] = SINGLE,
        long_texts: str = "head",
        labels: Sequence[str] = (),
    ) -> None:
        self.vocab, self.max_seq_length = vocab, max_seq_length
        self.do_lower_case = do_lower_case
        self.texts, self.long_texts = texts, long_texts
        self.model, self.labels = model, tuple(labels)
        self.tokenizer = make_graph_tokenizer(with_trimmed_offsets(vocab), do_lower_case)

    def call_model(self, batch: Batch) -> Any:
        """Returns the model's outputs for rows of ids, int32 [R, T]."""
        return self.model(batch, training=False)

    def parts(self) -> list["Serving"]:
        """Returns the models, with tokenizers of their own, that its functions call."""
        return [self]

    def share_model(self) -> None:
        """Lets the functions made from now on call one graph of the model, where each had its own.

        The files are smaller and load faster; nothing else of the model can be reached any more.
        """
        self.model = tf.function(self.model, autograph=False)

    def from_ids(self, batch: Batch) -> Outputs:
        """Returns the answers to rows of ids, int32 [B, T]."""
        raise NotImplementedError

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Returns the answers to texts, string [B] each."""
        return self.from_ids(self.pack(*texts))

    def pack(self, *texts: tf.Tensor) -> Batch:
        """Makes the rows of single texts, or of pairs.

        Raises:
          InvalidArgumentError: when it runs, if a text is not UTF-8.
        """
        pieces = [self.tokenize(text) for text in texts]
        lengths = [column.row_lengths() for column in pieces]
        if len(texts) == 1:
            kept = [tf.minimum(lengths[0], self.max_seq_length - num_special_tokens(False))]
        else:
            sizes = (self.max_seq_length, self.vocab.num_separators, self.as_tokenizers)
            kept = list(longest_first_lengths(lengths[0], lengths[1], *sizes))
        keep_tail = self.long_texts == "tail"
        parts = [cut(*both, keep_tail) for both in zip(pieces, kept, strict=True)]
        second = parts[1] if len(parts) == 2 else None
        return pack_rows(self.vocab, parts[0], second, as_tokenizers=self.as_tokenizers)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids of texts, int32 [B, (tokens)]; see `pack` for errors."""
        return self.tokenizer.tokenize(check_utf8(text)).merge_dims(1, 2)

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        """Returns rows of ids of texts, in the order of `IDS`: a request to try a model with."""
        return [self.pack(*texts)[name] for name in IDS]

    def card(self) -> dict[str, Any]:
        """Returns what a client needs to know of the model, as JSON has it."""
        return {
            "kind": self.kind,
            "inputs": list(self.texts),
            "labels": list(self.labels),
            "max_seq_length": self.max_seq_length,
            "do_lower_case": self.do_lower_case,
            "vocab_size": len(self.vocab),
        }

    def text_signatures(self) -> Signatures:
        """Returns functions of texts, ids and serialized tf.Examples, by the signature's name."""
        strings = [
            tf.TensorSpec([None, None] if name in self.lists else [None], tf.string, name)
            for name in self.texts
        ]
        serialized = [tf.TensorSpec([None], tf.string, "examples")]
        one, several = tf.io.FixedLenFeature([], tf.string), tf.io.RaggedFeature(tf.string)
        features = {name: several if name in self.lists else one for name in self.texts}

        @tf.function(input_signature=strings, autograph=False)
        def serving_default(*texts: tf.Tensor) -> Outputs:
            return self.from_texts(*texts)

        @tf.function(input_signature=serialized, autograph=False)
        def examples(examples: tf.Tensor) -> Outputs:
            parsed = tf.io.parse_example(examples, features)
            columns = {
                name: parsed[name].to_tensor() if name in self.lists else parsed[name]
                for name in self.texts
            }
            return serving_default(*columns.values())

        ids = self.id_signatures()["serving_default"]
        return {"serving_default": serving_default, "ids": ids, "examples": examples}

    def id_signatures(self) -> Signatures:
        """Returns functions of ids, which need TensorFlow's own operations only."""
        ids = function_of_ids(self.from_ids)
        serialized = [tf.TensorSpec([None], tf.string, "examples")]

        @tf.function(input_signature=serialized, autograph=False)
        def examples(examples: tf.Tensor) -> Outputs:
            features = {name: tf.io.RaggedFeature(tf.int64) for name in IDS}
            parsed = tf.io.parse_example(examples, features)
            return ids(*(tf.cast(parsed[name].to_tensor(), tf.int32) for name in IDS))

        return {"serving_default": ids, "examples": examples}

    def call_in_parts(self, batch: Batch, dtypes: Any) -> Any:
        """Calls the model on rows that may be many: at most `MAX_ROWS` at once.

        Args:
          batch: R rows.
          dtypes: of the model's outputs, each [R, T, ...], in their structure.
        """
        num_rows, width = tf.unstack(tf.shape(batch["input_mask"]))

        def in_parts() -> Any:
            count = -(-num_rows // MAX_ROWS)
            missing = [[0, count * MAX_ROWS - num_rows], [0, 0]]
            parts = {
                name: tf.reshape(tf.pad(column, missing), [count, MAX_ROWS, width])
                for name, column in batch.items()
            }
            answers = tf.map_fn(self.call_model, parts, fn_output_signature=dtypes)
            return tf.nest.map_structure(
                lambda x: tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0))[:num_rows], answers
            )

        return tf.cond(num_rows > MAX_ROWS, in_parts, lambda: self.call_model(batch))
