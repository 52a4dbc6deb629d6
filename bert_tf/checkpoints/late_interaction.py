"""Reads models of late interaction: one vector for each token (ColBERT), in three dialects.

    sentence-transformers 6   modules Transformer, Dense, MultiVectorMask, Normalize; model_type
                              MultiVectorEncoder; query_expansion among the Transformer's settings
    PyLate, up to 1.6         modules Transformer, Dense; model_type ColBERT; query_prefix,
                              document_prefix, query_length, skiplist_words .. beside it
    Stanford                  a Hugging Face folder of the class HF_ColBERT with linear.weight and
                              artifact.metadata

The settings of the last two are those that sentence-transformers 6.2.0 derives from them. Their
prefixes are tokens of the vocabulary, which become special tokens: as a prompt before a text each
is then one token, as in training.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import FILE_NAME, HEAD, EmbeddingConfig
from bert_tf.checkpoints.families.family import architectures
from bert_tf.checkpoints.huggingface import from_names, read_config
from bert_tf.checkpoints.sentence_modules import (
    MODULES,
    TOKENS,
    Module,
    lowers_texts,
    read_layers,
    read_prompts,
    transformer_length,
)
from bert_tf.checkpoints.token_vectors import MAXSIM, PUNCTUATION, QUERY_LENGTH, SIDES, TokenVectors
from bert_tf.checkpoints.weight_files import read_weights
from bert_tf.config.pooled_layers import DenseStep, NormStep
from bert_tf.system.files import json_field, read_json, read_optional_json
from bert_tf.text.kinds import with_special_token

PYLATE = "ColBERT"
MULTI_VECTOR = "MultiVectorEncoder"
STANFORD = "HF_ColBERT"
METADATA = "artifact.metadata"
LINEAR = "linear.weight"
POOLING = "HierarchicalTokenPooling"
MARKERS = ("[unused0]", "[unused1]")
PYLATE_KEYS = (
    *("query_prefix", "document_prefix", "query_length", "document_length", "skiplist_words"),
    *("do_query_expansion", "attend_to_expansion_tokens"),
)
EXPANSION_KEYS = {"strategy": str, "attend": bool, "token": str, "length": int}
Fields = dict[str, Any]


def read_multi_vector(
    path: pathlib.Path, checkpoint: Checkpoint, modules: Sequence[Module], values: Fields
) -> Checkpoint:
    """Returns the checkpoint of a folder with modules, of sentence-transformers or PyLate.

    Args:
      path: the folder.
      checkpoint: its encoder.
      modules: its modules, the Transformer first.
      values: its config_sentence_transformers.json.

    Raises:
      ValueError: if settings contradict each other, or are not computed here.
    """
    is_pylate = values.get("model_type") == PYLATE
    file = path / "config_sentence_transformers.json"
    own = [module for module in modules if module.kind in ("MultiVectorMask", POOLING)]
    layers = [module for module in modules[1:] if module not in own]
    _check_kinds(path, modules, layers, is_pylate)
    hidden_size = checkpoint.config.hidden_size
    steps, weights = read_layers(layers, hidden_size, HEAD, vector=TOKENS)
    normalize = bool(steps) and isinstance(steps[-1], NormStep) and steps[-1].norm == "l2"
    if normalize:
        steps = steps[:-1]
    prompts, default_prompt = read_prompts(values, file)
    if is_pylate:
        normalize = True
        sides = _pylate_sides(values, file)
        checkpoint, prompts = _with_marks(checkpoint, _prefixes(values, file), prompts, str(file))
    else:
        sides = _sides(modules[0], own)
    longest = checkpoint.config.longest_row
    stated = transformer_length(modules[0])
    limit = longest if stated is None else min(stated, longest)
    document_length = min(sides.pop("document_length") or limit, longest)
    embedding = _make_embedding(
        path,
        {**sides, "query_length": min(sides["query_length"] or limit, longest)},
        dense=tuple(steps),
        normalize=normalize,
        max_seq_length=document_length,
        prompts=prompts,
        default_prompt=default_prompt,
        similarity=_similarity(values, file, is_pylate),
        # A tokenizer that lower-cases by itself leaves special tokens as they are.
        lower_case_texts=lowers_texts(modules[0]) and not checkpoint.config.do_lower_case,
    )
    embedding.check(hidden_size, str(path))
    settings = {key: text for key, text in checkpoint.settings.items() if key != "max_seq_length"}
    return dataclasses.replace(
        checkpoint,
        embedding=embedding,
        weights={**checkpoint.weights, **weights},
        # Folders that are Stanford's as well have the projection among the encoder's weights.
        unused=tuple(name for name in checkpoint.unused if name != LINEAR),
        settings=settings,
    )


def _check_kinds(
    path: pathlib.Path, modules: Sequence[Module], layers: Sequence[Module], is_pylate: bool
) -> None:
    """Raises ValueError for modules that are not those of late interaction, or in another order."""
    kinds = [module.kind for module in modules]
    allowed = {"Dense"} if is_pylate else {"Dense", "Normalize", "Dropout"}
    is_known = {module.kind for module in layers} <= allowed and kinds[0] == "Transformer"
    # Pooling is of finished vectors.
    is_last = POOLING not in kinds or (kinds.index(POOLING) == len(kinds) - 1)
    has_mask = is_pylate or kinds.count("MultiVectorMask") == 1
    if not is_known or not is_last or not has_mask:
        expected = f"Transformer, any number of {', '.join(sorted(allowed))}"
        if not is_pylate:
            expected += f", one MultiVectorMask, and at the end perhaps a {POOLING}"
        raise ValueError(f"{path / MODULES} lists {kinds}; expected {expected}.")


def _make_embedding(path: pathlib.Path, sides: Fields, **fields: Any) -> EmbeddingConfig:
    """Makes the configuration; an error names the folder."""
    try:
        return EmbeddingConfig(tokens=TokenVectors(**sides), **fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _similarity(values: Fields, file: pathlib.Path, is_pylate: bool) -> str:
    name = json_field(values, "similarity_fn_name", str, file, nullable=True) or MAXSIM[0]
    if is_pylate:  # It scores by MaxSim, whatever its file says: MaxSim or cosine.
        return MAXSIM[0]
    if name not in MAXSIM:
        raise ValueError(f"{file}: similarity_fn_name is {name!r}, expected one of {list(MAXSIM)}.")
    return name


def _sides(transformer: Module, own: Sequence[Module]) -> Fields:
    """Returns the settings that modules of sentence-transformers state, and document_length."""
    values = transformer.values
    file = transformer.file
    fields: Fields = {"expansion_length": 0}
    for name in ("query_length", "document_length"):
        fields[name] = _length(values, name, file)
    expansion = json_field(values, "query_expansion", dict, file, nullable=True)
    if expansion is not None:
        if unknown := sorted(set(expansion) - set(EXPANSION_KEYS)):
            raise ValueError(f"{file}: query_expansion has {unknown[0]!r}, which is unknown here.")
        stated = {}
        for key, kind in EXPANSION_KEYS.items():
            stated[key] = json_field(expansion, key, kind, file, nullable=key == "token")
        if stated["strategy"] not in ("fixed", "min") or not stated["length"]:
            raise ValueError(
                f"{file}: query_expansion is {expansion}, expected a strategy, fixed or min, and a "
                "length."
            )
        fields["expansion_length"] = stated["length"]
        fields["expansion_token"] = stated["token"] or ""
        fields["attends"] = bool(stated["attend"])
        if stated["strategy"] == "fixed":
            fields["query_length"] = stated["length"]
    for module in own:
        read = _mask_fields if module.kind == "MultiVectorMask" else _pooling_fields
        fields |= read(module.values, module.file)
    return fields


def _mask_fields(values: Fields, file: pathlib.Path) -> Fields:
    """Returns the settings of a MultiVectorMask."""
    words = json_field(values, "skiplist_words", list, file, nullable=True) or ()
    ids = json_field(values, "keep_only_token_ids", list, file, nullable=True) or ()
    return {
        "skiplist": tuple(words),
        "skiplist_sides": _named_sides(values, "skiplist_tasks", file),
        "kept_token_ids": tuple(ids),
    }


def _pooling_fields(values: Fields, file: pathlib.Path) -> Fields:
    """Returns the settings of a HierarchicalTokenPooling."""
    protected = json_field(values, "num_protected_tokens", int, file)
    # Without this key the library does not normalize, as before it had the key.
    normalizes = json_field(values, "normalize_embeddings", bool, file)
    return {
        "pool_factor": values.get("pool_factor", 1.0),
        "protected_tokens": 1 if protected is None else protected,
        "pool_normalizes": bool(normalizes),
        "pool_sides": _named_sides(values, "tasks", file),
    }


def _named_sides(values: Fields, key: str, file: pathlib.Path) -> tuple[str, ...]:
    """Returns the sides that a module's setting names: a name, or a list; documents without it."""
    named = values.get(key)
    if named is None:
        return ("document",)
    return (named,) if isinstance(named, str) else tuple(named)


def _length(values: Fields, key: str, file: pathlib.Path) -> int:
    """Returns a stated maximum length; 0 without one."""
    length = json_field(values, key, int, file, nullable=True)
    if length is not None and length < 1:
        raise ValueError(f"{file}: {key} is {length}, expected at least 1.")
    return length or 0


def _pylate_sides(values: Fields, file: pathlib.Path) -> Fields:
    """Returns the settings that PyLate's configuration states, and document_length."""
    is_expanded = json_field(values, "do_query_expansion", bool, file, nullable=True) is not False
    attends = json_field(values, "attend_to_expansion_tokens", bool, file, nullable=True)
    words = json_field(values, "skiplist_words", list, file, nullable=True)
    length = _length(values, "query_length", file)
    if is_expanded:
        length = length or QUERY_LENGTH
    return {
        "query_length": length,
        "expansion_length": length if is_expanded else 0,
        "attends": bool(attends),
        "skiplist": PUNCTUATION if words is None else tuple(words),
        "document_length": _length(values, "document_length", file),
    }


def _prefixes(values: Fields, file: pathlib.Path) -> dict[str, str]:
    """Returns PyLate's prefix of each side."""
    prefixes = {}
    for side in SIDES:
        prefix = json_field(values, f"{side}_prefix", str, file, nullable=True)
        prefixes[side] = prefix or ""
    return prefixes


def _with_marks(
    checkpoint: Checkpoint, prefixes: dict[str, str], prompts: dict[str, str], source: str
) -> tuple[Checkpoint, dict[str, str]]:
    """Returns a checkpoint whose tokenizer reads each prefix as one token, and its prompts."""
    vocab = checkpoint.vocab
    prompts = dict(prompts)
    for side, prefix in prefixes.items():
        if not prefix.strip():
            continue
        # The token may include the space after it, as PyLate's does.
        contents = [text for text in (prefix, prefix.split()[0]) if vocab and text in vocab.ids]
        if vocab is None or not contents:
            raise ValueError(
                f"{source}: the prefix {prefix!r} of a {side} is no token of the vocabulary; "
                "expected a tokenizer that has it, as that of the training. Add it to "
                "tokenizer.json with the id of its row."
            )
        vocab = with_special_token(vocab, contents[0])
        prompts[side] = prefix + prompts.get(side, "").removeprefix(prefix)
    return dataclasses.replace(checkpoint, vocab=vocab), prompts


def is_late_interaction(path: pathlib.Path) -> bool:
    """True for a folder of late interaction in any dialect, or of a run that trained one."""
    if not path.is_dir():
        return False
    values = read_optional_json(path / "config_sentence_transformers.json")
    is_multi_vector = values.get("model_type") in (PYLATE, MULTI_VECTOR)
    has_tokens = read_optional_json(path / FILE_NAME).get("tokens") is not None
    return is_multi_vector or has_tokens or is_stanford(path)


def is_stanford(path: pathlib.Path) -> bool:
    """True for a Hugging Face folder of the class HF_ColBERT."""
    config = path / "config.json"
    if not path.is_dir() or not config.is_file():
        return False
    return STANFORD in architectures(read_json(config), config)


def read_stanford(path: pathlib.Path) -> Checkpoint:
    """Reads a folder of the class HF_ColBERT.

    Raises:
      ValueError: if it has no projection, or its vocabulary lacks a marker.
    """
    values, family, config = read_config(path)
    file_weights, notes = read_weights(path)
    linear = file_weights.pop(LINEAR, None)
    if linear is None or linear.ndim != 2 or linear.shape[1] != config.hidden_size:
        shown = "missing" if linear is None else list(linear.shape)
        raise ValueError(
            f"{path}: {LINEAR} is {shown}, expected [size of a vector, {config.hidden_size}]."
        )
    checkpoint = from_names(
        family, config, values, file_weights, path, tuple(notes), as_transformers=True
    )
    file = path / METADATA
    metadata = read_optional_json(file)
    prefixes = {}
    for side, key, marker in zip(SIDES, ("query_token_id", "doc_token_id"), MARKERS, strict=True):
        prefixes[side] = f"{json_field(metadata, key, str, file, nullable=True) or marker} "
    checkpoint, prompts = _with_marks(checkpoint, prefixes, {}, str(file))
    skips = json_field(metadata, "mask_punctuation", bool, file, nullable=True)
    longest = config.longest_row
    query_length = min(_length(metadata, "query_maxlen", file) or QUERY_LENGTH, longest)
    sides = {
        "query_length": query_length,
        "expansion_length": query_length,
        "attends": bool(json_field(metadata, "attend_to_mask_tokens", bool, file, nullable=True)),
        "skiplist": () if skips is False else PUNCTUATION,
    }
    stated = int(checkpoint.settings.get("max_seq_length", longest))
    embedding = _make_embedding(
        path,
        sides,
        dense=(DenseStep(config.hidden_size, len(linear), use_bias=False, activation="linear"),),
        normalize=True,
        max_seq_length=min(_length(metadata, "doc_maxlen", file) or stated, longest),
        prompts=prompts,
        similarity=MAXSIM[0],
    )
    # [out, in] -> [in, out]
    kernel = {f"{HEAD}dense_0/kernel": np.ascontiguousarray(linear.T, np.float32)}
    settings = {key: text for key, text in checkpoint.settings.items() if key != "max_seq_length"}
    return dataclasses.replace(
        checkpoint,
        embedding=embedding,
        weights={**checkpoint.weights, **kernel},
        settings=settings,
    )
