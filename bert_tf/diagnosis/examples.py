"""Examines pre-training examples: damage, padding, masks, labels, special tokens, vocabulary.

N examples of T pieces, with P predictions where they are masked.
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.config import MaskingConfig
from bert_tf.corpus.pipeline import parse_records
from bert_tf.corpus.record_form import RecordForm, describe_records, find_fault
from bert_tf.corpus.static_masks import count_predictions
from bert_tf.corpus.tfrecords import RecordFiles
from bert_tf.diagnosis import thresholds
from bert_tf.diagnosis.findings import Diagnosis, percent
from bert_tf.text.tokenization import AnyVocab

MAX_RECORDS = 20_000  # drawn evenly
SHOWN = 10
AGAIN = "Make the records again with python -m bert_tf.create_pretraining_data."


class Examples:
    """Examples as arrays, with what follows from them.

    Attributes:
      form: masked or not, T, P.
      ids, types: int [N, T]; `is_real`: bool [N, T], no padding.
      lengths: int [N], pieces without padding.
      originals: int [N, T], the pieces before masking; `is_predicted`: bool [N, T].
      is_random: bool [N], labelled as not following; `is_pair`: has a second segment,
        by its type ids.
      places: N names, "record R of FILE".
    """

    def __init__(
        self, features: dict[str, np.ndarray], form: RecordForm, places: list[str]
    ) -> None:
        self.form, self.places = form, places
        self.ids, self.types = features["input_word_ids"], features["input_type_ids"]
        self.is_real = features["input_mask"] > 0
        self.lengths = self.is_real.sum(axis=1)
        self.originals, self.is_predicted = self.ids.copy(), np.zeros(self.ids.shape, bool)
        if form.is_masked:
            rows, slots = np.nonzero(features["masked_lm_weights"] > 0)
            columns = features["masked_lm_positions"][rows, slots].clip(0, form.max_seq_length - 1)
            self.originals[rows, columns] = features["masked_lm_ids"][rows, slots]
            self.is_predicted[rows, columns] = True
        self.is_random = features["next_sentence_labels"] == 1
        self.is_pair = self.types.max(axis=1) > 0


def diagnose_examples(
    place: str,
    paths: Sequence[pathlib.Path],
    vocab: AnyVocab | None,
    masking: MaskingConfig,
    is_room_given: bool = True,
) -> Diagnosis:
    """Looks at TFRecords of pre-training examples.

    Args:
      place: name of the files together.
      paths: the files.
      vocab: their vocabulary; None: nothing is said about pieces.
      masking: how they are, or will be, masked.
      is_room_given: whether its max_predictions_per_seq is that of the training: if not, records
        without masks say nothing of the room for predictions.
    """
    found = Diagnosis(place, "examples")
    examples, number, damage = read_examples(paths)
    found.judge(
        thresholds.ANY,
        len(damage),
        "Records that cannot be read",
        "Copy or make their files again: training would stop there.",
        measured=f"{len(damage)}: {damage[0] if damage else ''}",
        expected="none",
        details=tuple(damage[1:SHOWN]),
    )
    if not examples:
        return found
    length, is_masked = examples.form.max_seq_length, examples.form.is_masked
    padding = 1.0 - float(examples.is_real.mean())
    found.facts = {
        "examples": f"{number:,}, {len(examples.ids):,} of them read",
        "form": f"{length} pieces, masked {'already' if is_masked else 'at reading'}",
        "padding": percent(padding),
        "random pairs": percent(float(examples.is_random.mean())),
    }
    found.judge(
        thresholds.PADDING,
        padding,
        "Padding",
        f"Use a shorter --max_seq_length (the median has {np.median(examples.lengths):.0f} "
        "pieces), a smaller --short_seq_prob, longer documents, or --pack_rows.",
        measured=f"{percent(padding)} of all positions",
    )
    _judge_labels(examples, found)
    if is_masked or is_room_given:
        _judge_predictions(examples, found, masking)
    if vocab:
        _judge_pieces(examples, found, vocab)
        if is_masked:
            _judge_split(examples, found, vocab)
    lengths = examples.lengths
    found.plots["Pieces an example"] = lambda axes: axes.hist(lengths, 40)
    return found


def read_examples(paths: Sequence[pathlib.Path]) -> tuple[Examples | None, int, list[str]]:
    """Reads examples as far as they can be read.

    Returns:
      The examples, None if there are none; records of all whole files; what is damaged.
    """
    damage: list[str] = []
    whole: list[pathlib.Path] = []
    for path in paths:
        try:
            RecordFiles([path])
            whole.append(path)
        except (ValueError, OSError) as error:
            damage.append(str(error))
    if not whole:
        return None, 0, damage
    records = RecordFiles(whole)
    serialized, places = [], []
    count = min(len(records), MAX_RECORDS)
    for index in np.linspace(0, len(records) - 1, count).astype(np.int64):
        try:
            serialized += records.read(np.array([index]))
            places.append(records.locate(index))
        except ValueError as error:
            damage.append(str(error))
    try:
        form = describe_records(records)
        parsed = parse_records(tf.constant(serialized, tf.string), form)
    except tf.errors.InvalidArgumentError as error:
        try:
            find_fault(records)
        except ValueError as fault:
            return None, len(records), [*damage, str(fault)]
        raise ValueError(f"{whole[0]}: {error.message}") from None
    except ValueError as error:
        return None, len(records), [*damage, str(error)]
    features = {name: tensor.numpy() for name, tensor in parsed.items()}
    return Examples(features, form, places), len(records), damage


def _judge_labels(examples: Examples, found: Diagnosis) -> None:
    pairs = examples.is_random[examples.is_pair]
    if not pairs.size:
        return
    beyond = abs(pairs.mean() - 0.5) - thresholds.STANDARD_ERRORS * 0.5 / math.sqrt(pairs.size)
    found.judge(
        thresholds.LABEL_BALANCE,
        beyond,
        "Labels of next sentence prediction are out of balance",
        "Documents of one sentence, or sentences longer than a segment, give only random pairs: "
        "split sentences, use a longer --max_seq_length, or pass --use_next_sentence=false.",
        measured=f"{percent(float(pairs.mean()))} of the pairs are random",
        expected="35 to 65 %",
    )


def _judge_predictions(examples: Examples, found: Diagnosis, masking: MaskingConfig) -> None:
    """Judges how many pieces are predicted, and the room for them."""
    length, is_masked = examples.form.max_seq_length, examples.form.is_masked
    slots = examples.form.max_predictions_per_seq or masking.max_predictions_per_seq
    # Where the share is drawn or moves, there must be room for the largest.
    most = masking.masked_lm_prob if is_masked else masking.largest_share
    room = dataclasses.replace(masking, masked_lm_prob=most, max_predictions_per_seq=length)
    wanted = count_predictions(examples.lengths, room)
    needed = math.ceil(length * most)
    remedy = f"Pass --max_predictions_per_seq={needed} (max_seq_length x the largest share)."
    found.judge(
        thresholds.LOST_PREDICTIONS,
        float(np.maximum(0, wanted - slots).sum() / wanted.sum()),
        f"Predictions have no room: max_predictions_per_seq is {slots}",
        remedy,
    )
    used = examples.is_predicted.sum(axis=1) if is_masked else np.minimum(wanted, slots)
    found.judge(
        thresholds.WASTED_PREDICTIONS,
        1.0 - float(used.mean()) / slots if slots else math.nan,
        f"Room for predictions is wasted: max_predictions_per_seq is {slots}",
        f"{remedy} Empty slots cost as much as filled ones.",
    )
    if not is_masked:
        return
    share = float(used.sum() / examples.lengths.sum())
    found.facts["masked"] = percent(share)
    found.judge(
        thresholds.MASKED_SHARE,
        abs(share / masking.masked_lm_prob - 1.0),
        "The masked share is not the nominal one",
        f"If another share was meant, pass it as --masked_lm_prob; else: {AGAIN}",
        measured=f"{percent(share)} of the pieces are predicted",
        expected=f"about {percent(masking.masked_lm_prob)}",
    )


def _judge_split(examples: Examples, found: Diagnosis, vocab: AnyVocab) -> None:
    shown = examples.ids[examples.is_predicted]
    is_mask = shown == vocab.mask_id
    is_kept = (shown == examples.originals[examples.is_predicted]) & ~is_mask
    shares = np.array([is_mask.mean(), is_kept.mean(), (~is_mask & ~is_kept).mean()])
    nominal = np.array([0.8, 0.1, 0.1])
    errors = np.sqrt(nominal * (1 - nominal) / max(1, shown.size))
    found.judge(
        thresholds.MASK_SPLIT,
        float((abs(shares - nominal) - thresholds.STANDARD_ERRORS * errors).max()),
        "Predicted pieces are not masked 80 / 10 / 10",
        f"{AGAIN} Without kept and random pieces the model sees only [MASK], which does not occur "
        f"in real text.",
        measured=f"{' / '.join(map(percent, shares))} are [MASK], kept, random",
        expected="80 % / 10 % / 10 %",
    )
    names = ["[MASK]", "kept", "random"]
    found.plots["What predicted pieces became (lines: nominal)"] = lambda axes: (
        axes.bar(names, shares),
        axes.hlines(nominal, np.arange(3) - 0.4, np.arange(3) + 0.4, "grey"),
    )


def _judge_pieces(examples: Examples, found: Diagnosis, vocab: AnyVocab) -> None:
    originals, real = examples.originals, examples.is_real
    is_text = real & ~np.isin(originals, [vocab.cls_id, vocab.sep_id])
    text = originals[is_text]
    unknown = float((text == vocab.unk_id).mean())
    found.facts["[UNK]"] = percent(unknown)
    found.judge(
        thresholds.UNKNOWN_PIECES,
        unknown,
        "Pieces that are [UNK]",
        "Run the doctor on the corpus with --vocab_file: it names the characters.",
    )
    unused = [index for token, index in vocab.ids.items() if token.startswith("[unused")]
    found.judge(
        thresholds.UNUSED_PIECES,
        float(np.isin(text, unused).mean()),
        "Pieces that cannot come from text ([unused...]): wrong vocabulary",
        "Give the --vocab_file with which the records were made, with the same casing.",
    )
    faults = {name: rows for name, rows in find_faults(examples, vocab).items() if rows.any()}
    share = float(np.any([*faults.values()], axis=0).mean()) if faults else 0.0
    found.judge(
        thresholds.MISPLACED,
        share,
        "Special tokens or ids out of place",
        f"Give the --vocab_file that made them. If it is the one: {AGAIN}",
        measured=f"{percent(share)} of the examples",
        expected="none",
        details=tuple(
            f"{rows.sum():,} examples: {name}; {examples.places[int(rows.argmax())]}"
            for name, rows in faults.items()
        ),
    )


def find_faults(examples: Examples, vocab: AnyVocab) -> dict[str, np.ndarray]:
    """Returns for each rule of the form [CLS] a [SEP] b [SEP] which examples break it, bool [N]."""
    ids, originals, is_real = examples.ids, examples.originals, examples.is_real
    rows, columns = np.arange(len(ids)), np.arange(ids.shape[1])
    is_sep, is_cls = (is_real & (originals == index) for index in (vocab.sep_id, vocab.cls_id))
    # Of a pair the second segment begins behind the first [SEP].
    is_second = (columns > is_sep.argmax(axis=1)[:, None]) & is_real & examples.is_pair[:, None]
    is_stray = (ids == vocab.mask_id) & ~examples.is_predicted
    faults = {
        "padding between pieces": is_real != (columns < examples.lengths[:, None]),
        "pieces in the padding": ~np.isin(ids, [0, vocab.pad_id]) & ~is_real,
        "[CLS] elsewhere than at the front": is_cls != (columns == 0),
        "segments that change elsewhere than after [SEP]": (examples.types > 0) != is_second,
        "predictions at [CLS], [SEP] or padding": (is_sep | is_cls | ~is_real)
        & examples.is_predicted,
        "[MASK] where nothing is predicted": is_stray,
        "ids outside of the vocabulary": (originals < 0) | (originals >= len(vocab)),
    }
    by_row = {name: cells.any(axis=1) for name, cells in faults.items()}
    last = originals[rows, np.maximum(examples.lengths - 1, 0)]
    by_row["no [SEP] at the end"] = last != vocab.sep_id
    by_row["a pair without two [SEP]"] = examples.is_pair & (
        is_sep.sum(axis=1) != 1 + vocab.num_separators
    )
    return by_row
