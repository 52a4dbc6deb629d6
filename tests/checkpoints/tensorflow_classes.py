"""Writes tiny models of transformers' TensorFlow classes, and the same weights as PyTorch's.

    TF_USE_LEGACY_KERAS=1 python -m tests.checkpoints.tensorflow_classes FOLDER

Needs transformers 4.57, torch, TensorFlow and tf-keras. Of each model there are three folders:
`tensorflow` (safetensors), `h5` and `pytorch`, whose weights transformers itself translated. The
models mpnet_cls, deberta_cls and xlnet_cls of `tests/golden/families/tensorflow_names` were written
by this program.
"""

import pathlib
import sys
from typing import Any

import numpy as np
import transformers
from transformers.modeling_tf_pytorch_utils import load_tf2_model_in_pytorch_model

SIZES = {
    "vocab_size": 13,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 12,
}
DEBERTA = {
    **SIZES,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "pooler_hidden_size": 4,
}
XLNET = {"vocab_size": 13, "d_model": 4, "n_layer": 2, "n_head": 2, "d_inner": 6}
# By name: the class of PyTorch, and fields of the configuration.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mpnet_mlm": ("MPNetForMaskedLM", SIZES),
    "mpnet_cls": ("MPNetForSequenceClassification", SIZES),
    "mpnet_qa": ("MPNetForQuestionAnswering", SIZES),
    "mpnet_model": ("MPNetModel", SIZES),
    "deberta_mlm": ("DebertaV2ForMaskedLM", DEBERTA),
    "deberta_cls": ("DebertaV2ForSequenceClassification", {**DEBERTA, "num_labels": 3}),
    "deberta_tags": ("DebertaV2ForTokenClassification", DEBERTA),
    "xlnet_lm": ("XLNetLMHeadModel", XLNET),
    "xlnet_cls": ("XLNetForSequenceClassification", XLNET),
    "xlnet_qa": ("XLNetForQuestionAnsweringSimple", XLNET),
}
IDS = np.array([[6, 7, 8, 9, 10, 3], [11, 12, 8, 1, 1, 1]], np.int32)


def write_model(folder: pathlib.Path, class_name: str, fields: dict[str, Any]) -> None:
    """Writes the three forms of a model whose weights are all random."""
    tensorflow_class = getattr(transformers, f"TF{class_name}")
    config = tensorflow_class.config_class(**fields)
    model = tensorflow_class(config)
    model({"input_ids": IDS, "attention_mask": np.ones_like(IDS)})  # Makes the weights.
    random = np.random.RandomState(3)
    for variable in model.weights:
        variable.assign(random.normal(0, 0.2, variable.shape))
    model.save_pretrained(folder / "tensorflow", safe_serialization=True)
    model.save_pretrained(folder / "h5", safe_serialization=False)
    twin = getattr(transformers, class_name)(config)
    load_tf2_model_in_pytorch_model(twin, model)
    twin.save_pretrained(folder / "pytorch")


def main() -> None:
    for name, (class_name, fields) in MODELS.items():
        write_model(pathlib.Path(sys.argv[1], name), class_name, fields)


if __name__ == "__main__":
    main()
