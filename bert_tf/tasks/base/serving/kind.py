"""Kinds: the purposes that models are loaded and served for; tasks list theirs in `kinds.py`.

This module does not load TensorFlow: classes are named by location and imported when needed.
"""

import dataclasses
import importlib
import typing
from collections.abc import Callable
from typing import Any

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

SINGLE = ("text",)
PAIR = ("text", "text_b")


def never(checkpoint: "Checkpoint", folder: str) -> bool:
    """The `is_default` of kinds that are only chosen by name."""
    return False


def has_head(*heads: str) -> Callable[["Checkpoint", str], bool]:
    """Returns the `is_default` of kinds whose checkpoints have one of these heads."""
    return lambda checkpoint, folder: any(head in checkpoint.heads for head in heads)


def no_options(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """The `recorded` of kinds whose runs record no options of requests."""
    return {}


@dataclasses.dataclass(frozen=True)
class Kind:
    """One purpose of a trained model. Locations are written as "package.module.Class"."""

    name: str  # as in `bert_tf.load(kind=...)` and in the metadata of exports
    request: str  # description of a request, for messages
    head: str  # that a checkpoint must have, of `checkpoints.checkpoint.HEADS`; "": no head
    methods: tuple[str, ...]  # of a `Predictor` that answer requests
    model: str  # location of the Keras class
    serving: str  # location of the class with the serving functions
    # Whether a checkpoint, with the folder of its run, is of this kind unless another kind is
    # requested. If several kinds match, the first of `inference.kinds.KINDS` is used.
    is_default: Callable[["Checkpoint", str], bool] = never
    # Returns the options of the serving class that a run recorded.
    recorded: Callable[["Checkpoint", str], dict[str, Any]] = no_options
    options: tuple[str, ...] = ()  # of the serving class, that callers may give for this kind
    # Arguments of the Keras class that leave out parts not used by the kind.
    model_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    has_one_label: bool = False  # whether the head must have exactly one label
    inputs: tuple[str, ...] = SINGLE  # texts of a request, unless `recorded` has `texts`
    problem_type: str = ""  # of a classification head, one of `PROBLEM_TYPES`
    reads_windows: bool = False  # whether texts of any length are always read, in windows
    # Location of another class with serving functions, by the head that a checkpoint must have.
    serving_of_heads: dict[str, str] = dataclasses.field(default_factory=dict)
    loader: str = ""  # location of a function that makes these, instead of `serving_models`

    @property
    def model_name(self) -> str:
        """Name of the Keras class."""
        return self.model.rpartition(".")[2]

    @property
    def takes_pairs(self) -> bool:
        """Whether requests are single texts or pairs, depending on how the model was trained."""
        return "texts" in self.options

    def import_model(self) -> Any:
        """Imports the Keras class."""
        return import_object(self.model)

    def import_serving(self, checkpoint: "Checkpoint") -> Any:
        """Imports the class with the serving functions of a checkpoint."""
        for head, serving in self.serving_of_heads.items():
            if head in checkpoint.heads:
                return import_object(serving)
        return import_object(self.serving)


def import_object(location: str) -> Any:
    """Imports "package.module.name"."""
    module, _, name = location.rpartition(".")
    return getattr(importlib.import_module(module), name)


def recorded_labels(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the `labels` option of serving classes: the labels' names, or else their indices."""
    numbers = tuple(map(str, range(checkpoint.num_labels)))
    return {"labels": checkpoint.labels or numbers}
