"""Examines pre-training examples: damage, padding, masks, labels, special tokens, vocabulary.

N examples of T tokens each, with P predictions if they are masked.
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

MAX_RECORDS = 20_000  # evenly spaced
SHOWN = 10
REBUILD = "Make the records again with python -m bert_tf.create_pretraining_data."


class Examples:
    """Examples as arrays, with values derived from them.

    Attributes:
      form: whether they are masked, T, P.
      ids, types: int [N, T].
      is_real: bool [N, T], False at padding.
      lengths: int [N], number of tokens without padding.
      originals: int [N, T], the token ids before masking.
      is_predicted: bool [N, T].
      is_random: bool [N], True if the label says that the second segment does not follow.
      is_pair: bool [N], True if the type ids mark a second segment.
      locations: N names, "record R of FILE".
    """

    def __init__(
        self, features: dict[str, np.ndarray], form: RecordForm, locations: list[str]
    ) -> None:
        self.form = form
        self.locations = locations
        self.ids = features["input_word_ids"]
        self.types = features["input_type_ids"]
        self.is_real = features["input_mask"] > 0
        self.lengths = self.is_real.sum(axis=1)
        self.originals = self.ids.copy()
        self.is_predicted = np.zeros(self.ids.shape, bool)
        if form.is_masked:
            # Example and slot of each prediction.
            rows, slots = np.nonzero(features["masked_lm_weights"] > 0)
            columns = features["masked_lm_positions"][rows, slots].clip(0, form.max_seq_length - 1)
            self.originals[rows, columns] = features["masked_lm_ids"][rows, slots]
            self.is_predicted[rows, columns] = True
        self.is_random = features["next_sentence_labels"] == 1
        self.is_pair = (self.types == 1).any(axis=1)


def diagnose_examples(
    source: str,
    paths: Sequence[pathlib.Path],
    vocab: AnyVocab | None,
    masking: MaskingConfig,
    is_room_given: bool = True,
) -> Diagnosis:
    """Examines TFRecords of pre-training examples.

    Args:
      source: a name for the files, used in the report.
      vocab: their vocabulary; None: tokens are not examined.
      masking: how they are or will be masked.
      is_room_given: whether max_predictions_per_seq is that of the training; if not, it is not
        checked in records without masks.
    """
    diagnosis = Diagnosis(source, "examples")
    examples, num_records, damage = read_examples(paths)
    diagnosis.check(
        thresholds.ANY,
        len(damage),
        "Records that cannot be read",
        "Copy or create these files again: training would stop there.",
        measured=f"{len(damage)}: {damage[0] if damage else ''}",
        expected="none",
        details=tuple(damage[1:SHOWN]),
    )
    if not examples:
        return diagnosis
    is_masked = examples.form.is_masked
    padding = 1.0 - float(examples.is_real.mean())
    masked_when = "already" if is_masked else "at reading"
    diagnosis.facts = {
        "examples": f"{num_records:,}, {len(examples.ids):,} of them read",
        "form": f"{examples.form.max_seq_length} tokens, masked {masked_when}",
        "padding": percent(padding),
        "random pairs": percent(float(examples.is_random.mean())),
    }
    diagnosis.check(
        thresholds.PADDING,
        padding,
        "Padding",
        f"Use a shorter --max_seq_length (the median is {np.median(examples.lengths):.0f} "
        "tokens), a smaller --short_seq_prob, longer documents, or --pack_rows.",
        measured=f"{percent(padding)} of all positions",
    )
    _check_labels(examples, diagnosis)
    if is_masked or is_room_given:
        _check_predictions(examples, diagnosis, masking)
    if vocab:
        _check_tokens(examples, diagnosis, vocab)
        if is_masked:
            _check_split(examples, diagnosis, vocab)
    lengths = examples.lengths
    diagnosis.plots["Tokens per example"] = lambda axes: axes.hist(lengths, 40)
    return diagnosis


def read_examples(paths: Sequence[pathlib.Path]) -> tuple[Examples | None, int, list[str]]:
    """Returns the examples that can be read or None, the number of records, and the damage."""
    damage: list[str] = []
    readable: list[pathlib.Path] = []
    for path in paths:
        try:
            RecordFiles([path])
            readable.append(path)
        except (ValueError, OSError) as error:
            damage.append(str(error))
    if not readable:
        return None, 0, damage
    records = RecordFiles(readable)
    serialized = []
    locations = []
    count = min(len(records), MAX_RECORDS)
    # Evenly spaced, because neighbouring records often come from one document.
    for index in np.linspace(0, len(records) - 1, count).astype(np.int64):
        try:
            serialized += records.read(np.array([index]))
            locations.append(records.locate(index))
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
        raise ValueError(f"{readable[0]}: {error.message}") from None
    except ValueError as error:
        return None, len(records), [*damage, str(error)]
    features = {name: tensor.numpy() for name, tensor in parsed.items()}
    return Examples(features, form, locations), len(records), damage


def _check_labels(examples: Examples, diagnosis: Diagnosis) -> None:
    pairs = examples.is_random[examples.is_pair]
    if not pairs.size:
        return
    # A share of 0.5 has a standard error of 0.5 / sqrt(n).
    tolerance = thresholds.STANDARD_ERRORS * 0.5 / math.sqrt(pairs.size)
    diagnosis.check(
        thresholds.LABEL_BALANCE,
        abs(pairs.mean() - 0.5) - tolerance,
        "Labels of next sentence prediction are out of balance",
        "Documents of one sentence, or sentences longer than a segment, give only random pairs: "
        "split sentences, use a longer --max_seq_length, or pass --pairs=none.",
        measured=f"{percent(float(pairs.mean()))} of the pairs are random",
        expected="35 to 65 %",
    )


def _check_predictions(examples: Examples, diagnosis: Diagnosis, masking: MaskingConfig) -> None:
    """Checks how many tokens are predicted, and whether the prediction slots fit."""
    length = examples.form.max_seq_length
    is_masked = examples.form.is_masked
    slots = examples.form.max_predictions_per_seq or masking.max_predictions_per_seq
    # If the masked share varies, the slots must suffice for the largest one.
    share = masking.masked_lm_prob if is_masked else masking.largest_share
    unlimited = dataclasses.replace(masking, masked_lm_prob=share, max_predictions_per_seq=length)
    wanted = count_predictions(examples.lengths, unlimited)  # [N]
    needed = math.ceil(length * share)
    remedy = f"Pass --max_predictions_per_seq={needed} (max_seq_length x the largest share)."
    diagnosis.check(
        thresholds.LOST_PREDICTIONS,
        float(np.maximum(0, wanted - slots).sum() / wanted.sum()),
        f"Predictions have no room: max_predictions_per_seq is {slots}",
        remedy,
    )
    used = examples.is_predicted.sum(axis=1) if is_masked else np.minimum(wanted, slots)
    diagnosis.check(
        thresholds.WASTED_PREDICTIONS,
        1.0 - float(used.mean()) / slots if slots else math.nan,
        f"Room for predictions is wasted: max_predictions_per_seq is {slots}",
        f"{remedy} Empty slots cost as much as filled ones.",
    )
    if not is_masked:
        return
    masked = float(used.sum() / examples.lengths.sum())
    diagnosis.facts["masked"] = percent(masked)
    diagnosis.check(
        thresholds.MASKED_SHARE,
        abs(masked / masking.masked_lm_prob - 1.0),
        "The masked share is not the nominal one",
        f"If another share was intended, pass it as --masked_lm_prob. Otherwise: {REBUILD}",
        measured=f"{percent(masked)} of the tokens are predicted",
        expected=f"about {percent(masking.masked_lm_prob)}",
    )


def _check_split(examples: Examples, diagnosis: Diagnosis, vocab: AnyVocab) -> None:
    shown = examples.ids[examples.is_predicted]
    is_mask = shown == vocab.mask_id
    is_kept = (shown == examples.originals[examples.is_predicted]) & ~is_mask
    is_replaced = ~is_mask & ~is_kept
    shares = np.array([is_mask.mean(), is_kept.mean(), is_replaced.mean()])
    nominal = np.array([0.8, 0.1, 0.1])
    errors = np.sqrt(nominal * (1 - nominal) / max(1, shown.size))  # standard errors
    diagnosis.check(
        thresholds.MASK_SPLIT,
        float((abs(shares - nominal) - thresholds.STANDARD_ERRORS * errors).max()),
        "Predicted tokens are not masked 80 / 10 / 10",
        f"{REBUILD} Without kept and random tokens the model sees only [MASK], which does not "
        f"occur in real text.",
        measured=f"{' / '.join(map(percent, shares))} are [MASK], kept, random",
        expected="80 % / 10 % / 10 %",
    )
    names = ["[MASK]", "kept", "random"]
    diagnosis.plots["Replacements of predicted tokens (lines: nominal)"] = lambda axes: (
        axes.bar(names, shares),
        axes.hlines(nominal, np.arange(3) - 0.4, np.arange(3) + 0.4, "grey"),
    )


def _check_tokens(examples: Examples, diagnosis: Diagnosis, vocab: AnyVocab) -> None:
    originals = examples.originals
    is_text = examples.is_real & ~np.isin(originals, [vocab.cls_id, vocab.sep_id])
    text = originals[is_text]
    unknown = float((text == vocab.unk_id).mean())
    diagnosis.facts["[UNK]"] = percent(unknown)
    diagnosis.check(
        thresholds.UNKNOWN_TOKENS,
        unknown,
        "Tokens that are [UNK]",
        "Run the doctor on the corpus with --vocab_file: it names the characters.",
    )
    unused = [index for token, index in vocab.ids.items() if token.startswith("[unused")]
    diagnosis.check(
        thresholds.UNUSED_TOKENS,
        float(np.isin(text, unused).mean()),
        "Tokens that cannot come from text ([unused...]): wrong vocabulary",
        "Give the --vocab_file that the records were made with, with the same casing.",
    )
    is_faulty = np.zeros(len(originals), bool)  # [N]
    details = []
    for name, rows in find_faults(examples, vocab).items():
        if rows.any():
            is_faulty |= rows
            first = examples.locations[int(rows.argmax())]
            details.append(f"{rows.sum():,} examples: {name}; {first}")
    share = float(is_faulty.mean())
    diagnosis.check(
        thresholds.MISPLACED,
        share,
        "Misplaced special tokens or ids",
        f"Give the --vocab_file that the records were made with. If it is the right one: {REBUILD}",
        measured=f"{percent(share)} of the examples",
        expected="none",
        details=tuple(details),
    )


def find_faults(examples: Examples, vocab: AnyVocab) -> dict[str, np.ndarray]:
    """Returns the examples, bool [N], that violate each rule of the form [CLS] a [SEP] b [SEP]."""
    ids = examples.ids
    originals = examples.originals
    is_real = examples.is_real
    positions = np.arange(ids.shape[1])  # [T]
    is_sep = is_real & (originals == vocab.sep_id)  # [N, T]
    is_cls = is_real & (originals == vocab.cls_id)
    # The second segment of a pair begins after the first [SEP].
    is_second = positions > is_sep.argmax(axis=1)[:, None]
    is_second &= is_real & examples.is_pair[:, None]
    last_positions = np.maximum(examples.lengths - 1, 0)  # [N]
    is_class_position = positions == (
        last_positions[:, None] if vocab.class_at_end else np.zeros_like(last_positions)[:, None]
    )
    # The class token is last, and the last separator precedes it.
    if vocab.class_at_end:
        is_second &= ~is_class_position
        last_positions = np.maximum(last_positions - 1, 0)
    is_special = is_sep | is_cls | ~is_real
    token_faults = {
        "padding between tokens": is_real != (positions < examples.lengths[:, None]),
        "tokens in the padding": ~np.isin(ids, [0, vocab.pad_id]) & ~is_real,
        "[CLS] at another position": is_cls != (is_class_position & is_real),
        "segments that change elsewhere than after [SEP]": (examples.types == 1) != is_second,
        "predictions at [CLS], [SEP] or padding": is_special & examples.is_predicted,
        "[MASK] where nothing is predicted": (ids == vocab.mask_id) & ~examples.is_predicted,
        "ids outside of the vocabulary": (originals < 0) | (originals >= len(vocab)),
    }
    faults = {name: tokens.any(axis=1) for name, tokens in token_faults.items()}
    last = originals[np.arange(len(ids)), last_positions]  # [N]
    faults["no [SEP] at the end"] = last != vocab.sep_id
    has_two = is_sep.sum(axis=1) == 1 + vocab.num_separators
    faults["a pair without two [SEP]"] = examples.is_pair & ~has_two
    return faults
