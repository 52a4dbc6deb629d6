"""Combined flags, each of which sets several fields: --mask_unit=span:5, --teacher_options=...

A field that is declared with `within="mask_unit"` has no line in --help, because --mask_unit sets
it. A flag with the field's name is defined as well, because run.flags contains it.
This module has no flags, only the translation of their texts; see `combined_flags`.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_tf.config.architectures import ARCHITECTURES

# New values of fields; None for the default. Strings are read by the flag of the field.
Values = dict[str, str | int | float | bool | None]


class CombinedFlag(NamedTuple):
    """A flag that sets several fields."""

    help: str
    read: Callable[[str], Values]  # returns the fields that a value sets
    default: str = ""  # the value for the defaults of the fields, for --help
    adds: bool = False  # whether a second use of the flag adds to the first instead of replacing it
    # Whether fields that are given separately, before it or after it, take precedence.
    is_preset: bool = False


def read_masked_share(text: str) -> Values:
    """Reads --masked_lm_prob: `0.15`, `0.1..0.5` or `0.3->0.15`."""
    start, range_sign, to = text.partition("..")
    first, arrow, end = text.partition("->")
    if range_sign:
        low = _share(start)
        high = _share(to)
        if low is not None and high is not None and low < high:
            return {"masked_lm_prob": low, "masked_lm_prob_to": high}
    elif arrow:
        before = _share(first)
        after = _share(end)
        # The last share cannot be 0, which means no change.
        if before is not None and after:
            return {"masked_lm_prob": before, "masked_lm_prob_end": after}
    elif (share := _share(text)) is not None:
        return {"masked_lm_prob": share}
    raise ValueError(
        "expected a share of the tokens from 0 to 1 (0.15), a range to draw the share of each "
        "example from (0.1..0.5), or the shares of the first and the last step, in quotes because "
        "of the shell ('0.3->0.15')"
    )


def read_mask_unit(text: str) -> Values:
    """Reads --mask_unit: `token`, `word`, `span:5` or `ngram:3`."""
    # None resets the fields of the units that are not chosen.
    values: Values = dict.fromkeys(
        ("do_whole_word_mask", "span_length", "ngram_length", "span_pieces")
    )
    if text == "token":
        return values
    if text == "word":
        return {**values, "do_whole_word_mask": True}
    match = re.fullmatch(r"(token_)?(span|ngram):(\S+)", text)
    if match is None:
        raise ValueError(
            "expected token, word, span:LENGTH, ngram:LENGTH (spans of words), token_span:LENGTH "
            "or token_ngram:LENGTH"
        )
    values[f"{match[2]}_length"] = match[3]
    if match[1]:
        values["span_pieces"] = True
    return values


def read_train_for(text: str) -> Values:
    """Reads --train_for: `100000` steps, or a time such as `40s`, `15min`, `1.5h` or `1h30m`."""
    if text.isdecimal():
        return {"num_train_steps": text, "train_minutes": None}
    number = r"(\d+\.?\d*|\.\d+)"
    match = re.fullmatch(
        f"(?:{number}h)?(?:{number}m(?:in)?)?(?:{number}s)?", text.replace(" ", "")
    )
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = 60 * hours + minutes + seconds / 60
    if not total or not math.isfinite(total):
        raise ValueError("expected a number of steps (100000), or a time (40s, 15min, 1h30m)")
    return {"train_minutes": total, "num_train_steps": None}


def read_part(text: str, part: str) -> Values:
    """Reads --warmup or --cooldown: `1000` steps, or `0.1` of the run."""
    steps = f"num_{part}_steps"
    proportion = f"{part}_proportion"
    if text.isdecimal():
        # Without steps, a run that is measured in minutes has no such part either.
        return {steps: text, proportion: None if int(text) else 0.0}
    share = _share(text)
    if share is None:
        raise ValueError("expected a number of steps (1000), or a share of the run (0.1)")
    return {proportion: share, steps: None}


PAIRS: dict[str, Values] = {
    "next": {"use_next_sentence": None, "sentence_order": None},
    "order": {"use_next_sentence": None, "sentence_order": True},
    "none": {"use_next_sentence": False, "sentence_order": None},
}


def read_choice(text: str, choices: Mapping[str, Mapping[str, Any]]) -> Values:
    """Reads --pairs or --architecture: the name of some values."""
    if text not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}")
    return dict(choices[text])


def read_options(text: str) -> Values:
    """Reads NAME=VALUE,..., where a part without a name continues the value before it."""
    values: dict[str, str] = {}
    name = ""
    for part in text.split(",") if text.strip() else []:
        before, equals, value = part.partition("=")
        if equals:
            name = before.strip()
            values[name] = value
        elif name:
            values[name] += f",{part}"
        else:
            raise ValueError(f"expected NAME=VALUE,..., received {part!r}")
    return dict(values)


def _share(text: str) -> float | None:
    """Returns a number from 0 to 1, or None for another text."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def _options(subject: str) -> CombinedFlag:
    return CombinedFlag(f"{subject}, NAME=VALUE,...;", read_options, adds=True)


COMBINED = {
    "masked_lm_prob": CombinedFlag(
        "Share of tokens to predict: 0.15; 0.1..0.5: the share of each example is drawn from this "
        "range; '0.3->0.15': it changes linearly from the first to the last step.",
        read_masked_share,
        "0.15",
    ),
    "mask_unit": CombinedFlag(
        "Unit of masking: token; word: all tokens of a word; span:5: spans of words that end with "
        "probability 1 / 5 at each word, at the latest after ten (SpanBERT); ngram:3: spans of 1 "
        "to 3 words (ALBERT); token_span:5, token_ngram:3: the same of single tokens.",
        read_mask_unit,
        "token",
    ),
    "pairs": CombinedFlag(
        "Second segment of an example: next: the next or a random one (BERT); order: the next, in "
        "order or swapped (ALBERT); none: full sentences, MLM only (RoBERTa).",
        functools.partial(read_choice, choices=PAIRS),
        "next",
    ),
    "train_for": CombinedFlag(
        "Steps (100000), or minutes or hours (15min, 2h), which include compilation, evaluations "
        "and saves; the schedule then follows the time.",
        read_train_for,
        "100000",
    ),
    "warmup": CombinedFlag(
        "Steps (1000), or share of the run (0.1), in which the learning rate rises; if not given, "
        "10,000 steps, or a tenth of a run of minutes.",
        functools.partial(read_part, part="warmup"),
    ),
    "cooldown": CombinedFlag(
        "Steps (1000), or share of the run (0.1), at the end of a trapezoid in which the learning "
        "rate falls.",
        functools.partial(read_part, part="cooldown"),
        "0",
    ),
    "architecture": CombinedFlag(
        "Structure of a published encoder, which --model_options and --bert_config_file change: "
        f"{', '.join(ARCHITECTURES)}.",
        functools.partial(read_choice, choices=ARCHITECTURES),
        "bert",
        is_preset=True,
    ),
    "model_options": _options("Other keys of bert_config.json"),
    "optimizer_options": _options("Options of the optimizer and the schedule"),
    "training_options": _options("Options of the training loop"),
    "masking_options": _options("Options of masking"),
    "objective_options": _options("Options of objective=replaced_tokens"),
    "teacher_options": _options("Options of learning from --teacher"),
    "loss_options": _options("Options of the loss of labels"),
    "few_shot_options": _options("Options of --few_shot"),
}
# The combined flag of a field, for warnings; of other fields it is --OPTIONS=NAME=VALUE.
COMBINED_FORMS = {
    "masked_lm_prob_to": "--masked_lm_prob=LOW..HIGH",
    "masked_lm_prob_end": "--masked_lm_prob='START->END'",
    "span_length": "--mask_unit=span:LENGTH",
    "ngram_length": "--mask_unit=ngram:LENGTH",
    "span_pieces": "--mask_unit=token_span:LENGTH",
    "use_next_sentence": "--pairs=next, --pairs=none",
    "sentence_order": "--pairs=order",
    "train_minutes": "--train_for=MINUTESmin",
    "warmup_proportion": "--warmup=SHARE",
    "cooldown_proportion": "--cooldown=SHARE",
    "num_cooldown_steps": "--cooldown=STEPS",
}


def combined_form(name: str, within: str) -> str:
    """Returns the combined flag that sets a field, for a message."""
    return COMBINED_FORMS.get(name, f"--{within}={name}=VALUE")
