"""Numbers of pre-training examples: lengths, masks, labels, special tokens, copies.

All arrays are those of a `Scan`: N examples of T pieces, with P predictions where they are masked.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_tf.config import MaskingConfig
from bert_tf.data.static_masks import count_predictions
from bert_tf.diagnosis.record_scan import Scan
from bert_tf.text.vocab import Vocab

SENTENCE_ENDS = frozenset([*".!?;:…。！？\"'”’»)]"])


class SpecialIds(NamedTuple):
    """Ids of the special tokens; -1 where one is not known."""

    pad: int
    cls: int
    sep: int
    mask: int
    unk: int


@dataclasses.dataclass(frozen=True)
class MaskShares:
    """What became of the predicted pieces: shares of [MASK], kept, exchanged; and how many."""

    num_predicted: int
    mask: float
    kept: float
    random: float


class Examples:
    """Examples with what follows from them.

    Args:
      scan: the records read.
      vocab: their vocabulary; None: its special tokens are guessed from where they stand.

    Attributes:
      lengths: int64 [N], pieces without padding.
      originals: int64 [N, T], the pieces before masking.
      is_predicted: bool [N, T].
      is_random: bool [N], labelled as not following.
      is_pair: bool [N], has a second segment.
    """

    def __init__(self, scan: Scan, vocab: Vocab | None) -> None:
        rows = scan.rows
        self.scan, self.vocab = scan, vocab
        self.is_masked, self.length, self.num_slots = scan.form
        self.ids, self.mask = rows["input_word_ids"], rows["input_mask"]
        self.types = rows["input_type_ids"]
        self.lengths = self.mask.sum(axis=1)
        self.is_random: np.ndarray = rows["next_sentence_labels"] == 1
        self.is_pair: np.ndarray = self.types.max(axis=1) > 0
        self.originals = self.ids.copy()
        self.is_predicted = np.zeros(self.ids.shape, bool)
        if self.is_masked:
            numbers, slots = np.nonzero(rows["masked_lm_weights"] > 0)
            places = np.clip(rows["masked_lm_positions"][numbers, slots], 0, self.length - 1)
            self.originals[numbers, places] = rows["masked_lm_ids"][numbers, slots]
            self.is_predicted[numbers, places] = True
        self.special = self._find_special()

    def __len__(self) -> int:
        return len(self.ids)

    def _find_special(self) -> SpecialIds:
        if self.vocab:
            v = self.vocab
            return SpecialIds(v.pad_id, v.cls_id, v.sep_id, v.mask_id, v.unk_id)
        last = self.originals[np.arange(len(self)), np.maximum(self.lengths - 1, 0)]
        mask = most_frequent(self.ids[self.is_predicted]) if self.is_masked else -1
        return SpecialIds(0, most_frequent(self.originals[:, 0]), most_frequent(last), mask, -1)

    def padding_share(self) -> float:
        return 1.0 - float(self.lengths.sum()) / self.ids.size

    def short_share(self) -> float:
        """Returns the share of examples that fill less than half of T."""
        return float((self.lengths < self.length / 2).mean())

    def cut_share(self) -> float:
        """Returns the share of examples that are full and end in mid-sentence; nan if unknown."""
        if not self.vocab:
            return float("nan")
        ends = np.isin(
            np.arange(len(self.vocab)), [self.vocab.ids.get(c, 0) for c in SENTENCE_ENDS]
        )
        last = self.originals[np.arange(len(self)), np.maximum(self.lengths - 2, 0)]
        is_end = ends[np.clip(last, 0, len(ends) - 1)]
        return float(((self.lengths == self.length) & ~is_end).mean())

    def unknown_share(self) -> float:
        """Returns the share of [UNK] among the pieces of the text; nan if its id is not known."""
        if self.special.unk < 0:
            return float("nan")
        special = self.special
        is_text = (self.mask > 0) & ~np.isin(self.originals, [special.cls, special.sep])
        return float((self.originals[is_text] == special.unk).mean())

    def masked_share(self) -> float:
        """Returns predictions by pieces, special tokens counted as google-research/bert does."""
        return float(self.is_predicted.sum() / self.lengths.sum())

    def mask_shares(self) -> MaskShares:
        """Returns what the predicted pieces were replaced by."""
        shown, original = self.ids[self.is_predicted], self.originals[self.is_predicted]
        is_mask = shown == self.special.mask
        is_kept = (shown == original) & ~is_mask
        mask, kept = float(is_mask.mean()), float(is_kept.mean())
        return MaskShares(len(shown), mask, kept, float((~is_mask & ~is_kept).mean()))

    def lost_predictions(self, masking: MaskingConfig) -> float:
        """Returns the share of predictions that P leaves no room for."""
        most = dataclasses.replace(masking, max_predictions_per_seq=self.length)
        wanted = count_predictions(self.lengths, most)
        slots = self.num_slots if self.is_masked else masking.max_predictions_per_seq
        return float(np.maximum(0, wanted - slots).sum() / wanted.sum())

    def copied_share(self) -> float:
        """Returns the share of records that repeat another byte for byte."""
        return 1.0 - len(np.unique(self.scan.digests)) / len(self)

    def faults(self) -> dict[str, np.ndarray]:
        """Returns for each rule of the form [CLS] a [SEP] b [SEP] which examples break it."""
        special, places = self.special, np.arange(self.length)
        is_real = places < self.lengths[:, None]
        rows = np.arange(len(self))
        is_sep = (self.originals == special.sep) & is_real
        is_cls = (self.originals == special.cls) & is_real
        last = np.maximum(self.lengths - 1, 0)
        # Of a pair: where the second segment should begin, behind the first [SEP].
        first_sep = is_sep.argmax(axis=1)
        is_second = (places > first_sep[:, None]) & is_real & self.is_pair[:, None]
        at_special = (is_sep | is_cls | ~is_real) & self.is_predicted
        size = len(self.vocab) if self.vocab else np.iinfo(np.int64).max
        strays = self.ids == special.mask if special.mask >= 0 else np.zeros(self.ids.shape, bool)
        return {
            "padding between pieces": ((self.mask > 0) != is_real).any(axis=1),
            "pieces in the padding": ((self.ids != special.pad) & ~is_real).any(axis=1),
            "no [CLS] at the front": self.originals[:, 0] != special.cls,
            "no [SEP] at the end": self.originals[rows, last] != special.sep,
            "[CLS] within the text": is_cls.sum(axis=1) > is_cls[:, 0],
            "a pair without two [SEP]": self.is_pair & (is_sep.sum(axis=1) != 2),
            "segments that change elsewhere than behind [SEP]": ((self.types > 0) != is_second).any(
                axis=1
            ),
            "predictions at [CLS], [SEP] or padding": at_special.any(axis=1),
            "[MASK] where nothing is predicted": (strays & ~self.is_predicted).any(axis=1),
            "ids outside of the vocabulary": ((self.originals < 0) | (self.originals >= size)).any(
                axis=1
            ),
        }


def most_frequent(values: np.ndarray) -> int:
    """Returns the value found most often; -1 of none."""
    if not values.size:
        return -1
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()])
