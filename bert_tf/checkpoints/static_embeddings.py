"""Folders of static embedders: a table of vectors, one for each token, whose mean embeds a text.

    Model2Vec               config.json, tokenizer.json, model.safetensors with embeddings [R, D],
                            optionally weights [V] and mapping [V]: the vector of token t is
                            embeddings[mapping[t]] * weights[t]
    sentence-transformers   modules.json that begins with a StaticEmbedding, in whose folder
                            tokenizer.json and model.safetensors with embedding.weight [V, D]

Both become an encoder without layers and positions. Model2Vec leaves unknown tokens out of the
mean; sentence-transformers does not. A pipeline.skops beside them, a classifier, is never read.
Reference: model2vec 0.10.0, sentence-transformers 6.2.0.
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import Checkpoint, Weights
from bert_tf.checkpoints.embedding import NUM_SPECIAL, EmbeddingConfig
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer
from bert_tf.checkpoints.sentence_modules import (
    MODULES,
    STATIC,
    is_sentence_transformers,
    read_modules,
)
from bert_tf.checkpoints.sentence_transformers import (
    read_layer_settings,
    read_model_settings,
    write_layers,
    write_model_settings,
)
from bert_tf.checkpoints.static_tokenizer import (
    OWN_TOKENS,
    read_static_tokenizer,
    rows_of_tokens,
    stated_truncation,
    static_tokenizer_json,
    unknown_token,
)
from bert_tf.checkpoints.weight_files import read_weight_file
from bert_tf.config import ModelConfig
from bert_tf.system.files import json_field, read_json, write_json
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer_json import TOKENIZER_FILE

TABLE = "bert/embeddings/word_embeddings"
WEIGHTS_FILE = "model.safetensors"
MODEL2VEC = "model2vec"
MODEL2VEC_LENGTH = 512  # of texts, if config.json does not state one
NO_LIMIT = 1_000_000  # tokens of a text, where the files state no limit
NORMALIZE = {"sentence_transformers.models.Normalize": "1_Normalize"}


def is_static(config: ModelConfig) -> bool:
    """Returns whether a model embeds texts by the mean of its tokens' vectors, without layers."""
    return config.num_hidden_layers == 0


def static_form(checkpoint: Checkpoint) -> str:
    """Returns the form that holds a static embedder: whether it skips unknown tokens decides."""
    skipped = _embedding(checkpoint).skipped_tokens
    # [CLS] and [SEP] of the encoder are always skipped.
    return MODEL2VEC if len(skipped) > NUM_SPECIAL else "sentence_transformers"


def is_static_folder(path: pathlib.Path) -> bool:
    """Returns whether a folder has the files of a static embedder."""
    if is_sentence_transformers(path):
        return read_modules(path)[0].kind == STATIC
    if not all((path / name).is_file() for name in (WEIGHTS_FILE, TOKENIZER_FILE, "config.json")):
        return False
    if read_json(path / "config.json").get("model_type", MODEL2VEC) != MODEL2VEC:
        return False
    try:
        with safetensors.safe_open(path / WEIGHTS_FILE, "numpy") as file:
            return "embeddings" in file.keys()
    except (OSError, safetensors.SafetensorError):
        return False  # The reader of other folders reports it.


def read_static(path: pathlib.Path) -> Checkpoint:
    """Reads a folder of either library.

    Raises:
      ValueError: if a file is missing, corrupt or contradicts another, or has a setting that
        bert_tf does not compute.
    """
    modules = read_modules(path) if is_sentence_transformers(path) else []
    folder = modules[0].folder if modules else path
    tokenizer_path = folder / TOKENIZER_FILE
    tokenizer = read_static_tokenizer(tokenizer_path)
    content = read_json(tokenizer_path)
    weight_path = folder / WEIGHTS_FILE
    if not weight_path.is_file():
        weight_path = folder / "pytorch_model.bin"
    tensors = read_weight_file(weight_path)
    table, notes = _read_table(tensors, len(rows_of_tokens(_vocab(tokenizer))), weight_path)
    others = {module.kind for module in modules[1:]} - {"Normalize"}
    if "embeddings" in tensors and (path / "config.json").is_file() and not others:
        layers: Weights = {}
        embedding = _stated_settings(path / "config.json", tokenizer, content)
    else:
        values = read_model_settings(path)
        fields, layers = read_layer_settings(path, modules[1:], table.shape[1], values)
        length = stated_truncation(content, tokenizer_path) or NO_LIMIT
        embedding = EmbeddingConfig(max_seq_length=length + NUM_SPECIAL, **fields)
        embedding.check(table.shape[1], str(path))
    made = static_checkpoint(table, tokenizer, embedding, str(path))
    weights = {**made.weights, **layers}
    return dataclasses.replace(made, weights=weights, notes=(*notes, *made.notes))


def static_checkpoint(
    table: np.ndarray, tokenizer: FoundTokenizer, embedding: EmbeddingConfig, source: str
) -> Checkpoint:
    """Makes the checkpoint of a static embedder.

    Args:
      table: float32 [V, D], a row for each token of the vocabulary without its own special tokens.
      tokenizer: of `static_tokenizer`.
      embedding: how texts are embedded; its own special tokens are added to `skipped_tokens`.
      source: see `Checkpoint`.
    """
    vocab = _vocab(tokenizer)
    rows = np.zeros([len(vocab), table.shape[1]], np.float32)
    rows[rows_of_tokens(vocab)] = table
    own = (vocab.ids[OWN_TOKENS["cls"]], vocab.ids[OWN_TOKENS["sep"]])
    skipped = sorted({*own, *embedding.skipped_tokens})
    config = ModelConfig(
        vocab_size=len(vocab),
        hidden_size=rows.shape[1],
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        type_vocab_size=0,
        position_type="none",
        embedding_norm=False,
        classifier_pooling="mean",
    )
    return Checkpoint(
        source=source,
        form="static_embeddings",
        config=tokenizer.applied_to(config, source),
        weights={TABLE: rows},
        vocab=vocab,
        stated_casing=tokenizer.stated,
        notes=tokenizer.notes,
        family="static embedder",
        embedding=dataclasses.replace(embedding, skipped_tokens=tuple(skipped)),
    )


def _vocab(tokenizer: FoundTokenizer) -> AnyVocab:
    if tokenizer.vocab is None:
        raise ValueError(f"{TOKENIZER_FILE} has no vocabulary.")
    return tokenizer.vocab


def _read_table(
    tensors: Weights, size: int, path: pathlib.Path
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the vectors of a file's tokens, float32 [size, D], and remarks for the user."""
    name = "embeddings" if "embeddings" in tensors else "embedding.weight"
    unknown = sorted(set(tensors) - {name, "weights", "mapping"})
    if name not in tensors or unknown or tensors[name].ndim != 2:
        shapes = {key: list(value.shape) for key, value in tensors.items()}
        raise ValueError(
            f"{path} has {shapes!r:.300}; expected embeddings or embedding.weight, a matrix, and "
            "optionally weights and mapping."
        )
    table = tensors[name]
    mapping = tensors.get("mapping")
    if mapping is not None:
        is_whole = np.issubdtype(mapping.dtype, np.integer) and mapping.ndim == 1
        if not is_whole or not ((mapping >= 0) & (mapping < len(table))).all():
            raise ValueError(
                f"{path}: mapping is {mapping.dtype} {list(mapping.shape)}, expected a row of the "
                f"{len(table)} embeddings for each token."
            )
        table = table[mapping]
    factors = tensors.get("weights")
    if factors is not None and factors.shape != (len(table),):
        raise ValueError(
            f"{path}: weights has the shape {list(factors.shape)}, expected {[len(table)]}."
        )
    notes: tuple[str, ...] = ()
    if table.dtype != np.float32:
        notes = (f"Weights stored as {table.dtype} were converted to float32.",)
    if factors is not None:
        table = table.astype(np.float64) * factors.astype(np.float64)[:, None]
    if len(table) < size:
        raise ValueError(
            f"{path} has vectors for {len(table)} tokens, but {TOKENIZER_FILE} has {size} tokens; "
            "they do not belong together."
        )
    if len(table) > size:
        notes += (f"{len(table) - size} vectors beyond the vocabulary are left out.",)
    return table[:size].astype(np.float32), notes


def _stated_settings(
    path: pathlib.Path, tokenizer: FoundTokenizer, content: dict[str, Any]
) -> EmbeddingConfig:
    """Returns how Model2Vec embeds texts, by its config.json and tokenizer.json."""
    values = read_json(path)
    normalize = json_field(values, "normalize", bool, path, nullable=True)
    length = values.get("max_length", MODEL2VEC_LENGTH)
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"{path}: max_length is {length!r}, expected a number above 0, or null.")
    unknown = _vocab(tokenizer).ids.get(unknown_token(content) or "")
    return model2vec_settings(tokenizer, unknown, length, bool(normalize))


def model2vec_settings(
    tokenizer: FoundTokenizer, unknown: int | None, length: int | None, normalize: bool
) -> EmbeddingConfig:
    """Returns how Model2Vec embeds texts.

    Args:
      tokenizer: of the texts.
      unknown: id of the token that it leaves out; None without one.
      length: the most tokens of a text; None: no limit.
      normalize: whether vectors are scaled to length 1.
    """
    return EmbeddingConfig(
        normalize=normalize,
        max_seq_length=(length or NO_LIMIT) + NUM_SPECIAL,
        skipped_tokens=() if unknown is None else (unknown,),
        characters_per_token=median_characters(_vocab(tokenizer)) if length else 0,
    )


def median_characters(vocab: AnyVocab) -> int:
    """Returns the median length of the tokens, by which Model2Vec cuts texts."""
    return int(np.median([len(vocab.tokens[row]) for row in rows_of_tokens(vocab)]))


# Writing --------------------------------------------------------------------------------------


def write_static_modules(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder that sentence-transformers reads, with a StaticEmbedding as first module."""
    embedding = _embedding(checkpoint)
    _write_table(checkpoint, folder, "embedding.weight")
    steps = embedding.steps(checkpoint.config.hidden_size)
    write_layers(folder, [(STATIC, "")], steps, checkpoint.weights)
    write_model_settings(folder, embedding)


def write_model2vec(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder that Model2Vec reads.

    Raises:
      ValueError: if the model has layers, or Model2Vec would embed texts otherwise.
    """
    if not is_static(checkpoint.config):
        raise ValueError(
            f"{checkpoint.source} has {checkpoint.config.num_hidden_layers} layers, but "
            f"{MODEL2VEC} holds static embeddings; make them with bert_tf.distill_static."
        )
    embedding = _embedding(checkpoint)
    if embedding.dense or embedding.prompts:
        raise ValueError(
            f"{MODEL2VEC} has no {'layers' if embedding.dense else 'prompts'}: write "
            "sentence_transformers instead."
        )
    _write_table(checkpoint, folder, "embeddings")
    values = {
        "model_type": MODEL2VEC,
        "architectures": ["StaticModel"],
        "hidden_dim": checkpoint.config.hidden_size,
        "normalize": embedding.normalize,
        "pooling": "mean",
        "max_length": _max_length(embedding),
        "embedding_dtype": "float32",
    }
    write_json(folder / "config.json", values)
    kinds = {f"sentence_transformers.models.{STATIC}": "."}
    if embedding.normalize:
        kinds |= NORMALIZE
    modules = [
        {"idx": index, "name": str(index), "path": place, "type": kind}
        for index, (kind, place) in enumerate(kinds.items())
    ]
    write_json(folder / MODULES, modules)


def _embedding(checkpoint: Checkpoint) -> EmbeddingConfig:
    if checkpoint.embedding is None:
        raise ValueError(f"{checkpoint.source} does not say how it embeds texts.")
    if checkpoint.embedding.pooling != ("mean",):
        raise ValueError(
            f"{checkpoint.source}: pooling is {checkpoint.embedding.pooling}, but static "
            "embeddings are means of vectors."
        )
    return checkpoint.embedding


def _write_table(checkpoint: Checkpoint, folder: pathlib.Path, name: str) -> None:
    """Writes the vectors and tokenizer.json."""
    vocab = checkpoint.vocab
    if vocab is None:
        raise ValueError(f"{checkpoint.source} has no vocabulary.")
    table = np.ascontiguousarray(checkpoint.weights[TABLE][rows_of_tokens(vocab)])
    metadata = {"format": "pt"}
    safetensors.numpy.save_file({name: table}, folder / WEIGHTS_FILE, metadata=metadata)
    embedding = _embedding(checkpoint)
    content = static_tokenizer_json(
        vocab,
        checkpoint.config.do_lower_case,
        _max_length(embedding),
        embedding.skipped_tokens,
    )
    write_json(folder / TOKENIZER_FILE, content)


def _max_length(embedding: EmbeddingConfig) -> int | None:
    """Returns the most tokens of a text, without special ones; None: no limit."""
    length = embedding.max_seq_length - NUM_SPECIAL
    return None if length >= NO_LIMIT else length
