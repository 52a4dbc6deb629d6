"""Texts with deleted words, different in each epoch, together with the whole texts.

    text --words deleted, packed--> input_word_ids [B, Td] ...
    text --packed-----------------> whole/input_word_ids [B, T] ...

The deleted words are a pure function of (seed, epoch, example), so that a run resumes at any step,
and gives the same result with any number of workers and replicas.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.mapping import InputShard, map_in_numpy, steps_from
from bert_tf.corpus.splitmix import uniform
from bert_tf.tasks.base.examples.known_texts import text_keys
from bert_tf.tasks.base.examples.rows import TokenizedDataset, bucket_of
from bert_tf.tasks.embedding.features import TextPacker
from bert_tf.tasks.embedding.packing import pack_text
from bert_tf.text.packing import INPUTS, PackedText

WHOLE = "whole/"  # prefix of the inputs of whole texts


def delete_words(text: str, rate: float, *keys: int) -> str:
    """Deletes words with a probability, but not all, and joins the others by single spaces.

    The same keys, which are seeds, delete the same words.

    Reference: Wang et al. 2021, section 3.1; DenoisingAutoEncoderDataset. Differs from it: there
    nltk's word_tokenize makes separate words of punctuation and contractions.
    """
    words = text.split()
    draws = uniform(*keys, np.arange(len(words) + 1))  # one per word, and one for the exception
    is_kept = draws[:-1] >= rate
    if not is_kept.any():
        # Draws are below 1, so that the index is at most that of the last word.
        is_kept[int(draws[-1] * len(words))] = True
    return " ".join(itertools.compress(words, is_kept))


class DamagedTexts:
    """A dataset of N texts, whose batches contain each text whole and damaged.

    Args:
      texts: N texts, each with at least one word.
      pack_damaged: packs a damaged text for the encoder.
      whole: the rows of the whole texts.
      rate: see `delete_words`.
      prompt_length: number of first tokens of a damaged text that the pooling skips.
    """

    def __init__(
        self,
        texts: Sequence[str],
        pack_damaged: Callable[[str], PackedText],
        whole: TokenizedDataset,
        rate: float,
        prompt_length: int = 0,
    ) -> None:
        self.texts = list(texts)
        self.pack_damaged = pack_damaged
        self.whole = whole
        self.rate = rate
        self.prompt_length = prompt_length
        self.num_tokens = whole.num_tokens

    def __len__(self) -> int:
        return len(self.texts)

    def fingerprint(self) -> str:
        """Returns a digest that changes with any text."""
        digest = hashlib.sha256(self.whole.fingerprint().encode())
        for text in self.texts:
            digest.update(hashlib.sha256(text.encode("utf8", "surrogatepass")).digest())
        return digest.hexdigest()[:16]

    def batch(
        self,
        examples: np.ndarray,
        epochs: np.ndarray,
        seed: int,
        shard_rows: np.ndarray,
        buckets: Sequence[int],
    ) -> dict[str, np.ndarray]:
        """Makes a worker's part of a batch.

        Args:
          examples: int64 [B], the texts of the whole batch, whose longest determines the length.
          shard_rows: int64 [B / W], the rows of the batch that this worker computes.

        Returns:
          The encoder's inputs of damaged texts, and with the prefix `WHOLE` of whole texts, int32
          [B / W, T]; and `prompt_lengths` int32 [B / W] if the pooling skips a prompt.
        """
        packed = []
        # Every worker damages the whole batch, since its longest text determines the shapes.
        for index, epoch in zip(examples.tolist(), epochs.tolist(), strict=True):
            damaged_text = delete_words(self.texts[index], self.rate, seed, epoch, index)
            packed.append(self.pack_damaged(damaged_text))
        damaged = TokenizedDataset(packed, pad_id=self.whole.pad_id)
        batch = _inputs(damaged, np.arange(len(examples)), shard_rows, buckets)
        if self.prompt_length:
            batch["prompt_lengths"] = np.full([len(shard_rows)], self.prompt_length, np.int32)
        whole = _inputs(self.whole, examples, shard_rows, buckets)
        for name, values in whole.items():
            batch[WHOLE + name] = values
        return batch


class DenoisingExamples(NamedTuple):
    """Packed examples to train on."""

    rows: DamagedTexts
    predictions_per_row: int  # maximum, for the estimate of memory
    texts_per_row: int = 2  # damaged and whole

    @property
    def keys(self) -> np.ndarray:
        """Keys of the whole texts."""
        return text_keys(self.rows.whole)[:, 0]


def make_denoising_examples(
    packer: TextPacker, texts: Sequence[str], rate: float
) -> DenoisingExamples:
    """Packs texts to reconstruct, each with a word; damaged texts get the prompt of documents."""
    length = packer.embedding.max_seq_length
    # Without the prompt, which the decoder should not learn to predict.
    whole = [pack_text(packer.tokenizer, packer.embedding, text, "") for text in texts]
    rows = DamagedTexts(
        texts,
        lambda text: packer.pack("document", text),
        TokenizedDataset(whole, pad_id=packer.tokenizer.vocab.pad_id),
        rate,
        packer.prompt_lengths["document"],
    )
    logging.info(
        "train: %d texts (%d of a single word, which is kept); loss denoising, %g of the words "
        "deleted.",
        len(texts),
        sum(len(text.split()) == 1 for text in texts),
        rate,
    )
    # The decoder predicts all tokens except the first.
    return DenoisingExamples(rows, length - 1)


def _inputs(
    rows: TokenizedDataset, batch: np.ndarray, shard_rows: np.ndarray, buckets: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns the encoder's inputs for a worker's part of a batch of rows."""
    # The length is that of the whole batch, so that all workers have the same shapes.
    length = bucket_of(int(rows.lengths[batch].max()), buckets)
    inputs = rows.batch(batch[shard_rows], len(shard_rows), length)
    return {name: inputs[name] for name in INPUTS}


def damaged_batches(
    texts: DamagedTexts,
    batch_size: int,
    start_step: int,
    seed: int,
    buckets: Sequence[int],
    shard: InputShard,
) -> tf.data.Dataset:
    """Returns an infinite dataset of `DamagedTexts.batch`; see `row_batches.training_batches`."""
    shard_rows = shard.rows(batch_size)

    def batch(step: int) -> dict[str, np.ndarray]:
        # The endless stream of examples concatenates the epochs, each in a different order.
        offsets = np.arange(step * batch_size, (step + 1) * batch_size)
        examples, epochs = order_examples(offsets, len(texts), seed)
        return texts.batch(examples, epochs, seed, shard_rows, buckets)

    sample = batch(0)
    # With a single bucket the length is static, which XLA needs.
    tokens = [name for name, value in sample.items() if value.ndim > 1 and len(buckets) > 1]
    return map_in_numpy(steps_from(start_step), batch, sample, dict.fromkeys(tokens, (1,)))
