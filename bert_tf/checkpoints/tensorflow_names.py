"""Translates the weights of transformers' TensorFlow classes into PyTorch's names and shapes.

    tf_bert_for_pre_training/bert/encoder/layer_._0/output/dense/kernel:0    [inputs, outputs]
    tf_bert_for_pre_training/mlm___cls/predictions/bias:0
    bert/embeddings/word_embeddings/weight:0

The first part, the name of the model, is missing in safetensors files. `_._` separates a list from
its index, and the part before `___` has no counterpart. The kernels of dense layers are transposed.
Reference: transformers 4.57.6, modeling_tf_pytorch_utils.py.
"""

import re

from bert_tf.checkpoints.checkpoint import Weights

END = ":0"
ENDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
TRANSLATED = "The names and shapes of transformers' TensorFlow classes were translated."


def is_tensorflow(names: list[str]) -> bool:
    """True if weights have the names of transformers' TensorFlow classes."""
    return any(name.endswith(END) for name in names)


def rename_tensorflow(file_weights: Weights) -> Weights:
    """Returns the weights under the names and in the shapes of PyTorch's classes."""
    weights: Weights = {}
    for name, value in file_weights.items():
        if name.endswith(f"/kernel{END}") and value.ndim == 2:
            value = value.T
        weights[pytorch_name(name)] = value
    for name in list(weights):
        # ALBERT's TensorFlow class has two biases, and computes with this one.
        if name.endswith("predictions.decoder.bias"):
            weights[name.replace(".decoder.", ".")] = weights.pop(name)
    return weights


def pytorch_name(name: str) -> str:
    """Returns the name in PyTorch's classes; other names stay."""
    if not name.endswith(END):
        return name
    # mlm___cls/predictions/bias -> cls/predictions/bias
    name = re.sub(r"(^|/)[^/]*___", r"\1", name.removesuffix(END))
    parts = name.replace("_._", "/").split("/")
    if parts[0].startswith("tf"):  # tf_bert_model, but tfmp_net_model: capitals stay together.
        del parts[0]
    parts[-1] = ENDS.get(parts[-1], parts[-1])
    return ".".join(parts)
