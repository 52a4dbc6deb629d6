"""An encoder with its tokenizer: computes the encoder's vectors of texts."""

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
from bert_tf.tasks.embedding.packing import prompt_pieces
from bert_tf.text.packing import INPUTS, PackedText, by_length, pack, pad_batch
from bert_tf.text.tokenization import Tokenizer, make_tokenizer


def read_encoder(
    path: str, config_file: str, vocab_file: str, allow_unexpected: str, given: dict[str, Any]
) -> Checkpoint:
    """Reads a checkpoint, with another vocabulary if one is named.

    Args:
      path: of the checkpoint, in any form.
      config_file: its bert_config.json; "": the one that comes with it.
      vocab_file: its vocabulary; "": the one that comes with it.
      allow_unexpected: starts of names of weights that may be left over, separated by commas.
      given: fields of the configuration, which must not contradict it.

    Raises:
      ValueError: if it cannot be read, or contradicts the given fields.
    """
    checkpoint = read_checkpoint(path, config_file)
    checkpoint.check(starts_of_names(allow_unexpected))
    checkpoint = adapt(checkpoint, vocab_file=vocab_file)
    for note in checkpoint.notes:
        logging.info("%s: %s", path, note)
    merge(checkpoint.config, given, path)
    return checkpoint


class TextModel:
    """An encoder with its tokenizer: returns a selection of the encoder's outputs for each text.

    Args:
      encoder: computes in inference mode.
      tokenizer: with the vocabulary and the casing of the encoder.
      select: takes the encoder's outputs and the mask, returns a tensor that begins with B.
      max_seq_length: maximum number of tokens of a text, with special tokens.
      batch_size: texts computed at once.

    Raises:
      ValueError: if the encoder has fewer positions.
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
        self.encoder, self.tokenizer = encoder, tokenizer
        self.max_seq_length, self.batch_size = max_seq_length, batch_size
        shape = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}

        # One graph for all shapes: on CPUs as fast as XLA, which compiles every length separately.
        @tf.function(input_signature=[shape])
        def compute(batch: dict[str, Any]) -> Any:
            outputs = encoder(batch, training=False)
            # Of an encoder in bfloat16, too, vectors are pooled and returned in float32.
            outputs = keras.tree.map_structure(lambda one: ops.cast(one, "float32"), outputs)
            return ops.cast(select(outputs, batch["input_mask"]), "float32")

        self._compute = compute

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *arguments: Any, **keywords: Any) -> Self:
        """Makes it from a checkpoint that was read; the arguments are those after the tokenizer."""
        vocab, source = checkpoint.vocab, checkpoint.source
        if vocab is None:
            raise ValueError(f"{source} has no vocabulary; give its own as --vocab_file.")
        tokenizer = make_tokenizer(vocab, checkpoint.config.do_lower_case)
        return cls(BertEncoder.from_checkpoint(checkpoint), tokenizer, *arguments, **keywords)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes a text or a pair of texts and cuts it to the length."""
        encode, vocab = self.tokenizer.encode, self.tokenizer.vocab
        row = pack(vocab, encode(text_a), encode(text_b), self.max_seq_length)
        num_types = self.encoder.config.type_vocab_size
        if 0 < num_types <= max(row.type_ids):  # Without a table pairs have no types.
            raise ValueError(
                f"{text_b[:40]!r} is a second text, but the model has no type for it; give "
                f"single texts."
            )
        return row

    def run(
        self, rows: Sequence[PackedText], keep: Callable[[np.ndarray], Any] = np.asarray
    ) -> list[Any]:
        """Computes rows, rows of similar length together: padding costs as much as text.

        Args:
          rows: of `pack`.
          keep: returns the part of a row's array to keep; a view would keep the whole batch.

        Returns:
          The kept part of each row, in their order; an array of [T, ...] is still padded.
        """

        def compute(chosen: list[int]) -> Iterator[Any]:
            batch = pad_batch([rows[index] for index in chosen], self.tokenizer.vocab.pad_id)
            return map(keep, self._compute(batch).numpy())

        return by_length([len(row.ids) for row in rows], self.batch_size, compute)


class OwnEmbedder:
    """A `BertEmbedder` with the methods of `TextModel` that `extract_features` needs.

    Args:
      model: with its vocabulary; texts get its default prompt.
      batch_size: texts per batch.
    """

    def __init__(self, model: BertEmbedder, batch_size: int = 32) -> None:
        self.model, self.batch_size = model, batch_size
        self.tokenizer, self.max_seq_length = model.tokenizer, model.max_seq_length
        self.prompt = model.embedding.prompt(None)

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, max_seq_length: int = 0, batch_size: int = 32
    ) -> Self:
        """Makes it from a checkpoint that was read.

        Args:
          checkpoint: of an embedder.
          max_seq_length: maximum number of tokens of a text; 0: the model's own.
          batch_size: texts per batch.

        Raises:
          ValueError: if the checkpoint does not state its pooling.
        """
        if checkpoint.embedding is None:
            raise ValueError(
                f"{checkpoint.source} does not state its pooling; give one, for example "
                f"--pooling=mean."
            )
        given: dict[str, Any] = {"max_seq_length": max_seq_length} if max_seq_length else {}
        return cls(BertEmbedder.from_checkpoint(checkpoint, **given), batch_size)

    def pack(self, text_a: str, text_b: str = "") -> PackedText:
        """Tokenizes a text after the prompt and cuts it to the length.

        Raises:
          ValueError: if there is a second text.
        """
        if text_b:
            raise ValueError(
                f"{text_b[:40]!r} is a second text, but an embedding is computed from a single "
                f"text."
            )
        return self.model.pack(text_a, self.prompt)

    def run(self, rows: Sequence[PackedText]) -> np.ndarray:
        """Returns the embedding of each text, float32 [N, D]."""
        embedding = self.model.embedding
        skipped = prompt_pieces(self.tokenizer, embedding, self.prompt)
        return self.model.encode_rows(rows, skipped, self.batch_size)


def layers_of(layers: Sequence[int]) -> Callable[[dict[str, Any], Any], Any]:
    """Returns a function that selects float [B, T, layers, D]; the embeddings are not a layer."""

    def select(outputs: dict[str, Any], _: Any) -> Any:
        hidden = outputs["encoder_outputs"][1:]
        return ops.stack([hidden[layer] for layer in layers], axis=2)  # [B, T, layers, D]

    return select


def pooled(pooling: str, normalize: bool) -> Callable[[dict[str, Any], Any], Any]:
    """Returns a function that pools the last layer to float [B, D]; see `pool_tokens`."""

    def select(outputs: dict[str, Any], input_mask: Any) -> Any:
        vectors = pool_tokens(outputs["sequence_output"], input_mask, pooling)  # [B, D]
        return l2_normalize(vectors) if normalize else vectors

    return select
