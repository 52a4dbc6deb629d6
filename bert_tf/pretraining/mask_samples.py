"""Fills in the masks of given sentences at every evaluation, to show the progress of a run."""

import json
import pathlib
from typing import Any

from bert_tf.pretraining.masked_words.answers import FillMaskAnswers
from bert_tf.system.files import atomic_write
from bert_tf.training.metrics_log import read_metrics

FILE = "filled_masks.jsonl"
SHOWN = 3  # Tokens for each mask.


class MaskSamples:
    """Fills in sentences with [MASK] and keeps the answers in the run directory, a line a step.

    A sentence that has no mask, or loses one because it is too long, is an error.
    """

    def __init__(self, folder: pathlib.Path, model: FillMaskAnswers, texts: list[str]) -> None:
        self.path = folder / FILE
        self.model = model
        self.texts = texts
        # A sentence without a mask fails here, and not at the first evaluation.
        self._fill()

    def _fill(self) -> list[str]:
        filled = []
        for masks in self.model.fill_mask(self.texts, SHOWN):
            shown = []
            for answers in masks:
                shown.append(", ".join(answer["piece"] for answer in answers))
            filled.append(" / ".join(shown))
        return filled

    def note(self, step: int) -> None:
        """Adds the answers of a step, and drops those of later steps, which a stopped run wrote."""
        lines: list[dict[str, Any]] = [
            line for line in read_metrics(self.path) if line["step"] < step
        ]
        lines.append({"step": step, "texts": self.texts, "filled": self._fill()})
        with atomic_write(self.path) as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def report(self) -> list[str]:
        """Returns the first and the last answers for each sentence, as lines of text."""
        lines = [line for line in read_metrics(self.path) if line["texts"] == self.texts]
        if not lines:
            return []
        first = lines[0]
        last = lines[-1]
        shown = []
        for text, before, after in zip(self.texts, first["filled"], last["filled"], strict=True):
            shown.append(text)
            if first is not last:
                shown.append(f"    step {first['step']}: {before}")
            shown.append(f"    step {last['step']}: {after}")
        return shown
