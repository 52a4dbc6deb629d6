"""Lets `keras.models.load_model` find this package's classes after `import bert_tf`.

Keras loads registered classes, and for safety imports no module that a file names. Registering the
classes themselves at `import bert_tf` would load TensorFlow, which takes seconds; so only their
locations are registered, as soon as Keras is loaded.
"""

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from bert_tf.system.around_import import around_import

CLASSES = {
    "network.attention": "SelfAttention",
    "network.blocks": "PostNormBlock PreNormBlock",
    "network.disentangled": "RelativeEmbeddings",
    "network.dropout": "Dropout",
    "pretraining.objectives.electra": "ElectraDiscriminator ElectraPretrainer",
    "network.embeddings": "BertEmbeddings",
    "tasks.embedding.contrastive_model": "InBatchAccuracy",
    "tasks.embedding.late_interaction_model": "BertLateInteraction",
    "tasks.embedding.model": "BertEmbedder",
    "network.encoder": "BertEncoder Pooler",
    "network.heads": "DiscriminatorHead HeadTransform LabelHead MaskedLMHead",
    "tasks.question_answering.joint_head": "AnswerableHead JointSpanHead",
    "network.layer_norm": "LayerNorm",
    "pretraining.masked_words.model": "BertPretrainer",
    "tasks.classification.model": "BertClassifier",
    "tasks.multiple_choice.model": "BertMultipleChoice",
    "tasks.question_answering.joint_model": "BertJointSpanLabeler",
    "tasks.question_answering.model": "BertSpanLabeler",
    "tasks.tagging.model": "BertTokenClassifier",
    "tasks.base.models.graph_labels": "LabelAccuracy",
    "tasks.base.models.preprocessor": "BertPreprocessor",
    "tasks.embedding.splade_model": "BertSplade",
    "tasks.reranking.model": "BertReranker",
    "training.optimizers": "AdamW AdamWeightDecay LAMB Muon",
    "training.schedules": (
        "LinearWarmupCosineDecay LinearWarmupLinearDecay LinearWarmupPolynomialDecay "
        "LinearWarmupTrapezoid"
    ),
}


class Located:
    """Placeholder of a class in Keras' registry until its module is imported and registers it."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Imports the class and makes an object of it."""
        return getattr(importlib.import_module(self.module), self.name).from_config(config)


def register(keras: Any) -> None:
    """Registers the location of each class with Keras."""
    known = keras.saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names.split():
            # A module that is loaded already has registered the class itself.
            known.setdefault(f"bert_tf>{name}", Located(f"bert_tf.{module}", name))


@contextlib.contextmanager
def _registered_after(keras: types.ModuleType) -> Iterator[None]:
    yield
    register(keras)


def register_when_imported() -> None:
    """Registers the classes now or, without loading Keras, when another module has loaded it."""
    if "keras" in sys.modules:
        register(sys.modules["keras"])
    else:
        around_import("keras", _registered_after)
