"""Writes models of late interaction in the three dialects that `late_interaction` reads.

A dialect cannot hold everything: `formats.write_checkpoint` reads the folder back and compares.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import HEAD, EmbeddingConfig
from bert_tf.checkpoints.huggingface_writing import family_and_heads, write_huggingface
from bert_tf.checkpoints.late_interaction import (
    LINEAR,
    METADATA,
    MULTI_VECTOR,
    POOLING,
    PYLATE,
    STANFORD,
)
from bert_tf.checkpoints.sentence_modules import (
    PYLATE_DENSE,
    SIZES,
    TOKENS,
    list_modules,
    write_layer,
)
from bert_tf.checkpoints.token_vectors import SIDES, TokenVectors
from bert_tf.config.pooled_layers import DenseStep, NormStep, layer_name
from bert_tf.system.files import read_json, write_json

NAMES = {"module_input_name": TOKENS, "module_output_name": TOKENS}
LIBRARY = "sentence_transformers"
CONFIG = "config_sentence_transformers.json"
# Locations of the modules in sentence-transformers 6, which has no shorter ones.
TYPES = {
    "Transformer": f"{LIBRARY}.base.modules.transformer.Transformer",
    "Dense": f"{LIBRARY}.base.modules.dense.Dense",
    "Normalize": f"{LIBRARY}.base.modules.normalize.Normalize",
    "MultiVectorMask": f"{LIBRARY}.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    POOLING: f"{LIBRARY}.multi_vector_encoder.modules.token_pooling.{POOLING}",
}


def write_multi_vector(checkpoint: Checkpoint, encoder: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of sentence-transformers 6; `encoder` is the model without its layers."""
    embedding, tokens = settings_of(checkpoint)
    write_huggingface(encoder, folder)
    modules = [("Transformer", "")]

    def add(kind: str, values: dict[str, Any] | None = None) -> pathlib.Path:
        modules.append((kind, f"{len(modules)}_{kind}"))
        inner = folder / modules[-1][1]
        inner.mkdir()
        if values is not None:
            write_json(inner / "config.json", values)
        return inner

    for index, step in enumerate(embedding.dense):
        start = f"{HEAD}{layer_name(index, step)}/"
        if isinstance(step, DenseStep):
            write_layer(add("Dense"), step, checkpoint.weights, start, NAMES)
        else:
            add("Normalize", NAMES)
    mask = {"skiplist_words": tokens.skiplist, "skiplist_tasks": tokens.skiplist_sides}
    add("MultiVectorMask", {**mask, "keep_only_token_ids": tokens.kept_token_ids or None})
    if embedding.normalize:
        add("Normalize", NAMES)
    if tokens.pool_factor != 1:
        pooling = {
            "pool_factor": tokens.pool_factor,
            "num_protected_tokens": tokens.protected_tokens,
            "normalize_embeddings": tokens.pool_normalizes,
            "tasks": tokens.pool_sides,
        }
        add(POOLING, pooling)
    list_modules(folder, [(TYPES[kind], path) for kind, path in modules])
    write_json(folder / SIZES, _sizes(embedding, tokens))
    write_json(folder / CONFIG, _configuration(embedding, MULTI_VECTOR))


def _sizes(embedding: EmbeddingConfig, tokens: TokenVectors) -> dict[str, Any]:
    """Returns the settings of the Transformer."""
    is_fixed = tokens.query_length == tokens.expansion_length
    expansion = {
        "strategy": "fixed" if is_fixed else "min",
        "attend": tokens.attends,
        "token": tokens.expansion_token or None,
        "length": tokens.expansion_length,
    }
    return {
        "transformer_task": "feature-extraction",
        "modality_config": {
            "text": {"method": "forward", "method_output_name": "last_hidden_state"}
        },
        "module_output_name": TOKENS,
        "do_lower_case": embedding.lower_case_texts,
        "document_length": embedding.max_seq_length,
        "query_length": None if is_fixed else tokens.query_length,
        "query_expansion": expansion if tokens.expansion_length else None,
    }


def _configuration(embedding: EmbeddingConfig, model_type: str) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "prompts": embedding.prompts,
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
    }


def write_pylate(checkpoint: Checkpoint, encoder: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of PyLate, up to 1.6."""
    embedding, tokens = settings_of(checkpoint)
    prefixes = _prefixes(checkpoint, "pylate")
    write_huggingface(encoder, folder)
    modules = [(f"{LIBRARY}.models.Transformer", "")]
    for index, step in enumerate(embedding.dense):
        if isinstance(step, NormStep):
            raise ValueError(
                f"{checkpoint.source} has a norm between its dense layers; PyLate has none."
            )
        modules.append((PYLATE_DENSE, f"{index + 1}_Dense"))
        inner = folder / modules[-1][1]
        inner.mkdir()
        write_layer(inner, step, checkpoint.weights, f"{HEAD}{layer_name(index, step)}/")
    list_modules(folder, modules)
    # PyLate puts the prefix into a row that was cut to one token less.
    length = embedding.max_seq_length - 1
    sizes = {"max_seq_length": length, "do_lower_case": embedding.lower_case_texts}
    write_json(folder / SIZES, sizes)
    values = {
        **_configuration(embedding, PYLATE),
        "prompts": {},
        "similarity_fn_name": "MaxSim",
        **{f"{side}_prefix": prefix for side, prefix in prefixes.items()},
        "query_length": tokens.query_length,
        "document_length": embedding.max_seq_length,
        "attend_to_expansion_tokens": tokens.attends,
        "do_query_expansion": bool(tokens.expansion_length),
        "skiplist_words": tokens.skiplist,
    }
    write_json(folder / CONFIG, values)


def write_stanford(checkpoint: Checkpoint, encoder: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of the class HF_ColBERT."""
    embedding, tokens = settings_of(checkpoint)
    prefixes = _prefixes(checkpoint, "stanford")
    kernel_name = f"{HEAD}dense_0/kernel"
    if [name for name in checkpoint.weights if name.startswith(HEAD)] != [kernel_name]:
        raise ValueError(
            f"{checkpoint.source}: stanford has one linear layer without a bias, but the model has "
            f"{embedding.dense}."
        )
    write_huggingface(encoder, folder)
    file = folder / "model.safetensors"
    prefix = family_and_heads(encoder)[0].prefix
    weights = {}
    for name, value in safetensors.numpy.load_file(file).items():
        weights[name if name.startswith(prefix) else prefix + name] = value
    weights[LINEAR] = np.ascontiguousarray(
        checkpoint.weights[kernel_name].T
    )  # [in, out] -> [out, in]
    safetensors.numpy.save_file(weights, file, metadata={"format": "pt"})
    config = folder / "config.json"
    write_json(config, {**read_json(config), "architectures": [STANFORD]})
    metadata = {
        "query_token_id": prefixes["query"].rstrip(),
        "doc_token_id": prefixes["document"].rstrip(),
        "query_maxlen": tokens.query_length,
        "doc_maxlen": embedding.max_seq_length,
        "attend_to_mask_tokens": tokens.attends,
        "mask_punctuation": bool(tokens.skiplist),
        "dim": len(weights[LINEAR]),
        "similarity": "cosine",
    }
    write_json(folder / METADATA, metadata)


Writer = Callable[[Checkpoint, Checkpoint, pathlib.Path], None]
COLBERT_WRITERS: dict[str, Writer] = {"pylate": write_pylate, "stanford": write_stanford}


def settings_of(checkpoint: Checkpoint) -> tuple[EmbeddingConfig, TokenVectors]:
    """Returns the settings of a model; ValueError if it is not one of late interaction."""
    embedding = checkpoint.embedding
    if embedding is None or embedding.tokens is None:
        raise ValueError(f"{checkpoint.source} is no model of late interaction (ColBERT).")
    return embedding, embedding.tokens


def _prefixes(checkpoint: Checkpoint, form: str) -> dict[str, str]:
    """Returns the prompt of each side, which must be one token, with or without its space."""
    embedding, _ = settings_of(checkpoint)
    ids = checkpoint.vocab.ids if checkpoint.vocab else {}
    prefixes = {side: embedding.side_prompt(side) for side in SIDES}
    for side, prefix in prefixes.items():
        # Stanford's library puts the space after the token, and must have one.
        is_known = prefix.rstrip() in ids or (form == "pylate" and prefix in ("", *ids))
        if not is_known:
            raise ValueError(
                f"{checkpoint.source}: the prompt of a {side} is {prefix!r}, but {form} has one "
                "token of the vocabulary; write the model for sentence_transformers."
            )
    return prefixes
