"""Decisions of a classifier from its scores, by a temperature and thresholds of labels.

    logits / temperature --softmax or sigmoid--> probabilities --thresholds--> labels

With several labels per text, a text gets the labels with a probability above their threshold. With
two classes and thresholds, it gets the second class if its probability is above the threshold,
otherwise the first. The defaults are a temperature of 1 and thresholds of 0.5.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from absl import logging

from bert_tf.metrics import calibration
from bert_tf.metrics.classification import THRESHOLD, sigmoid, softmax
from bert_tf.tasks.base.examples.labels import LabelNames
from bert_tf.tasks.base.models.label_order import plain_name

MAX_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The temperature of a classifier, and the thresholds of its labels.

    Args:
      temperature: divides the logits.
      thresholds: thresholds of all C labels, in their order; (): with several labels 0.5 for each,
        with classes the likeliest class.
    """

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()

    @classmethod
    def of(
        cls,
        problem_type: str,
        labels: Sequence[str],
        temperature: float = 1.0,
        thresholds: Mapping[str, float] | None = None,
    ) -> Self:
        """Checks settings of a model.

        Args:
          problem_type: `single_label`, `regression` or `multi_label`.
          labels: names of the classes, or their indices.
          temperature: above 0.
          thresholds: by label; the default is 0.5. Two classes need only one.

        Raises:
          ValueError: if a threshold is not a probability or its label is unknown, the temperature
            is not above 0, or the problem type has no such setting.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature is {temperature}, expected a number above 0.")
        if problem_type == "regression" and (temperature != 1.0 or thresholds):
            raise ValueError(
                "The model predicts a number, which has neither temperature nor thresholds; leave "
                "them out."
            )
        if not thresholds:
            return cls(temperature)
        if problem_type == "single_label" and len(labels) != 2:
            raise ValueError(
                f"thresholds are for several labels per text or for two classes, but the model has "
                f"{len(labels)} classes, of which a text gets the likeliest; leave them out."
            )
        values: dict[int, float] = {}
        for name, value in thresholds.items():
            index = find_label(name, labels)
            if index is None:
                shown = ", ".join(map(repr, labels[:MAX_SHOWN]))
                raise ValueError(
                    f"thresholds has {name!r}, which is not one of the {len(labels)} labels, "
                    f"{shown}{', ...' if len(labels) > MAX_SHOWN else ''}."
                )
            if not 0 <= value <= 1:
                raise ValueError(
                    f"The threshold of {name!r} is {value}, expected a probability from 0 to 1."
                )
            values[index] = float(value)
        if problem_type == "single_label":
            # With two classes, a threshold of one class implies that of the other.
            second = values[1] if 1 in values else 1 - values[0]
            if 0 in values and not math.isclose(values[0], 1 - second, abs_tol=1e-6):
                raise ValueError(
                    f"The thresholds of the two classes are {values[0]} and {second}; they must "
                    "have a sum of 1. Give one of them."
                )
            # `choose` reads only the second; `by_label` shows both.
            values = {0: values.get(0, 1 - second), 1: second}
        return cls(temperature, tuple(values.get(index, THRESHOLD) for index in range(len(labels))))

    def by_label(self, labels: Sequence[str]) -> dict[str, float]:
        """Returns the thresholds by label; {} without thresholds."""
        if self.thresholds:
            return dict(zip(labels, self.thresholds, strict=True))
        return {}

    def probabilities(self, logits: np.ndarray, problem_type: str) -> np.ndarray:
        """Returns softmax or sigmoid of logits [E, C], float64; numbers are returned unchanged."""
        if problem_type == "regression":
            return logits.astype(np.float64)
        scaled = logits if self.temperature == 1.0 else logits / self.temperature
        if problem_type == "multi_label":
            return sigmoid(scaled)
        return softmax(scaled)

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns the class of each row of probabilities [E, C], int [E]."""
        if self.thresholds:
            return (probabilities[:, 1] > self.thresholds[1]).astype(int)
        return probabilities.argmax(axis=-1)

    def choose_several(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns 1 for labels that apply and 0 for others, int [E, C]."""
        least = np.array(self.thresholds) if self.thresholds else THRESHOLD
        return (probabilities > least).astype(int)


def find_label(name: str, labels: Sequence[str]) -> int | None:
    """Returns the index of a label in any of its spellings; None if the label is unknown."""
    index = LabelNames(labels).find(name)
    if index is not None:
        return index
    # A simplified name must be unambiguous.
    matches = []
    for index, label in enumerate(labels):
        if plain_name(label) == plain_name(name):
            matches.append(index)
    return matches[0] if len(matches) == 1 else None


def parse_thresholds(text: str) -> dict[str, float]:
    """Returns the thresholds of a flag by label: LABEL=THRESHOLD,... or a JSON object."""
    # JSON is for labels that contain a comma or an equals sign.
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        is_valid = isinstance(values, dict) and all(map(_is_number, values.values()))
        if not is_valid:
            raise ValueError(
                f"--thresholds={text:.200}: expected a JSON object of numbers, or "
                "LABEL=THRESHOLD,... ."
            )
        return values
    found: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        # From the right, because a label may contain "=".
        name, _, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            # Without a name, the check below reports the whole part.
            name = ""
        if not name.strip() or not 0 <= found[name.strip()] <= 1:
            raise ValueError(
                f"--thresholds: received {part!r} in {text!r:.200}, expected LABEL=THRESHOLD,... "
                "with thresholds from 0 to 1."
            )
    return found


def _is_number(value: object) -> bool:
    # bool is a subclass of int.
    return isinstance(value, int | float) and not isinstance(value, bool)


def calibrated(
    decisions: Decisions, logits: np.ndarray, labels: np.ndarray, problem_type: str
) -> Decisions:
    """Returns decisions with the temperature that minimises the loss of labelled examples.

    Args:
      logits: float [E, C], without temperature.
      labels: int [E], or 0 and 1 [E, C].
      problem_type: `single_label` or `multi_label`.
    """
    _check_examples(logits, problem_type, "calibrate")
    found = dataclasses.replace(decisions, temperature=calibration.best_temperature(logits, labels))
    errors = []
    for one in (decisions, found):
        bins = calibration.reliability(one.probabilities(logits, problem_type), labels)
        errors.append(calibration.calibration_error(bins))
    if errors[1] > errors[0]:
        logging.warning(
            "The temperature %.4g lowers the loss, but the calibration error of these %d examples "
            "rises from %.4f to %.4f; more examples give a better choice.",
            found.temperature,
            len(labels),
            *errors,
        )
    return found


def with_best_thresholds(
    decisions: Decisions, logits: np.ndarray, labels: np.ndarray, problem_type: str
) -> Decisions:
    """Returns decisions with the thresholds of the highest F1 on examples as of `calibrated`.

    Several labels: the F1 of each label; a label that no example has keeps its threshold. Two
    classes: the F1 of the second. The temperature of `decisions` is kept.
    """
    _check_examples(logits, problem_type, "choose_thresholds")
    num_labels = logits.shape[1]
    if problem_type == "single_label" and num_labels != 2:
        raise ValueError(
            f"choose_thresholds is for several labels per text or for two classes, but there are "
            f"{num_labels} classes; leave it out."
        )
    probabilities = decisions.probabilities(logits, problem_type)
    thresholds = list(decisions.thresholds or [THRESHOLD] * num_labels)
    if problem_type == "single_label":
        if chosen := calibration.best_threshold(probabilities[:, 1], labels):
            # The probabilities of two classes add up to 1, and so do their thresholds.
            thresholds = [1 - chosen.threshold, chosen.threshold]
    else:
        for index in range(num_labels):
            if chosen := calibration.best_threshold(probabilities[:, index], labels[:, index]):
                thresholds[index] = chosen.threshold
    return dataclasses.replace(decisions, thresholds=tuple(thresholds))


def _check_examples(logits: np.ndarray, problem_type: str, name: str) -> None:
    if problem_type == "regression":
        raise ValueError(f"{name} is for labels, but the model predicts a number; leave it out.")
    if not len(logits):
        raise ValueError(f"{name} received no examples; give labelled ones that were not learned.")
    is_good = np.isfinite(logits).all(axis=1)
    if not is_good.all():
        raise ValueError(
            f"{name}: the scores of example {int(np.argmin(is_good)) + 1} are not finite numbers, "
            "so the model's weights are useless."
        )


def settings_of(decisions: Decisions, labels: Sequence[str]) -> dict[str, str]:
    """Returns the settings that differ from the defaults, by the names of flags."""
    settings: dict[str, str] = {}
    if decisions.temperature != 1.0:
        # repr keeps all digits, so that a loaded model decides exactly as before.
        settings["temperature"] = repr(decisions.temperature)
    if decisions.thresholds:
        settings["thresholds"] = json.dumps(decisions.by_label(labels))
    return settings


def arguments_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns recorded settings as arguments of models and serving classes; {} without any."""
    arguments: dict[str, Any] = {}
    if text := settings.get("temperature"):
        try:
            arguments["temperature"] = float(text)
        except ValueError:
            raise ValueError(f"temperature={text!r:.60}: expected a number above 0.") from None
    if text := settings.get("thresholds"):
        arguments["thresholds"] = parse_thresholds(text)
    return {name: value for name, value in arguments.items() if value not in (1.0, {})}
