"""bert_tf: BERT for TensorFlow, from raw text to a trained model.

    tokenizer = bert_tf.load_tokenizer("bert-base-uncased")
    model = bert_tf.BertClassifier.from_pretrained("bert-base-uncased", may_miss=["cls/"])

What is in `__all__` is imported when it is first used: TensorFlow takes seconds to load.
After `import bert_tf` `keras.models.load_model` loads what was saved of its models.
"""

import importlib
import os
import typing

from bert_tf.keras_classes import register_when_imported
from bert_tf.startup_lines import has_gpu

# Keras reads its backend once, when it is first imported; data, training and export are TensorFlow.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's start-up lines hide the program's own; errors are still shown, and warnings where
# there is a GPU: they say why it is not used.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if has_gpu() else "2")
register_when_imported()

__version__ = "0.1.0"

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.load_tokenizer import load_tokenizer
    from bert_tf.modeling.embedder import BertEmbedder
    from bert_tf.modeling.encoder import BertEncoder
    from bert_tf.modeling.models import (
        BertClassifier,
        BertPretrainer,
        BertSpanLabeler,
        BertTokenClassifier,
    )
    from bert_tf.modeling.multiple_choice import BertMultipleChoice

__all__ = [
    "BertClassifier",
    "BertEmbedder",
    "BertEncoder",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertSpanLabeler",
    "BertTokenClassifier",
    "load_tokenizer",
]
_MODULES = {
    "load_tokenizer": "checkpoints.load_tokenizer",
    "BertEmbedder": "modeling.embedder",
    "BertEncoder": "modeling.encoder",
    "BertMultipleChoice": "modeling.multiple_choice",
}


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'modeling.models')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
