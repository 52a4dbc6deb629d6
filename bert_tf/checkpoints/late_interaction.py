"""Models of late interaction, one vector for each token (ColBERT), read and written in 3 dialects.

    sentence-transformers 6   modules Transformer, Dense, MultiVectorMask, Normalize; model_type
                              MultiVectorEncoder; query_expansion among the Transformer's settings
    PyLate, up to 1.6         modules Transformer, Dense; model_type ColBERT; query_prefix,
                              document_prefix, query_length, skiplist_words .. beside it
    Stanford                  a Hugging Face folder of the class HF_ColBERT with linear.weight and
                              artifact.metadata

The settings of the last two are those that sentence-transformers 6.2.0 derives from them. Their
prefixes are tokens of the vocabulary, which become special tokens: as a prompt before a text each
is then one token, as in training. A dialect cannot hold everything: `formats.write_checkpoint`
reads a written folder back and compares.
"""

import dataclasses
import numbers
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import Checkpoint, Weights
from bert_tf.checkpoints.embedding import FILE_NAME, HEAD, EmbeddingConfig
from bert_tf.checkpoints.families.family import architectures
from bert_tf.checkpoints.huggingface import from_names, read_config
from bert_tf.checkpoints.huggingface_writing import (
    encoder_alone,
    family_and_heads,
    write_huggingface,
)
from bert_tf.checkpoints.sentence_module_writing import write_layers, write_model_settings
from bert_tf.checkpoints.sentence_modules import (
    CONFIG,
    FEATURES,
    MODULES,
    OLD_TYPES,
    PYLATE_DENSE,
    SIZES,
    TOKENS,
    Module,
    lowers_texts,
    read_layer_settings,
    transformer_length,
    with_embedding,
)
from bert_tf.checkpoints.token_vectors import PUNCTUATION, QUERY_LENGTH, SIDES, TokenVectors
from bert_tf.checkpoints.weight_files import read_weights
from bert_tf.config.pooled_layers import DenseStep
from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.system.files import json_field, read_json, read_optional_json, write_json
from bert_tf.text.kinds import with_special_token
from bert_tf.text.tokenization import make_tokenizer

PYLATE = "ColBERT"
MULTI_VECTOR = "MultiVectorEncoder"
STANFORD = "HF_ColBERT"
METADATA = "artifact.metadata"
LINEAR = "linear.weight"
KERNEL = f"{HEAD}dense_0/kernel"  # Stanford's only layer
MASK = "MultiVectorMask"
POOLING = "HierarchicalTokenPooling"
NAMES = {"module_input_name": TOKENS, "module_output_name": TOKENS}
LIBRARY = "sentence_transformers"
# The modules of sentence-transformers 6 for tokens, which have no shorter locations.
TYPES = {
    "Transformer": f"{LIBRARY}.base.modules.transformer.Transformer",
    "Dense": f"{LIBRARY}.base.modules.dense.Dense",
    "Normalize": f"{LIBRARY}.base.modules.normalize.Normalize",
    MASK: f"{LIBRARY}.multi_vector_encoder.modules.multi_vector_mask.{MASK}",
    POOLING: f"{LIBRARY}.multi_vector_encoder.modules.token_pooling.{POOLING}",
}
PYLATE_TYPES = {"Transformer": OLD_TYPES["Transformer"], "Dense": PYLATE_DENSE}

# Settings by their names in a file: the field that each states, and its value where it is absent.
# Fields are those of `TokenVectors`, document_length (0: as long as the model allows), and others
# that the readers below translate.
Fields = dict[str, Any]
Settings = Mapping[str, tuple[str, Any]]
SIDE_SETTINGS: Settings = {
    "query_length": ("query_length", 0),
    "document_length": ("document_length", 0),
}
EXPANSION_SETTINGS: Settings = {
    "strategy": ("strategy", ""),
    "attend": ("attends", False),
    "token": ("expansion_token", ""),
    "length": ("expansion_length", 0),
}
MODULE_SETTINGS: dict[str, Settings] = {
    MASK: {
        "skiplist_words": ("skiplist", ()),
        "skiplist_tasks": ("skiplist_sides", ("document",)),
        "keep_only_token_ids": ("kept_token_ids", ()),
    },
    POOLING: {
        "pool_factor": ("pool_factor", 1.0),
        "num_protected_tokens": ("protected_tokens", 1),
        # Without this key the library does not normalize, as before it had the key.
        "normalize_embeddings": ("pool_normalizes", False),
        "tasks": ("pool_sides", ("document",)),
    },
}
PYLATE_SETTINGS: Settings = {
    **SIDE_SETTINGS,
    "query_prefix": ("query_prefix", ""),
    "document_prefix": ("document_prefix", ""),
    "do_query_expansion": ("expands", True),
    "attend_to_expansion_tokens": ("attends", False),
    "skiplist_words": ("skiplist", PUNCTUATION),
}
STANFORD_SETTINGS: Settings = {
    "query_token_id": ("query_prefix", "[unused0]"),
    "doc_token_id": ("document_prefix", "[unused1]"),
    "query_maxlen": ("query_length", QUERY_LENGTH),
    "doc_maxlen": ("document_length", 0),
    "attend_to_mask_tokens": ("attends", False),
    "mask_punctuation": ("skips_punctuation", True),
}
JSON_TYPES = {tuple: list, float: numbers.Real}


def _read(values: Fields, settings: Settings, file: pathlib.Path) -> Fields:
    """Returns the fields that a file states, and the values of those that it does not."""
    fields: Fields = {}
    for key, (field, default) in settings.items():
        kind = JSON_TYPES.get(type(default), type(default))
        least = None
        if field.endswith("_length"):
            least = 1
        value = json_field(values, key, kind, file, nullable=True, least=least, default=default)
        fields[field] = tuple(value) if isinstance(value, list) else value
    return fields


def _write(fields: Fields, settings: Settings) -> Fields:
    """Returns the settings of a file, the inverse of `_read`."""
    return {key: fields[field] for key, (field, _) in settings.items()}


# Reading --------------------------------------------------------------------------------------


def read_multi_vector(
    path: pathlib.Path, checkpoint: Checkpoint, modules: Sequence[Module], values: Fields
) -> Checkpoint:
    """Returns the checkpoint of a folder with modules, of sentence-transformers or PyLate.

    Raises:
      ValueError: if settings contradict each other, or are not computed here.
    """
    is_pylate = values.get("model_type") == PYLATE
    if is_pylate:  # It scores by MaxSim, whatever its file says: MaxSim or cosine.
        values = {**values, "similarity_fn_name": None}
    layers = [module for module in modules[1:] if module.kind not in MODULE_SETTINGS]
    _check_kinds(path, modules, layers, is_pylate)
    embedding, weights = read_layer_settings(
        path, layers, checkpoint.config.hidden_size, values, TOKENS, MAXSIM
    )
    # A tokenizer that lower-cases by itself leaves special tokens as they are.
    lower = lowers_texts(modules[0]) and not checkpoint.config.do_lower_case
    embedding["lower_case_texts"] = lower
    if is_pylate:
        embedding["normalize"] = True
        tokens = _read(values, PYLATE_SETTINGS, path / CONFIG)
        tokens["expansion_length"] = 0
        if tokens.pop("expands"):
            tokens["query_length"] = tokens["query_length"] or QUERY_LENGTH
            tokens["expansion_length"] = tokens["query_length"]
        checkpoint = _with_marks(checkpoint, tokens, embedding["prompts"], path / CONFIG)
    else:
        tokens = _read_modules(modules)
    # Folders that are Stanford's as well have the projection among the encoder's weights.
    unused = tuple(name for name in checkpoint.unused if name != LINEAR)
    checkpoint = dataclasses.replace(checkpoint, unused=unused)
    limit = transformer_length(modules[0])
    return _with_tokens(checkpoint, tokens, limit, embedding, weights, path)


def _check_kinds(
    path: pathlib.Path, modules: Sequence[Module], layers: Sequence[Module], is_pylate: bool
) -> None:
    """Raises ValueError for modules that are not those of late interaction, or in another order."""
    kinds = [module.kind for module in modules]
    allowed = {"Dense"} if is_pylate else {"Dense", "Normalize", "Dropout"}
    is_known = {module.kind for module in layers} <= allowed and kinds[0] == "Transformer"
    # Pooling is of finished vectors.
    is_last = POOLING not in kinds[:-1]
    has_mask = is_pylate or kinds.count(MASK) == 1
    if not is_known or not is_last or not has_mask:
        expected = f"Transformer, any number of {', '.join(sorted(allowed))}"
        if not is_pylate:
            expected += f", one {MASK}, and at the end perhaps a {POOLING}"
        raise ValueError(f"{path / MODULES} lists {kinds}; expected {expected}.")


def _read_modules(modules: Sequence[Module]) -> Fields:
    """Returns the fields that modules of sentence-transformers state."""
    values = modules[0].values
    file = modules[0].file
    fields = {**_read(values, SIDE_SETTINGS, file), "expansion_length": 0}
    expansion = json_field(values, "query_expansion", dict, file, nullable=True)
    if expansion is not None:
        if unknown := sorted(set(expansion) - set(EXPANSION_SETTINGS)):
            raise ValueError(f"{file}: query_expansion has {unknown[0]!r}, which is unknown here.")
        fields |= _read(expansion, EXPANSION_SETTINGS, file)
        strategy = fields.pop("strategy")
        if strategy not in ("fixed", "min") or not fields["expansion_length"]:
            raise ValueError(
                f"{file}: query_expansion is {expansion}, expected a strategy, fixed or min, and a "
                "length."
            )
        if strategy == "fixed":
            fields["query_length"] = fields["expansion_length"]
    for module in modules[1:]:
        fields |= _read(module.values, MODULE_SETTINGS.get(module.kind, {}), module.file)
    return fields


def _with_marks(
    checkpoint: Checkpoint, fields: Fields, prompts: dict[str, str], file: pathlib.Path
) -> Checkpoint:
    """Returns a checkpoint whose tokenizer reads each prefix as one token.

    The prefixes move from the fields into the prompts.
    """
    vocab = checkpoint.vocab
    for side in SIDES:
        prefix = fields.pop(f"{side}_prefix")
        if not prefix.strip():
            continue
        # The token may include the space after it, as PyLate's does.
        contents = [text for text in (prefix, prefix.split()[0]) if vocab and text in vocab.ids]
        if vocab is None or not contents:
            raise ValueError(
                f"{file}: the prefix {prefix!r} of a {side} is no token of the vocabulary; "
                "expected a tokenizer that has it, as that of the training. Add it to "
                "tokenizer.json with the id of its row."
            )
        # A word that texts give as one token anyway stays a word, which is not found inside others.
        tokenizer = make_tokenizer(vocab, checkpoint.config.do_lower_case)
        if tokenizer.tokenize(contents[0]) != [contents[0]]:
            vocab = with_special_token(vocab, contents[0])
        prompts[side] = prefix + prompts.get(side, "").removeprefix(prefix)
    return dataclasses.replace(checkpoint, vocab=vocab)


def _with_tokens(
    checkpoint: Checkpoint,
    fields: Fields,
    limit: int | None,
    embedding: Fields,
    weights: Weights,
    path: pathlib.Path,
) -> Checkpoint:
    """Returns the checkpoint with its layers and settings.

    `limit` is the maximum length of texts whose side states none; None: all positions.
    """
    longest = checkpoint.config.longest_row
    for name in SIDE_SETTINGS:
        fields[name] = min(fields[name] or limit or longest, longest)
    length = fields.pop("document_length")
    try:
        tokens = TokenVectors(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    config = EmbeddingConfig(tokens=tokens, max_seq_length=length, **embedding)
    return with_embedding(checkpoint, config, weights, str(path))


def is_late_interaction(path: pathlib.Path) -> bool:
    """True for a folder of late interaction in any dialect, or of a run that trained one."""
    model_type = read_optional_json(path / CONFIG).get("model_type")
    has_tokens = read_optional_json(path / FILE_NAME).get("tokens") is not None
    return model_type in (PYLATE, MULTI_VECTOR) or has_tokens or is_stanford(path)


def is_stanford(path: pathlib.Path) -> bool:
    """True for a Hugging Face folder of the class HF_ColBERT."""
    config = path / "config.json"
    return STANFORD in architectures(read_optional_json(config), config)


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
    settings = read_optional_json(file)
    similarity = json_field(settings, "similarity", str, file, nullable=True, default="cosine")
    if similarity != "cosine":
        raise ValueError(
            f"{file}: similarity is {similarity!r}, but bert_tf scores by cosine alone. With l2 "
            "one query's documents have the same order: write cosine there to read the model."
        )
    fields = _read(settings, STANFORD_SETTINGS, file)
    for side in SIDES:
        fields[f"{side}_prefix"] += " "
    prompts: dict[str, str] = {}
    checkpoint = _with_marks(checkpoint, fields, prompts, file)
    fields["expansion_length"] = fields["query_length"]
    fields["skiplist"] = PUNCTUATION if fields.pop("skips_punctuation") else ()
    layer = DenseStep(config.hidden_size, len(linear), use_bias=False, activation="linear")
    embedding = {
        "dense": (layer,),
        "normalize": True,
        "prompts": prompts,
        "similarity": MAXSIM[0],
    }
    # [out, in] -> [in, out]
    weights = {KERNEL: np.ascontiguousarray(linear.T, np.float32)}
    limit = int(checkpoint.settings.get("max_seq_length", 0))
    return _with_tokens(checkpoint, fields, limit, embedding, weights, path)


# Writing --------------------------------------------------------------------------------------


def write_multi_vector(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of sentence-transformers 6."""
    embedding, fields = _settings_of(checkpoint)
    write_huggingface(encoder_alone(checkpoint), folder)
    modules = {kind: _write(fields, settings) for kind, settings in MODULE_SETTINGS.items()}
    # An empty list would keep no token.
    modules[MASK]["keep_only_token_ids"] = fields["kept_token_ids"] or None
    if fields["pool_factor"] == 1:
        del modules[POOLING]
    steps = embedding.steps(checkpoint.config.hidden_size)
    write_layers(folder, steps, checkpoint.weights, after=modules, names=NAMES, types=TYPES)
    is_fixed = fields["query_length"] == fields["expansion_length"]
    fields["strategy"] = "fixed" if is_fixed else "min"
    expansion = _write(fields, EXPANSION_SETTINGS)
    expansion["token"] = expansion["token"] or None
    sizes = {
        **FEATURES,
        "do_lower_case": embedding.lower_case_texts,
        "document_length": embedding.max_seq_length,
        "query_length": None if is_fixed else fields["query_length"],
        "query_expansion": expansion if fields["expansion_length"] else None,
    }
    write_json(folder / SIZES, sizes)
    write_model_settings(folder, embedding, MULTI_VECTOR)


def write_pylate(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of PyLate, up to 1.6."""
    embedding, fields = _settings_of(checkpoint)
    fields |= _prefixes(checkpoint, "pylate")
    fields["expands"] = bool(fields["expansion_length"])
    write_huggingface(encoder_alone(checkpoint), folder)
    write_layers(folder, embedding.dense, checkpoint.weights, types=PYLATE_TYPES)
    # PyLate puts the prefix into a row that was cut to one token less.
    length = embedding.max_seq_length - 1
    sizes = {"max_seq_length": length, "do_lower_case": embedding.lower_case_texts}
    write_json(folder / SIZES, sizes)
    settings = _write(fields, PYLATE_SETTINGS)
    settings |= {"prompts": {}, "similarity_fn_name": "MaxSim"}
    write_model_settings(folder, embedding, PYLATE, **settings)


def write_stanford(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder of the class HF_ColBERT."""
    embedding, fields = _settings_of(checkpoint)
    for name, prefix in _prefixes(checkpoint, "stanford").items():
        fields[name] = prefix.rstrip()
    if [name for name in checkpoint.weights if name.startswith(HEAD)] != [KERNEL]:
        raise ValueError(
            f"{checkpoint.source}: stanford has one linear layer without a bias, but the model has "
            f"{embedding.dense}."
        )
    write_huggingface(encoder_alone(checkpoint), folder)
    file = folder / "model.safetensors"
    start = family_and_heads(encoder_alone(checkpoint))[0].prefix
    weights = {}
    for name, value in safetensors.numpy.load_file(file).items():
        weights[name if name.startswith(start) else start + name] = value
    # [in, out] -> [out, in]
    weights[LINEAR] = np.ascontiguousarray(checkpoint.weights[KERNEL].T)
    safetensors.numpy.save_file(weights, file, metadata={"format": "pt"})
    config = folder / "config.json"
    write_json(config, {**read_json(config), "architectures": [STANFORD]})
    fields["skips_punctuation"] = bool(fields["skiplist"])
    settings = _write(fields, STANFORD_SETTINGS)
    settings |= {"dim": len(weights[LINEAR]), "similarity": "cosine"}
    write_json(folder / METADATA, settings)


def _settings_of(checkpoint: Checkpoint) -> tuple[EmbeddingConfig, Fields]:
    """Returns the embedding of a model, and the fields of its `TokenVectors` and document_length.

    Raises:
      ValueError: if it is not a model of late interaction.
    """
    embedding = checkpoint.embedding
    if embedding is None or embedding.tokens is None:
        raise ValueError(f"{checkpoint.source} is no model of late interaction (ColBERT).")
    fields = dataclasses.asdict(embedding.tokens)
    return embedding, {**fields, "document_length": embedding.max_seq_length}


def _prefixes(checkpoint: Checkpoint, form: str) -> Fields:
    """Returns the prompt of each side, which must be one token, with or without its space."""
    ids = checkpoint.vocab.ids if checkpoint.vocab else {}
    prefixes: Fields = {}
    for side in SIDES:
        prefix = checkpoint.embedding.side_prompt(side) if checkpoint.embedding else ""
        # Stanford's library puts the space after the token, and must have one.
        is_known = prefix.rstrip() in ids or (form == "pylate" and prefix in ("", *ids))
        if not is_known:
            raise ValueError(
                f"{checkpoint.source}: the prompt of a {side} is {prefix!r}, but {form} has one "
                "token of the vocabulary; write the model for sentence_transformers."
            )
        prefixes[f"{side}_prefix"] = prefix
    return prefixes
