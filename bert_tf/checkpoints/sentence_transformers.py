"""sentence-transformers folders: an encoder and modules that make embeddings or scores.

    modules.json                        the modules in order, each with a type and a path
    config.json  model.safetensors ..   the Transformer, a Hugging Face folder (or in 0_Transformer)
    sentence_bert_config.json           max_seq_length, do_lower_case
    config_sentence_transformers.json   model_type, prompts, similarity, activation
    1_Pooling/config.json               pooling, as one name or as switches
    2_Dense/config.json, model.safetensors    sizes, activation; linear.weight [out, in]
    3_LayerNorm/config.json, model.safetensors    size; norm.weight, norm.bias
    2_Normalize/                        nothing, or an empty configuration

A cross-encoder is the Transformer with its own head, or ends with a Dense that makes the scores.
Releases from 5.7 on have new type names and also read the old ones; we write the old ones, which
all releases read. The weights of pre-training heads are left out. The modules themselves are read
by `sentence_modules`.
"""

import dataclasses
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints import huggingface_writing
from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint, Weights
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.families.family import expect
from bert_tf.checkpoints.huggingface import read_huggingface, stated_labels
from bert_tf.checkpoints.late_interaction import (
    MULTI_VECTOR,
    PYLATE,
    PYLATE_SETTINGS,
    read_multi_vector,
    write_multi_vector,
)
from bert_tf.checkpoints.sentence_module_writing import write_layers, write_model_settings
from bert_tf.checkpoints.sentence_modules import (
    CONFIG,
    FEATURES,
    MODULES,
    OF_SIDES,
    SIZES,
    SWITCHES,
    Module,
    is_sentence_transformers,
    lowers_texts,
    read_layer_settings,
    read_layers,
    read_modules,
    read_pooling,
    transformer_length,
    with_embedding,
)
from bert_tf.config.model import NORMALIZED
from bert_tf.config.pooled_layers import DenseStep, Step, layer_name, steps_as_text
from bert_tf.system.files import json_field, read_json, read_optional_json, write_json

CROSS_ENCODER = "CrossEncoder"
SPARSE_ENCODER = "SparseEncoder"
SCORES = HEADS["classifier"]
SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"
SCORE_NAMES = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
PAIRS = {"pair": "true"}
MODEL_KEYS = (
    *("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name"),
    *("activation_fn", "keep_in_fp32_modules"),
)


def read_sentence_transformers(path: pathlib.Path) -> Checkpoint:
    """Reads a folder.

    Raises:
      ValueError: if it has modules or settings that are not computed here, or its files contradict
        each other.
    """
    modules = read_modules(path)
    # Embeddings equal sentence-transformers' only if special tokens written in a text do too.
    checkpoint = read_huggingface(modules[0].folder, as_transformers=True)
    checkpoint = dataclasses.replace(checkpoint, source=str(path))
    values = read_model_settings(path)
    model_type = values.get("model_type")
    if model_type in (PYLATE, MULTI_VECTOR):
        return read_multi_vector(path, checkpoint, modules, values)
    expect(modules[0].values, modules[0].file, nullable=True, **dict.fromkeys(OF_SIDES))
    if model_type == CROSS_ENCODER:
        return _read_cross_encoder(path, checkpoint, modules, values)
    types = [module.kind for module in modules]
    if model_type == SPARSE_ENCODER or "SpladePooling" in types:
        _check_order(path, types, types[1:] == ["SpladePooling"], "a SpladePooling")
        sides = ("query", "document", "passage", "corpus")
        _check_inputs(path, checkpoint, modules[0], values, "sparse encoders", sides)
        return checkpoint
    expect(values, path / CONFIG, nullable=True, model_type="SentenceTransformer")
    layers = types[2:]
    _check_order(
        path,
        types,
        types[:2] == ["Transformer", "Pooling"] and not {*TYPES_BEFORE} & set(layers),
        "Pooling, any number of Dense, LayerNorm and Normalize",
    )
    return _read_embedder(path, checkpoint, modules, values)


def read_model_settings(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of config_sentence_transformers.json; ValueError for unknown settings."""
    values = read_optional_json(path / CONFIG)
    known = (*MODEL_KEYS, *(PYLATE_SETTINGS if values.get("model_type") == PYLATE else ()))
    unknown = [key for key in values if key not in known and values[key] not in (None, {})]
    if unknown:
        raise ValueError(
            f"{path / CONFIG}: bert_tf does not know the setting {unknown[0]!r} "
            f"({values[unknown[0]]!r:.80}), only {', '.join(known)}."
        )
    return values


# Types that come before the layers, once.
TYPES_BEFORE = ("Transformer", "MLMTransformer", "Pooling", "SpladePooling")


def _check_order(path: pathlib.Path, types: list[str], is_right: bool, expected: str) -> None:
    """Raises ValueError unless the modules of a folder have the expected types."""
    if not is_right:
        raise ValueError(
            f"{path / MODULES} lists {types}; expected Transformer, {expected}, in this order."
        )


def _read_embedder(
    path: pathlib.Path, checkpoint: Checkpoint, modules: list[Module], values: dict[str, Any]
) -> Checkpoint:
    """Returns the checkpoint of an encoder with the layers of its embeddings."""
    hidden_size = checkpoint.config.hidden_size
    pooling, include_prompt = read_pooling(modules[1], hidden_size)
    width = len(pooling) * hidden_size
    fields, weights = read_layer_settings(path, modules[2:], width, values)
    embedding = EmbeddingConfig(
        pooling=pooling,
        max_seq_length=_max_seq_length(modules[0], checkpoint.config.longest_row),
        include_prompt=include_prompt,
        lower_case_texts=lowers_texts(modules[0]),
        **fields,
    )
    return with_embedding(checkpoint, embedding, weights, str(path))


def _read_cross_encoder(
    path: pathlib.Path, checkpoint: Checkpoint, modules: list[Module], values: dict[str, Any]
) -> Checkpoint:
    """Returns the checkpoint of an encoder with the head that scores pairs."""
    _check_inputs(path, checkpoint, modules[0], values, "rerankers")
    # The library packs pairs for every number of labels; a reranker's are pairs anyway.
    settings = {**checkpoint.settings, **PAIRS}
    length = transformer_length(modules[0])
    if length is not None and length < checkpoint.config.longest_row:
        settings["max_seq_length"] = str(length)
    checkpoint = dataclasses.replace(checkpoint, settings=settings)
    types = [module.kind for module in modules]
    if types == ["Transformer"]:
        return _with_activation(checkpoint, values)
    is_right = types[1:2] == ["Pooling"] and types[-1] == "Dense"
    is_right = is_right and not {*TYPES_BEFORE} & set(types[2:])
    _check_order(
        path, types, is_right, "Pooling, any number of Dense, LayerNorm and Normalize, a Dense"
    )
    hidden_size = checkpoint.config.hidden_size
    pooling, _ = read_pooling(modules[1], hidden_size)
    width = len(pooling) * hidden_size
    steps, weights = read_layers(modules[2:], width, SCORES, scores=True)
    steps, weights = _with_scores(steps, weights)
    try:
        config = dataclasses.replace(
            checkpoint.config,
            head_transform=False,
            classifier_pooling="+".join(pooling),
            classifier_layers=steps_as_text(steps),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    num_labels = len(weights[f"{SCORES}output_weights"])
    transformer = modules[0].folder / "config.json"
    labels = stated_labels(read_json(transformer), transformer)
    checkpoint = dataclasses.replace(
        checkpoint,
        config=config,
        weights={**checkpoint.weights, **weights},
        labels=labels if len(labels) == num_labels else (),
    )
    return _with_activation(checkpoint, values)


def _with_activation(checkpoint: Checkpoint, values: dict[str, Any]) -> Checkpoint:
    """Returns a cross-encoder with several labels, each by itself, if its scores pass a sigmoid."""
    if values.get("activation_fn") != SIGMOID or checkpoint.num_labels < 2:
        return checkpoint
    return dataclasses.replace(checkpoint, problem_type="multi_label")


def _check_inputs(
    path: pathlib.Path,
    checkpoint: Checkpoint,
    transformer: Module,
    values: dict[str, Any],
    models: str,
    sides: Sequence[str] = (),
) -> None:
    """Raises ValueError for a prompt or a casing that these models of bert_tf cannot apply.

    `sides` are the prompts that the library puts before texts besides the default one.
    """
    prompts = json_field(values, "prompts", dict, path / CONFIG, nullable=True) or {}
    default = json_field(values, "default_prompt_name", str, path / CONFIG, nullable=True)
    for name in (default, *sides):
        if name is not None and prompts.get(name, name == default):
            raise ValueError(
                f"{path / CONFIG}: the prompt {name!r} is put before texts, but bert_tf's {models} "
                "have no prompts. Remove it and default_prompt_name, and write it before each text."
            )
    if lowers_texts(transformer) and not checkpoint.config.do_lower_case:
        raise ValueError(
            f"{transformer.file}: do_lower_case is true, but the vocabulary is cased; bert_tf's "
            f"{models} do not lower-case texts."
        )


def _with_scores(steps: list[Step], weights: Weights) -> tuple[list[Step], Weights]:
    """Returns the layers before the scores, with the last Dense as weights of the head."""
    last = typing.cast(DenseStep, steps[-1])
    weights = dict(weights)
    zeros = np.zeros([last.out_features], np.float32)
    if last.activation != "linear":
        # The activation stays a layer, and the head after it passes its numbers on.
        weights[f"{SCORES}output_weights"] = np.eye(last.out_features, dtype=np.float32)
        weights[f"{SCORES}output_bias"] = zeros
        return steps, weights
    name = f"{SCORES}{layer_name(len(steps) - 1, last)}"
    kernel = weights.pop(f"{name}/kernel")
    weights[f"{SCORES}output_weights"] = np.ascontiguousarray(kernel.T)  # [in, out] -> [out, in]
    weights[f"{SCORES}output_bias"] = weights.pop(f"{name}/bias", zeros)
    return steps[:-1], weights


def splade_length(path: pathlib.Path, longest_row: int) -> int:
    """Returns the maximum text length of a SparseEncoder's folder, or 0 for another folder.

    Another way from scores to weights than that of `splade_model.py` is an error.
    """
    modules = read_modules(path) if is_sentence_transformers(path) else []
    pooling = next((module for module in modules if module.kind == "SpladePooling"), None)
    if pooling is None:
        return 0
    expect(pooling.values, pooling.file, pooling_strategy="max", activation_function="relu")
    return _max_seq_length(modules[0], longest_row)


def _max_seq_length(transformer: Module, longest_row: int) -> int:
    """Returns the maximum length of texts: stated, else the tokenizer's, else the model's."""
    length = transformer_length(transformer)
    return longest_row if length is None else min(length, longest_row)


def write_sentence_transformers(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a model as a sentence-transformers folder, with the types and keys of old releases.

    Raises:
      ValueError: if the model neither says how it embeds nor has a classification head, or no
        family of Hugging Face can hold it.
    """
    embedding = checkpoint.embedding
    if embedding is None and not is_modular(checkpoint):
        raise ValueError(
            f"{checkpoint.source} does not say how it embeds texts: sentence_transformers cannot "
            "hold it. Write it as huggingface, or save a BertEmbedder."
        )
    size = checkpoint.config.hidden_size
    if embedding is not None and embedding.tokens is not None:
        write_multi_vector(checkpoint, folder)
        return
    huggingface_writing.write_huggingface(huggingface_writing.encoder_alone(checkpoint), folder)
    if embedding is not None:
        pooling = _pooling_values(embedding.pooling, size, embedding.include_prompt)
        steps = embedding.steps(size)
        write_layers(folder, steps, checkpoint.weights, before={"Pooling": pooling})
        sizes: dict[str, Any] = {
            "max_seq_length": embedding.max_seq_length,
            "do_lower_case": embedding.lower_case_texts,
        }
        write_model_settings(folder, embedding)
    else:
        write_json(folder / CONFIG, _write_scores(checkpoint, folder))
        sizes = FEATURES
    write_json(folder / SIZES, sizes)


def is_modular(checkpoint: Checkpoint) -> bool:
    """Returns whether only modules of a cross-encoder can hold the classification head."""
    config = checkpoint.config
    pools = config.classifier_pooling != "pooler" and not config.head_transform
    if "classifier" not in checkpoint.heads or not pools or checkpoint.is_multiple_choice:
        return False
    try:
        huggingface_writing.family_and_heads(checkpoint)
    except ValueError:
        return True
    return False


def _write_scores(checkpoint: Checkpoint, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the modules of a cross-encoder; returns its config_sentence_transformers.json."""
    config = checkpoint.config
    poolings = tuple(config.classifier_poolings)
    modules = {"Pooling": _pooling_values(poolings, config.hidden_size, include_prompt=True)}
    if config.classifier_pooling.startswith(NORMALIZED):
        modules["Normalize"] = {}
    last = DenseStep(config.classifier_width, checkpoint.num_labels, activation="linear")
    steps = [*config.classifier_steps, last]
    name = f"{SCORES}{layer_name(len(steps) - 1, last)}"
    weights = dict(checkpoint.weights)
    weights[f"{name}/kernel"] = checkpoint.weights[f"{SCORES}output_weights"].T
    weights[f"{name}/bias"] = checkpoint.weights[f"{SCORES}output_bias"]
    write_layers(folder, steps, weights, SCORES, before=modules, last_names=SCORE_NAMES)
    if checkpoint.labels:
        path = folder / "config.json"
        names = {str(index): label for index, label in enumerate(checkpoint.labels)}
        ids = {label: index for index, label in enumerate(checkpoint.labels)}
        write_json(path, {**read_json(path), "id2label": names, "label2id": ids})
    if checkpoint.num_labels == 1:
        is_sigmoid = checkpoint.settings.get("activation", "sigmoid") == "sigmoid"
    else:
        is_sigmoid = checkpoint.problem_type == "multi_label"
    return {
        "model_type": CROSS_ENCODER,
        "activation_fn": SIGMOID if is_sigmoid else IDENTITY,
        "prompts": {},
        "default_prompt_name": None,
    }


def _pooling_values(poolings: tuple[str, ...], size: int, include_prompt: bool) -> dict[str, Any]:
    # The outputs of several poolings are concatenated in the order of the switches.
    if tuple(name for name in SWITCHES.values() if name in poolings) != poolings:
        raise ValueError(
            f"pooling {list(poolings)}: sentence-transformers' switches know only the "
            f"order {list(SWITCHES.values())}."
        )
    switches = {key: name in poolings for key, name in SWITCHES.items()}
    return {"word_embedding_dimension": size, **switches, "include_prompt": include_prompt}
