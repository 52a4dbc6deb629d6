"""Serving functions: a model behind functions of raw texts, of token ids and of tf.Examples.

Every kind of model has a subclass of `Serving`. The first axis of all outputs is the batch, as
required by TensorFlow Serving's batching and the row form of its REST interface. Lists of different
lengths are padded with "" or -1. The names of outputs are a public interface: outputs may be added,
but never renamed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.system.type_names import Model
from bert_tf.tasks.base.serving.graph_tokens import replace_malformed
from bert_tf.tasks.base.serving.kind import SINGLE
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.packing import INPUTS, num_special_tokens
from bert_tf.text.tensor_packing import cut, longest_first_lengths, pack_rows
from bert_tf.text.tokenization import AnyVocab

Batch = dict[str, tf.Tensor]
Outputs = dict[str, tf.Tensor]
Signatures = dict[str, Any]  # tf.functions that return Outputs

IDS = INPUTS
MAX_ROWS = 64  # windows of long texts in one call of the model


def function_of_ids(
    answer: Callable[[Batch], Outputs],
) -> tf.types.experimental.PolymorphicFunction:
    """Wraps a function of a batch as a tf.function of the arguments `IDS`, int32 [B, T] each."""
    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in IDS]

    @tf.function(input_signature=specs, autograph=False)
    def ids(*columns: tf.Tensor) -> Outputs:
        return answer(dict(zip(IDS, columns, strict=True)))

    return ids


class Serving:
    """A model with its tokenizer and the functions to export.

    Args:
      model: a Keras model in float32, called with a batch of token ids.
      max_seq_length: most tokens of an example; longer texts are truncated unless `long_texts` is
        `windows`.
      texts: names of the texts in a request.
      long_texts: the part of a longer text that is kept, `head` or `tail`; or `windows`: a
        classifier reads the whole text in overlapping windows.
      labels: names of the classes, if there are any.
    """

    kind = ""
    lists: tuple[str, ...] = ()  # names of the texts of which a request has a list per example
    numbers: dict[str, int] = {}  # names of inputs with one number each, and a sample value
    as_tokenizers = False  # whether pairs are packed as `pack_pair` does

    def __init__(
        self,
        model: Model,
        vocab: AnyVocab,
        do_lower_case: bool,
        max_seq_length: int,
        texts: tuple[str, ...] = SINGLE,
        long_texts: str = "head",
        labels: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.vocab = vocab
        self.do_lower_case = do_lower_case
        self.max_seq_length = max_seq_length
        self.texts = texts
        self.long_texts = long_texts
        self.labels = tuple(labels)
        self.tokenizer = make_graph_tokenizer(vocab.with_trimmed_offsets(), do_lower_case)

    def call_model(self, batch: Batch) -> Any:
        """Returns the model's outputs for a batch of token ids, int32 [B, T]."""
        return self.model(batch, training=False)

    def parts(self) -> list["Serving"]:
        """Returns the servings, each with a model and a tokenizer, that the functions call."""
        return [self]

    def share_model(self) -> None:
        """Makes all functions created from now on call one shared graph of the model.

        The files are smaller and load faster, but only the model's call is available afterwards.
        """
        self.model = tf.function(self.model, autograph=False)

    def from_ids(self, batch: Batch) -> Outputs:
        """Returns the outputs for a batch of token ids, int32 [B, T]."""
        raise NotImplementedError

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        """Returns the outputs for texts, string [B] each."""
        return self.from_ids(self.pack(*texts))

    def pack(self, *texts: tf.Tensor) -> Batch:
        """Packs single texts or pairs into a batch, int32 [B, T]."""
        keep_tail = self.long_texts == "tail"
        first = self.tokenize(texts[0])  # [B, (tokens)]
        first_length = first.row_lengths()  # [B]
        second = None
        if len(texts) == 1:
            limit = self.max_seq_length - num_special_tokens(False)
            first_length = tf.minimum(first_length, limit)
        else:
            second = self.tokenize(texts[1])
            first_length, second_length = longest_first_lengths(
                self.vocab,
                first_length,
                second.row_lengths(),
                self.max_seq_length,
                self.as_tokenizers,
            )
            second = cut(second, second_length, keep_tail)
        first = cut(first, first_length, keep_tail)
        return pack_rows(self.vocab, first, second, as_tokenizers=self.as_tokenizers)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the token ids of texts, int32 [B, (tokens)]."""
        return self.tokenizer.tokenize(text).merge_dims(1, 2)

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        """Returns the inputs `IDS` for texts, as a sample request to the functions of ids."""
        return [self.pack(*texts)[name] for name in IDS]

    def card(self) -> dict[str, Any]:
        """Returns the metadata that clients need, as JSON values."""
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
        strings = []
        features = {}
        for name in self.texts:
            if name in self.lists:
                strings.append(tf.TensorSpec([None, None], tf.string, name))
                # An example may have any number of these texts.
                features[name] = tf.io.RaggedFeature(tf.string)
            else:
                strings.append(tf.TensorSpec([None], tf.string, name))
                features[name] = tf.io.FixedLenFeature([], tf.string)
        serialized = [tf.TensorSpec([None], tf.string, "examples")]

        @tf.function(input_signature=strings, autograph=False)
        def serving_default(*texts: tf.Tensor) -> Outputs:
            return self.from_texts(*map(replace_malformed, texts))

        @tf.function(input_signature=serialized, autograph=False)
        def examples(examples: tf.Tensor) -> Outputs:
            parsed = tf.io.parse_example(examples, features)
            texts = []
            for name in self.texts:
                text = parsed[name]
                # Shorter lists are padded with "".
                texts.append(text.to_tensor() if name in self.lists else text)
            # A call of the other function: the file contains its graph only once.
            return serving_default(*texts)

        ids = self.id_signatures()["serving_default"]
        return {"serving_default": serving_default, "ids": ids, "examples": examples}

    def id_signatures(self) -> Signatures:
        """Returns functions of token ids, which need only TensorFlow's operations."""
        ids = function_of_ids(self.from_ids)
        serialized = [tf.TensorSpec([None], tf.string, "examples")]

        @tf.function(input_signature=serialized, autograph=False)
        def examples(examples: tf.Tensor) -> Outputs:
            features = {name: tf.io.RaggedFeature(tf.int64) for name in IDS}
            parsed = tf.io.parse_example(examples, features)
            # The integers of tf.Examples are int64.
            columns = [tf.cast(parsed[name].to_tensor(), tf.int32) for name in IDS]  # [B, T]
            return ids(*columns)

        return {"serving_default": ids, "examples": examples}

    def call_in_parts(self, batch: Batch, dtypes: tf.DType | dict[str, tf.DType]) -> Any:
        """Calls the model on a large batch, at most `MAX_ROWS` examples at once.

        Args:
          batch: R examples, int32 [R, T].
          dtypes: types of the model's outputs, each [R, T, ...], in the structure of the outputs.
        """
        num_rows, width = tf.unstack(tf.shape(batch["input_mask"]))

        def in_parts() -> Any:
            num_parts = -(-num_rows // MAX_ROWS)
            # All calls get MAX_ROWS rows; those that fill up the last one are cut off below.
            padding = [[0, num_parts * MAX_ROWS - num_rows], [0, 0]]
            parts = {}
            for name, column in batch.items():
                parts[name] = tf.reshape(tf.pad(column, padding), [num_parts, MAX_ROWS, width])
            outputs = tf.map_fn(self.call_model, parts, fn_output_signature=dtypes)

            def merge(x: tf.Tensor) -> tf.Tensor:  # [parts, MAX_ROWS, ...] -> [R, ...]
                return tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0))[:num_rows]

            return tf.nest.map_structure(merge, outputs)

        return tf.cond(num_rows > MAX_ROWS, in_parts, lambda: self.call_model(batch))
