"""What `import bert_tf` alone lets Keras load, and what it does not load itself."""

import importlib
import json
import pathlib
import pkgutil
import subprocess
import sys

import keras
import pytest

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.network.attention import SelfAttention
from bert_tf.network.blocks import PostNormBlock, PreNormBlock
from bert_tf.network.dropout import Dropout
from bert_tf.network.embeddings import BertEmbeddings
from bert_tf.network.encoder import Pooler
from bert_tf.network.heads import LabelHead, MaskedLMHead
from bert_tf.network.keras_classes import CLASSES, Located, register
from bert_tf.network.layer_norm import LayerNorm
from bert_tf.training.optimizers import AdamW, build_optimizer

SMALL = ModelConfig(vocab_size=9, hidden_size=4, num_attention_heads=2, layer_norm_eps=1e-6)
PACKAGES = ("network", "training", "tasks", "pretraining")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_class_is_listed():
    for name in PACKAGES:
        package = importlib.import_module(f"bert_tf.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    known = keras.saving.get_custom_objects()
    classes = {name: cls for name, cls in known.items() if name.startswith("bert_tf>")}
    listed = {f"bert_tf>{name}" for names in CLASSES.values() for name in names.split()}
    assert set(classes) == listed
    # The classes themselves have taken the places of what stood for them.
    assert not [name for name, cls in classes.items() if isinstance(cls, Located)]


def test_what_stands_for_a_class_makes_its_objects(monkeypatch):
    known = keras.saving.get_custom_objects()
    for name in [name for name in known if name.startswith("bert_tf>")]:
        monkeypatch.delitem(known, name)
    register(keras)
    assert isinstance(known["bert_tf>AdamW"], Located)
    optimizer = build_optimizer(OptimizerConfig("adamw", learning_rate=0.5))
    made = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(made) is AdamW and made.get_config() == optimizer.get_config()


@pytest.mark.parametrize(
    "layer",
    [
        BertEmbeddings(SMALL),
        Dropout(0.1, 3),
        LabelHead(2, 4, 0.02, dtype="float16"),
        LayerNorm(epsilon=1e-6),
        MaskedLMHead(SMALL, name="pieces"),
        Pooler(0.02, "relu"),
        PostNormBlock(SMALL, 3),
        PreNormBlock(SMALL, 2),
        SelfAttention(2, 0.1, 3, 0.02),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_are_made_again_from_what_is_saved_of_them(layer):
    config = keras.layers.serialize(layer)
    again = keras.layers.deserialize(json.loads(json.dumps(config)))
    assert type(again) is type(layer) and again.dtype_policy == layer.dtype_policy
    assert keras.layers.serialize(again) == config


# Keras in the shortest form: its list of classes, which is there when the module has run.
STAND_IN = """
import types
known = {}
saving = types.SimpleNamespace(get_custom_objects=lambda: known)
"""
LISTED = "assert 'bert_tf>BertClassifier' in keras.saving.get_custom_objects()"


def test_keras_may_be_imported_before_or_after(tmp_path):
    (tmp_path / "keras.py").write_text(STAND_IN)
    loaded = "import sys, bert_tf\nassert not {'keras', 'tensorflow', 'numpy'} & set(sys.modules)"
    for first, second in ((loaded, "import keras"), ("import keras", "import bert_tf")):
        subprocess.run(
            [sys.executable, "-c", f"{first}\n{second}\n{LISTED}"],
            env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
            check=True,
        )


@pytest.mark.slow
def test_a_look_for_keras_does_not_undo_the_registration():
    # transformers asks whether there is a Keras before anybody imports it.
    code = (
        "import bert_tf, importlib.util, sys; importlib.util.find_spec('keras'); import keras; "
        "sys.exit('bert_tf>BertSplade' not in keras.saving.get_custom_objects())"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
