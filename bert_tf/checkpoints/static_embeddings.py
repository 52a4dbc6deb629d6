"""Folders of static embedders: a table of vectors, one for each token, whose mean embeds a text.

    Model2Vec               config.json, tokenizer.json, model.safetensors with embeddings [R, D],
                            optionally weights [V] and mapping [V]: the vector of token t is
                            embeddings[mapping[t]] * weights[t]
    sentence-transformers   modules.json that begins with a StaticEmbedding, in whose folder
                            tokenizer.json and model.safetensors with embedding.weight [V, D]

Both become an encoder without layers and positions. Model2Vec leaves unknown tokens out of the
mean; sentence-transformers does not. A pipeline.skops, a classifier, is never read.
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
from bert_tf.checkpoints.sentence_module_writing import write_layers, write_model_settings
from bert_tf.checkpoints.sentence_modules import (
    STATIC,
    is_sentence_transformers,
    read_layer_settings,
    read_modules,
)
from bert_tf.checkpoints.sentence_transformers import read_model_settings
from bert_tf.checkpoints.static_tokenizer import (
    OWN_TOKENS,
    rows_of_tokens,
    stated_truncation,
    static_tokenizer_json,
    tokenizer_of,
    unknown_token,
)
from bert_tf.checkpoints.weight_files import check_header, read_weight_file
from bert_tf.config import ModelConfig
from bert_tf.system.bounded_files import check_regular
from bert_tf.system.files import json_field, read_json, write_json
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer_json import TOKENIZER_FILE

TABLE = "bert/embeddings/word_embeddings"
WEIGHTS_FILE = "model.safetensors"
MODEL2VEC = "model2vec"
MODEL2VEC_LENGTH = 512  # of texts, if config.json does not state one
NO_LIMIT = 1_000_000  # tokens of a text, where the files state no limit


def is_static(config: ModelConfig) -> bool:
    """Returns whether a model embeds texts by the mean of its tokens' vectors, without layers."""
    return config.num_hidden_layers == 0


def static_form(embedding: EmbeddingConfig) -> str:
    """Returns the form that holds a static embedder: whether it skips unknown tokens decides."""
    # [CLS] and [SEP] of the encoder are always skipped.
    return MODEL2VEC if len(embedding.skipped_tokens) > NUM_SPECIAL else "sentence_transformers"


def is_static_folder(path: pathlib.Path) -> bool:
    """Returns whether a folder has the files of a static embedder."""
    if is_sentence_transformers(path):
        return read_modules(path)[0].kind == STATIC
    if not (path / WEIGHTS_FILE).is_file() or not (path / "config.json").is_file():
        return False
    check_regular(path / WEIGHTS_FILE)
    check_header(path / WEIGHTS_FILE)
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
    if not tokenizer_path.is_file():
        raise ValueError(f"{tokenizer_path} is missing; copy it to the other files of the model.")
    content = read_json(tokenizer_path)
    length = stated_truncation(content, tokenizer_path)
    tokenizer = tokenizer_of(content, folder)
    weight_path = folder / WEIGHTS_FILE
    tensors = read_weight_file(weight_path)
    table, notes = _read_table(tensors, len(rows_of_tokens(_vocab(tokenizer))), weight_path)
    others = {module.kind for module in modules[1:]} - {"Normalize"}
    layers: Weights = {}
    config_path = path / "config.json"
    if "embeddings" in tensors and config_path.is_file() and not others:
        values = {"max_length": MODEL2VEC_LENGTH, **read_json(config_path)}
        normalize = json_field(values, "normalize", bool, config_path, nullable=True)
        length = json_field(values, "max_length", int, config_path, nullable=True, least=1)
        embedding = model2vec_settings(tokenizer, content, length, bool(normalize))
    else:
        settings = read_model_settings(path)
        fields, layers = read_layer_settings(path, modules[1:], table.shape[1], settings)
        embedding = EmbeddingConfig(max_seq_length=(length or NO_LIMIT) + NUM_SPECIAL, **fields)
        embedding.check(table.shape[1], str(path))
    made = static_checkpoint(table, tokenizer, embedding, str(path))
    weights = {**made.weights, **layers}
    return dataclasses.replace(made, weights=weights, notes=(*notes, *made.notes))


def static_checkpoint(
    table: np.ndarray, tokenizer: FoundTokenizer, embedding: EmbeddingConfig, source: str
) -> Checkpoint:
    """Makes the checkpoint of a static embedder.

    Args:
      table: float32 [V, D], a row for each token of the vocabulary but `OWN_TOKENS`, which are
        added to the embedding's `skipped_tokens`.
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
    table = tensors.get(name, np.zeros([0]))
    rows = tensors.get("mapping", np.arange(len(table)))
    factors = tensors.get("weights", np.ones(len(rows)))
    is_right = table.ndim == 2 and rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer)
    is_right = is_right and bool(((rows >= 0) & (rows < len(table))).all())
    is_right = is_right and size <= len(rows) and factors.shape == rows.shape
    if not is_right or not set(tensors) <= {name, "mapping", "weights"}:
        shapes = {key: f"{value.dtype} {list(value.shape)}" for key, value in tensors.items()}
        raise ValueError(
            f"{path} has {shapes!r:.300} for the {size} tokens of {TOKENIZER_FILE}; expected "
            "embeddings or embedding.weight, a matrix; optionally mapping, the row of each token, "
            "and weights, a factor of each token."
        )
    notes = []
    if table.dtype != np.float32:
        notes.append(f"Weights stored as {table.dtype} were converted to float32.")
    if len(rows) > size:
        notes.append(f"{len(rows) - size} vectors beyond the vocabulary are left out.")
    table = table[rows[:size]]
    if "weights" in tensors:
        table = table * factors[:size, None].astype(np.float64)
    return table.astype(np.float32), tuple(notes)


def model2vec_settings(
    tokenizer: FoundTokenizer, content: dict[str, Any], length: int | None, normalize: bool
) -> EmbeddingConfig:
    """Returns how Model2Vec embeds texts.

    `content` is the tokenizer.json, `length` the most tokens of a text; None: no limit.
    """
    vocab = _vocab(tokenizer)
    unknown = vocab.ids.get(unknown_token(content) or "")
    characters = [len(vocab.tokens[row]) for row in rows_of_tokens(vocab)]
    return EmbeddingConfig(
        normalize=normalize,
        max_seq_length=(NO_LIMIT if length is None else length) + NUM_SPECIAL,
        skipped_tokens=() if unknown is None else (unknown,),
        characters_per_token=0 if length is None else int(np.median(characters)),
    )


# Writing --------------------------------------------------------------------------------------


def write_static_modules(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder that sentence-transformers reads, with a StaticEmbedding as first module."""
    _write_files(checkpoint, folder, "embedding.weight", "")
    write_model_settings(folder, _embedding(checkpoint))


def write_model2vec(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a folder that Model2Vec reads.

    Raises:
      ValueError: if the model has layers, or Model2Vec would embed texts otherwise.
    """
    embedding = checkpoint.embedding or EmbeddingConfig()
    config = checkpoint.config
    if not is_static(config) or embedding.dense or embedding.prompts:
        raise ValueError(
            f"{checkpoint.source} has {config.num_hidden_layers} layers, {len(embedding.dense)} "
            f"layers after the pooling and {len(embedding.prompts)} prompts, but {MODEL2VEC} has "
            "only vectors of tokens; make them by bert_tf.distill_static, or write "
            "sentence_transformers."
        )
    _write_files(checkpoint, folder, "embeddings", ".")
    values = {
        "model_type": MODEL2VEC,
        "architectures": ["StaticModel"],
        "hidden_dim": config.hidden_size,
        "normalize": embedding.normalize,
        "pooling": "mean",
        "max_length": _max_length(embedding),
        "embedding_dtype": "float32",
    }
    write_json(folder / "config.json", values)


def _embedding(checkpoint: Checkpoint) -> EmbeddingConfig:
    if checkpoint.embedding is None:
        raise ValueError(f"{checkpoint.source} does not say how it embeds texts.")
    return checkpoint.embedding


def _write_files(checkpoint: Checkpoint, folder: pathlib.Path, name: str, place: str) -> None:
    """Writes the vectors under this name, tokenizer.json and the modules, the first in `place`."""
    vocab = checkpoint.vocab
    if vocab is None:
        raise ValueError(f"{checkpoint.source} has no vocabulary.")
    table = np.ascontiguousarray(checkpoint.weights[TABLE][rows_of_tokens(vocab)])
    metadata = {"format": "pt"}
    safetensors.numpy.save_file({name: table}, folder / WEIGHTS_FILE, metadata=metadata)
    embedding = _embedding(checkpoint)
    length = _max_length(embedding)
    lower = checkpoint.config.do_lower_case
    content = static_tokenizer_json(vocab, lower, length, embedding.skipped_tokens)
    write_json(folder / TOKENIZER_FILE, content)
    steps = embedding.steps(checkpoint.config.hidden_size)
    write_layers(folder, steps, checkpoint.weights, first=(STATIC, place))


def _max_length(embedding: EmbeddingConfig) -> int | None:
    """Returns the most tokens of a text, without special ones; None: no limit."""
    length = embedding.max_seq_length - NUM_SPECIAL
    return None if length >= NO_LIMIT else length
