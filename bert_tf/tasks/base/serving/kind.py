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
    """One purpose of a trained model.

    Attributes:
      name: as in `bert_tf.load(kind=...)` and in the metadata of exports.
      request: description of a request, for messages.
      head: the head that a checkpoint must have, of `checkpoints.checkpoint.HEADS`; "": no head.
      methods: the methods of a `Predictor` that answer requests.
      model: location of the Keras class, as "package.module.Class".
      serving: location of the class with the serving functions.
      serving_of_heads: location of another such class, by the head that a checkpoint must have.
      loader: location of a function that makes the serving functions, instead of `serving_models`.
      is_default: whether a checkpoint, with the folder of its run, is of this kind unless another
        kind is requested. If several kinds match, the first of `inference.kinds.KINDS` is used.
      recorded: returns the options of the serving class that a run recorded.
      options: names of options of the serving class that callers may give for this kind.
      model_options: arguments of the Keras class that leave out parts not used by the kind.
      has_one_label: whether the head must have exactly one label.
      inputs: names of the texts of a request, unless `recorded` gives them as `texts`.
      problem_type: of a classification head, one of `PROBLEM_TYPES`; "" for other kinds.
      reads_windows: whether texts of any length are always read, in windows.
    """

    name: str
    request: str
    head: str
    methods: tuple[str, ...]
    model: str
    serving: str
    is_default: Callable[["Checkpoint", str], bool] = never
    recorded: Callable[["Checkpoint", str], dict[str, Any]] = no_options
    options: tuple[str, ...] = ()
    model_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    has_one_label: bool = False
    inputs: tuple[str, ...] = SINGLE
    problem_type: str = ""
    reads_windows: bool = False
    serving_of_heads: dict[str, str] = dataclasses.field(default_factory=dict)
    loader: str = ""

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
