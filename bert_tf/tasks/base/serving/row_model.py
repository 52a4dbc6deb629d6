"""A file that computes rows of token ids, with the tokenizer that makes them of texts."""

import os
from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.text.packing import ids_after_prompt, pack, pad_batch
from bert_tf.text.tokenization import AnyVocab, make_tokenizer

Arrays = dict[str, np.ndarray]


class RowModel:
    """Base class of exported models of token ids: LiteRT and ONNX files.

    Args:
      card: the content of bert_tf.json: kind, labels, inputs, max_seq_length, do_lower_case,
        outputs.
    """

    calls_at_once = 1  # Its threads share each batch.
    has_logits = False  # LiteRT files have probabilities of them.

    def __init__(self, path: str | os.PathLike, card: Metadata, vocab: AnyVocab) -> None:
        if card.get("vocab_size", len(vocab)) != len(vocab):
            raise ValueError(
                f"{path} contains a vocabulary of {len(vocab)}, but bert_tf.json says "
                f"{card['vocab_size']}; export it again."
            )
        self.card = card
        self.vocab = vocab
        self.labels = tuple(card["labels"])
        self.tokenizer = make_tokenizer(vocab, card["do_lower_case"])
        self._path = path

    @property
    def long_texts(self) -> str:
        """The part of a long text that is read: `head`, `tail` or `windows`."""
        return self.card.get("long_texts", "head")

    def pack(self, texts: Sequence[str], second_texts: Sequence[str] = ()) -> Arrays:
        """Packs texts or pairs into a batch, int32 [B, T], padded to the longest example."""
        seconds: Sequence[str | None] = second_texts or [None] * len(texts)
        prompt = self.card.get("prompt", "")
        is_lower = self.card.get("lower_case_texts")
        if is_lower:
            prompt = prompt.lower()
        rows = []
        for first, second in zip(texts, seconds, strict=True):
            first = (prompt + first)[: self.card.get("max_characters")]
            if is_lower:
                first = first.lower()
            first_ids = self.tokenizer.encode(first)
            row = pack(
                self.vocab,
                first_ids,
                None if second is None else self.tokenizer.encode(second),
                self.card["max_seq_length"],
                self.long_texts == "tail",
                counted=ids_after_prompt(self.tokenizer, prompt, first_ids),
            )
            rows.append(row)
        return pad_batch(rows, self.vocab.pad_id)

    def from_ids(self, batch: Arrays) -> Arrays:
        """Returns the outputs for a batch of token ids, int32 [B, T], as new arrays.

        Raises:
          ValueError: if the model cannot compute them, for example if a sequence is too long.
        """
        raise NotImplementedError

    def __call__(self, texts: Sequence[str], second_texts: Sequence[str] = ()) -> Arrays:
        """Returns the outputs for texts or pairs.

        Raises:
          ValueError: if the model reads long texts in windows, several examples per text.
        """
        if self.long_texts == "windows":
            raise ValueError(
                f"{self._path} reads long texts in windows (long_texts=windows): "
                f"use bert_tf.load({str(self._path)!r}), which answers for whole texts."
            )
        return self.from_ids(self.pack(texts, second_texts))

    def rows(self, *columns: Sequence[str]) -> list[Arrays]:
        """Returns the outputs by name for each text or pair; see `__call__`."""
        outputs = self(*columns)  # [B, ...] each
        return [{name: array[i] for name, array in outputs.items()} for i in range(len(columns[0]))]
