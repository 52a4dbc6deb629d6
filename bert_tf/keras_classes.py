"""Lets `keras.models.load_model` find the classes of this package after `import bert_tf` alone.

Keras loads classes that were registered with it, and for safety imports no module that a file
names. Registering the classes themselves at `import bert_tf` would load TensorFlow, which takes
seconds; so what is registered is where they are, as soon as Keras is there.
"""

import importlib
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

CLASSES = {
    "modeling.attention": "SelfAttention",
    "modeling.dropout": "Dropout",
    "modeling.embeddings": "BertEmbeddings",
    "modeling.encoder": "BertEncoder EncoderLayer Pooler ResidualOutput",
    "modeling.heads": "LabelHead MaskedLMHead",
    "modeling.layer_norm": "LayerNorm",
    "modeling.models": "BertClassifier BertPretrainer BertSpanLabeler BertTokenClassifier",
    "modeling.multiple_choice": "BertMultipleChoice",
    "modeling.preprocessor": "BertPreprocessor",
    "optimization.optimizers": "AdamW AdamWeightDecay LAMB",
    "optimization.schedules": (
        "LinearWarmupCosineDecay LinearWarmupLinearDecay LinearWarmupPolynomialDecay "
        "LinearWarmupTrapezoid"
    ),
}


class Located:
    """Stands in Keras' list for a class until its module is imported, whose own entry replaces it.

    Args:
      module: with the class.
      name: of the class.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Imports the class and makes an object of it."""
        return getattr(importlib.import_module(self.module), self.name).from_config(config)


def register(keras: Any) -> None:
    """Tells Keras where the classes are."""
    known = keras.saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names.split():
            known.setdefault(f"bert_tf>{name}", Located(f"bert_tf.{module}", name))


class _AtImportOfKeras(importlib.abc.MetaPathFinder):
    """Registers right after Keras was imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_register(module: types.ModuleType) -> None:
                execute(module)
                register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_when_imported() -> None:
    """Registers the classes now or, without loading Keras, when somebody else has loaded it."""
    if "keras" in sys.modules:
        register(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, _AtImportOfKeras())
