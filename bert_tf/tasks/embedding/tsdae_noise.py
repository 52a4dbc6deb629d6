"""Texts with words deleted, others in each epoch, beside the whole texts.

    text --words deleted, packed--> input_word_ids [B, Td] ...
    text --packed-----------------> whole/input_word_ids [B, T] ...

Which words stay is a pure function of (seed, epoch, example): a run resumes at any step, and
neither workers nor replicas change it.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.corpus.example_order import order_examples
from bert_tf.corpus.input_shard import InputShard
from bert_tf.corpus.mapping import map_in_numpy
from bert_tf.corpus.splitmix import uniform
from bert_tf.examples.rows import TokenizedDataset
from bert_tf.tasks.embedding.features import TextPacker
from bert_tf.tasks.embedding.packing import pack_text
from bert_tf.text.packing import INPUTS, PackedText

WHOLE = "whole/"  # The start of the names of the whole texts' inputs.


def delete_words(text: str, rate: float, *keys: int) -> str:
    """Deletes words; what is left is separated by single spaces.

    Args:
      text: with at least one word: what stands between whitespace.
      rate: the probability of each word to be deleted; if all are, one of them is kept.
      *keys: the same keys delete the same words.

    Reference: Wang et al. 2021, section 3.1; DenoisingAutoEncoderDataset. Differs from it: there
    nltk's word_tokenize splits punctuation and contractions off, which then are words, too.
    """
    words = text.split()
    draws = uniform(*keys, np.arange(len(words) + 1))
    kept = draws[:-1] >= rate
    if not kept.any():
        kept[int(draws[-1] * len(words))] = True
    return " ".join(word for word, is_kept in zip(words, kept, strict=True) if is_kept)


class DamagedTexts:
    """N texts with the means to damage them.

    Args:
      texts: N texts, each with at least one word.
      pack_damaged: packs a damaged text for the encoder.
      whole: the rows of the whole texts.
      rate: see `delete_words`.
      prompt_pieces: first pieces of a damaged text that do not count in its pooling.
    """

    def __init__(
        self,
        texts: Sequence[str],
        pack_damaged: Callable[[str], PackedText],
        whole: TokenizedDataset,
        rate: float,
        prompt_pieces: int = 0,
    ) -> None:
        self.texts, self.pack_damaged, self.whole = list(texts), pack_damaged, whole
        self.rate, self.prompt_pieces = rate, prompt_pieces
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
        own: np.ndarray,
        buckets: Sequence[int],
    ) -> dict[str, np.ndarray]:
        """Makes a worker's rows of a batch.

        Args:
          examples: int64 [B], of the whole batch: its longest texts decide on the lengths.
          epochs: int64 [B].
          seed: of the deletions.
          own: which of them are made, int64 [B / W].
          buckets: lengths, ascending.

        Returns:
          The encoder's inputs of damaged texts and, behind `WHOLE`, of whole ones, int32; and
          `prompt_pieces` int32 [B / W] if there are any.
        """
        places = zip(examples.tolist(), epochs.tolist(), strict=True)
        damaged = TokenizedDataset(
            [
                self.pack_damaged(delete_words(self.texts[i], self.rate, seed, epoch, i))
                for i, epoch in places
            ],
            pad_id=self.whole.pad_id,
        )
        batch = _inputs(damaged, np.arange(len(examples)), own, buckets)
        if self.prompt_pieces:
            batch["prompt_pieces"] = np.full([len(own)], self.prompt_pieces, np.int32)
        whole = _inputs(self.whole, examples, own, buckets)
        return batch | {WHOLE + name: values for name, values in whole.items()}


class DenoisingExamples(NamedTuple):
    """Packed examples to train on."""

    rows: DamagedTexts
    predictions_per_row: int  # at most, for the estimate of memory
    texts_per_row: int = 2  # damaged and whole


def make_denoising_examples(
    packer: TextPacker, texts: Sequence[str], rate: float
) -> DenoisingExamples:
    """Packs texts to be reconstructed.

    Args:
      packer: of the model; damaged texts have the prompt of documents.
      texts: each with at least one word.
      rate: see `delete_words`.
    """
    length = packer.embedding.max_seq_length
    # Without the prompt, which the decoder need not learn.
    whole = [pack_text(packer.tokenizer, packer.embedding, text, "") for text in texts]
    rows = DamagedTexts(
        texts,
        lambda text: packer.pack("document", text),
        TokenizedDataset(whole, pad_id=packer.tokenizer.vocab.pad_id),
        rate,
        packer.skipped["document"],
    )
    logging.info(
        "train: %d texts (%d cut to %d tokens, %d of a single word, which stays); loss "
        "denoising, %g of the words deleted.",
        len(texts),
        sum(len(row.ids) == length for row in whole),
        length,
        sum(len(text.split()) == 1 for text in texts),
        rate,
    )
    return DenoisingExamples(rows, length - 1)


def _inputs(
    rows: TokenizedDataset, chosen: np.ndarray, own: np.ndarray, buckets: Sequence[int]
) -> dict[str, np.ndarray]:
    longest = int(rows.lengths[chosen].max())
    length = next((bucket for bucket in buckets if bucket >= longest), buckets[-1])
    made = rows.batch(chosen[own], len(own), length)
    return {name: made[name] for name in INPUTS}


def damaged_batches(
    texts: DamagedTexts,
    batch_size: int,
    start_step: int,
    seed: int,
    buckets: Sequence[int],
    shares: InputShard,
) -> tf.data.Dataset:
    """Returns an endless dataset of `DamagedTexts.batch`; see `row_batches.training_batches`."""
    own = shares.rows(batch_size)

    def batch(step: int) -> dict[str, np.ndarray]:
        places = np.arange(step * batch_size, (step + 1) * batch_size)
        examples, epochs = order_examples(places, len(texts), seed)
        return texts.batch(examples, epochs, seed, own, buckets)

    example = batch(0)

    def make(step: np.ndarray) -> list[np.ndarray]:
        return list(batch(int(step)).values())

    def static_shape(value: np.ndarray) -> list[int | None]:
        # One bucket is one length, which XLA has to know.
        return [len(own), *([buckets[0] if len(buckets) == 1 else None] * (value.ndim - 1))]

    spec = {name: (value.dtype, static_shape(value)) for name, value in example.items()}
    return map_in_numpy(tf.data.Dataset.range(start_step, np.iinfo(np.int64).max), make, spec)
