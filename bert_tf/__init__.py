"""bert_tf: BERT for TensorFlow, from raw text to a trained model.

    model = bert_tf.BertClassifier.from_pretrained(
        "hf://google-bert/bert-base-uncased", labels=["bad", "good"]
    )
    model.fit(texts, labels, epochs=3)
    model.classify(["A fine film."])

    bert_tf.load("runs/mine").classify(["A fine film."])

The names in `__all__` are imported when they are first used, because TensorFlow takes seconds to
load. After `import bert_tf`, `keras.models.load_model` can load saved models of this package.
"""

import importlib
import os
import sys
import typing

from bert_tf.network.keras_classes import CLASSES, register_when_imported
from bert_tf.system.startup_lines import has_gpu, hide_startup_lines

# Keras reads its backend once, when it is first imported; data, training and export are TensorFlow.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's start-up lines hide the program's own; errors are still shown, and warnings where
# there is a GPU: they say why it is not used.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if has_gpu() else "2")
hide_startup_lines()
register_when_imported()

__version__ = "0.1.0"

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.load_tokenizer import load_tokenizer
    from bert_tf.config import ModelConfig, OptimizerConfig
    from bert_tf.inference.loading import load
    from bert_tf.network.encoder import BertEncoder
    from bert_tf.pretraining.masked_words.model import BertPretrainer
    from bert_tf.pretraining.objectives.electra import ElectraDiscriminator, ElectraPretrainer
    from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
    from bert_tf.tasks.classification.model import BertClassifier
    from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction
    from bert_tf.tasks.embedding.model import BertEmbedder
    from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
    from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
    from bert_tf.tasks.question_answering.model import BertSpanLabeler
    from bert_tf.tasks.reranking.model import BertReranker
    from bert_tf.tasks.tagging.model import BertTokenClassifier
    from bert_tf.text.bpe_vocab import BpeVocab
    from bert_tf.text.byte_bpe import ByteBpe
    from bert_tf.text.sentencepiece import SentencePiece
    from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
    from bert_tf.text.text_tokenizer import TextTokenizer
    from bert_tf.text.vocab import Vocab
    from bert_tf.text.wordpiece import WordPiece
    from bert_tf.training.optimizers import LAMB, AdamW, AdamWeightDecay, Muon
    from bert_tf.training.schedules import (
        LinearWarmupCosineDecay,
        LinearWarmupLinearDecay,
        LinearWarmupPolynomialDecay,
        LinearWarmupTrapezoid,
    )

__all__ = [
    "AdamW",
    "AdamWeightDecay",
    "BertClassifier",
    "BertEmbedder",
    "BertEncoder",
    "BertJointSpanLabeler",
    "BertLateInteraction",
    "BertMultipleChoice",
    "BertPreprocessor",
    "BertPretrainer",
    "BertReranker",
    "BertSpanLabeler",
    "BertTokenClassifier",
    "BpeVocab",
    "ByteBpe",
    "ElectraDiscriminator",
    "ElectraPretrainer",
    "LAMB",
    "LinearWarmupCosineDecay",
    "LinearWarmupLinearDecay",
    "LinearWarmupPolynomialDecay",
    "LinearWarmupTrapezoid",
    "ModelConfig",
    "Muon",
    "OptimizerConfig",
    "SentencePiece",
    "SentencePieceVocab",
    "TextTokenizer",
    "Vocab",
    "WordPiece",
    "load",
    "load_tokenizer",
]
# Where each is: the module, below bert_tf, and its names; `CLASSES` has those that Keras registers.
_MODULES = {
    **CLASSES,
    "checkpoints.load_tokenizer": "load_tokenizer",
    "config": "ModelConfig OptimizerConfig",
    "inference.loading": "load",
    "text.bpe_vocab": "BpeVocab",
    "text.sentencepiece": "SentencePiece",
    "text.sentencepiece_vocab": "SentencePieceVocab",
    "text.byte_bpe": "ByteBpe",
    "text.text_tokenizer": "TextTokenizer",
    "text.vocab": "Vocab",
    "text.wordpiece": "WordPiece",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> typing.Any:
    if name not in __all__:
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])  # It names what is near.
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
