"""Writes the modules of a sentence-transformers folder, which `sentence_modules` reads."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import Weights
from bert_tf.checkpoints.embedding import HEAD, EmbeddingConfig
from bert_tf.checkpoints.sentence_modules import ACTIVATIONS, CONFIG, MODULES, OLD_TYPES
from bert_tf.config.pooled_layers import DenseStep, Step, layer_name
from bert_tf.system.files import write_json

Settings = Mapping[str, dict[str, Any]]
NONE: Settings = {}


def write_layer(
    folder: pathlib.Path,
    step: Step,
    weights: Weights,
    start: str,
    names: Mapping[str, str] | None = None,
) -> None:
    """Writes a Dense or a LayerNorm whose weights' names begin with `start`.

    `names` are the names of a Dense's input and output, if they are not those of sentences.
    """
    if isinstance(step, DenseStep):
        activations = {name: path for path, name in ACTIVATIONS.items()}
        config: dict[str, Any] = {
            "in_features": step.in_features,
            "out_features": step.out_features,
            "bias": step.use_bias,
            "activation_function": activations[step.activation],
            **(names or {}),
        }
        if step.residual:
            config["use_residual"] = True
        file_weights = {"linear.weight": np.ascontiguousarray(weights[f"{start}kernel"].T)}
        if step.use_bias:
            file_weights["linear.bias"] = weights[f"{start}bias"]
        if step.has_residual_kernel:
            kernel = weights[f"{start}residual/kernel"]
            file_weights["residual.weight"] = np.ascontiguousarray(kernel.T)
    else:
        config = {"dimension": step.size}
        file_weights = {
            "norm.weight": weights[f"{start}gamma"],
            "norm.bias": weights[f"{start}beta"],
        }
    write_json(folder / "config.json", config)
    safetensors.numpy.save_file(
        file_weights, folder / "model.safetensors", metadata={"format": "pt"}
    )


def write_layers(
    folder: pathlib.Path,
    steps: Sequence[Step],
    weights: Weights,
    start: str = HEAD,
    *,
    first: tuple[str, str] = ("Transformer", ""),
    before: Settings = NONE,
    after: Settings = NONE,
    names: Mapping[str, str] | None = None,
    last_names: Mapping[str, str] | None = None,
    types: Mapping[str, str] = OLD_TYPES,
) -> None:
    """Writes modules.json, and the folders of the modules after the first one.

    Args:
      folder: the folder of the model.
      weights: their weights, whose names begin with `start`.
      first: kind and folder of the first module.
      before, after: the settings of modules before and after the layers, by their kind.
      names: the names of a layer's input and output, if they are not those of sentences.
      last_names: those of the last layer, if they are others.
      types: the type of each kind of module.

    Raises:
      ValueError: if a layer is of a kind that has no type.
    """
    modules = [first]

    def add(kind: str) -> pathlib.Path:
        modules.append((kind, f"{len(modules)}_{kind}"))
        inner = folder / modules[-1][1]
        inner.mkdir()
        return inner

    for kind, values in before.items():
        write_json(add(kind) / "config.json", values)
    for index, step in enumerate(steps):
        is_last = index == len(steps) - 1
        layer_names = last_names if is_last and last_names else names
        if isinstance(step, DenseStep) or step.norm == "layer_norm":
            inner = add("Dense" if isinstance(step, DenseStep) else "LayerNorm")
            write_layer(inner, step, weights, f"{start}{layer_name(index, step)}/", layer_names)
        else:
            inner = add("Normalize")
            if layer_names:
                write_json(inner / "config.json", layer_names)
    for kind, values in after.items():
        write_json(add(kind) / "config.json", values)
    listed = []
    for index, (kind, path) in enumerate(modules):
        if kind not in types:
            raise ValueError(
                f"The model has a layer {kind}, but models of this form are made of "
                f"{', '.join(types)} alone; write it for sentence_transformers."
            )
        listed.append({"idx": index, "name": str(index), "path": path, "type": types[kind]})
    write_json(folder / MODULES, listed)


def write_model_settings(
    folder: pathlib.Path,
    embedding: EmbeddingConfig,
    model_type: str = "SentenceTransformer",
    **others: object,
) -> None:
    """Writes config_sentence_transformers.json; `others` are further settings, or replace some."""
    values = {
        "model_type": model_type,
        "prompts": embedding.prompts,
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
        **others,
    }
    write_json(folder / CONFIG, values)
