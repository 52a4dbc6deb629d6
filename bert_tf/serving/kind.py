"""What a trained model is loaded and served for; each task lists its kinds in `kinds.py`.

Nothing here loads TensorFlow: classes are named by their location and imported when they are used.
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
    """Is for kinds that are only chosen by name."""
    return False


def no_options(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Is for kinds whose run records nothing about requests."""
    return {}


@dataclasses.dataclass(frozen=True)
class Kind:
    """One purpose of a trained model.

    Attributes:
      name: as in `bert_tf.load(kind=...)` and in the metadata of exports.
      request: what a request holds, for people.
      head: the head that a checkpoint must have, of `checkpoints.checkpoint.HEADS`; "": none.
      methods: the methods of a `Predictor` that answer.
      model: location of the Keras class, as "package.module.Class".
      serving: location of the class of its serving functions.
      is_default: whether a checkpoint, with the folder of its run, is of this kind unless another
        is asked for. Among several kinds, the first of `inference.kinds.KINDS` is taken.
      recorded: returns the options of the serving class that a run recorded.
      options: names of options of the serving class that only this kind, and others that list
        them, take from a caller.
      model_options: arguments of the Keras class, to leave out what the kind does not use.
      has_one_label: whether the head must have exactly one label.
      inputs: names of the texts of a request, unless `recorded` gives them as `texts`.
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

    @property
    def model_name(self) -> str:
        """Name of the Keras class."""
        return self.model.rpartition(".")[2]

    @property
    def takes_pairs(self) -> bool:
        """Whether requests may hold single texts or pairs, as the model was trained."""
        return "texts" in self.options

    def import_model(self) -> Any:
        """Imports the Keras class."""
        return import_object(self.model)

    def import_serving(self) -> Any:
        """Imports the class of the serving functions."""
        return import_object(self.serving)


def import_object(location: str) -> Any:
    """Imports "package.module.name"."""
    module, _, name = location.rpartition(".")
    return getattr(importlib.import_module(module), name)


def recorded_labels(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the names of the labels, or their numbers, as an option of serving classes."""
    numbers = tuple(map(str, range(checkpoint.num_labels)))
    return {"labels": checkpoint.labels or numbers}
