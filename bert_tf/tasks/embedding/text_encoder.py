"""Encoders and embedders with their tokenizers, which compute vectors of texts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from bert_tf.checkpoints.adapt import adapt
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.start import merge, starts_of_names
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pooling import l2_normalize, pool_tokens
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.packing import prompt_length
from bert_tf.text.packing import BATCHES_AT_ONCE, INPUTS, PackedText, by_length, pack, pad_batch
from bert_tf.text.tokenization import Tokenizer, make_tokenizer


def read_encoder(
    path: str, config_file: str, vocab_file: str, allow_unexpected: str, given: dict[str, Any]
) -> Checkpoint:
    """Reads a checkpoint, optionally with another vocabulary; arguments are named as the flags."""
    checkpoint = read_checkpoint(path, config_file)
    checkpoint.check(starts_of_names(allow_unexpected))
    checkpoint = adapt(checkpoint, vocab_file=vocab_file)
    for note in checkpoint.notes:
        logging.info("%s: %s", path, note)
    # The result is discarded: this reports fields that contradict the checkpoint.
    merge(checkpoint.config, given, path)
    return checkpoint


class TextEncoder:
    """Computes a selection of an encoder's outputs for each text.

    Args:
      encoder: the encoder, which is called in inference mode.
      select: function of the encoder's outputs and the mask that returns a tensor [B, ...].
      max_seq_length: maximum number of tokens of a text, special tokens included.

    Raises:
      ValueError: if the encoder has fewer positions than max_seq_length.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        tokenizer: Tokenizer,
        select: Callable[[dict[str, Any], Any], Any],
        max_seq_length: int = 128,
        batch_size: int = 32,
    ) -> None:
        longest = encoder.config.longest_row
        if max_seq_length > longest:
            raise ValueError(
                f"max_seq_length is {max_seq_length}, but the model has {longest} positions; give "
                f"--max_seq_length={longest} or less."
            )
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size
        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}

        # One graph for all shapes: on CPUs as fast as XLA, which compiles every length separately.
        @tf.function(input_signature=[signature])
        def compute(batch: dict[str, Any]) -> Any:
            outputs = encoder(batch, training=False)
            # Vectors are pooled and returned in float32, even if the encoder computes in bfloat16.
            outputs = keras.tree.map_structure(lambda one: ops.cast(one, "float32"), outputs)
            return ops.cast(select(outputs, batch["input_mask"]), "float32")

        self._compute = compute

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *arguments: Any, **keywords: Any) -> Self:
        """Creates the model from a loaded checkpoint; arguments are those after the tokenizer."""
        vocab = checkpoint.vocab
        if vocab is None:
            raise ValueError(f"{checkpoint.source} has no vocabulary; give it as --vocab_file.")
        tokenizer = make_tokenizer(vocab, checkpoint.config.do_lower_case)
        return cls(BertEncoder.from_checkpoint(checkpoint), tokenizer, *arguments, **keywords)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes a text or a pair of texts, and truncates it to the maximum length."""
        first = self.tokenizer.encode(text_a)
        second = self.tokenizer.encode(text_b) if text_b else None
        row = pack(self.tokenizer.vocab, first, second, self.max_seq_length)
        num_types = self.encoder.config.type_vocab_size
        # A model without a table of types, such as RoBERTa, ignores the types of pairs.
        if 0 < num_types <= max(row.type_ids):
            raise ValueError(
                f"{text_b[:40]!r} is a second text, but the model has no type for it; give "
                f"single texts."
            )
        return row

    def run(
        self, rows: Sequence[PackedText], keep: Callable[[np.ndarray], Any] = np.asarray
    ) -> list[Any]:
        """Returns `keep` of each row's output, in the order of the rows; outputs are padded.

        Rows of similar length share a batch, because padding costs as much as text. `keep` returns
        a copy: a view would keep the whole batch in memory.
        """

        def compute(chosen: list[int]) -> Iterator[Any]:
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            return map(keep, self._compute(batch).numpy())

        lengths = [len(row.ids) for row in rows]
        return by_length(lengths, self.batch_size, compute, BATCHES_AT_ONCE)


class PromptedEmbedder:
    """A `BertEmbedder` with the methods of `TextEncoder`; texts get its default prompt.

    ValueError if the checkpoint does not state its pooling.
    """

    def __init__(
        self, checkpoint: Checkpoint, max_seq_length: int = 0, batch_size: int = 32
    ) -> None:
        if checkpoint.embedding is None:
            raise ValueError(
                f"{checkpoint.source} does not state its pooling; choose one, for example "
                f"--pooling=mean."
            )
        given: dict[str, Any] = {"max_seq_length": max_seq_length} if max_seq_length else {}
        self.model = BertEmbedder.from_checkpoint(checkpoint, **given)
        self.batch_size = batch_size
        self.tokenizer = self.model.tokenizer
        self.max_seq_length = self.model.max_seq_length
        self.prompt = self.model.embedding.prompt(None)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes the prompt and a text, and truncates them; a second text is an error."""
        if text_b:
            raise ValueError(
                f"{text_b[:40]!r} is a second text, but an embedding is computed from a single "
                f"text."
            )
        return self.model.pack(text_a, self.prompt)

    def run(self, rows: Sequence[PackedText]) -> np.ndarray:
        """Returns the embedding of each text, float32 [N, D]."""
        embedding = self.model.embedding
        skipped = prompt_length(self.tokenizer, embedding, self.prompt)
        return self.model.encode_rows(rows, skipped, self.batch_size)


def layers_of(layers: Sequence[int]) -> Callable[[dict[str, Any], Any], Any]:
    """Returns a function that selects the outputs of layers, float [B, T, layers, D]."""

    def select(outputs: dict[str, Any], _: Any) -> Any:
        hidden = outputs["encoder_outputs"][1:]  # The first output is that of the embeddings.
        return ops.stack([hidden[layer] for layer in layers], axis=2)  # [B, T, layers, D]

    return select


def pooled(pooling: str, normalize: bool) -> Callable[[dict[str, Any], Any], Any]:
    """Returns a function that pools the last layer to float [B, D]; see `pool_tokens`."""

    def select(outputs: dict[str, Any], input_mask: Any) -> Any:
        vectors = pool_tokens(outputs["sequence_output"], input_mask, pooling)  # [B, D]
        return l2_normalize(vectors) if normalize else vectors

    return select
