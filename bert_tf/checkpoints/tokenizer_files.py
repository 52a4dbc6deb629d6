"""Reads the tokenizer that belongs to a checkpoint, of the first kind whose files a folder has.

    sentencepiece_files    tokenizer.json, *.model
    byte_bpe_files         tokenizer.json; vocab.json and merges.txt
    wordpiece_reading      vocab.txt, tokenizer_config.json, tokenizer.json

Casing decides the tokens of WordPiece, and a wrong one is easily overlooked: files that contradict
each other, or the vocabulary, are an error.
"""

import pathlib
from typing import Any

from bert_tf.checkpoints.byte_bpe_files import read_byte_bpe
from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.checkpoints.sentencepiece_files import read_sentencepiece
from bert_tf.checkpoints.wordpiece_reading import read_wordpiece
from bert_tf.config import UNLIMITED
from bert_tf.system.files import json_field, read_optional_json
from bert_tf.text.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.vocab import Vocab

KERAS_HUB_VOCAB = pathlib.PurePath("assets", "tokenizer", "vocabulary.txt")
# By the class of a preset: the field of its config.json with the number of tokens.
KERAS_HUB_SIZES = {"BertBackbone": "vocabulary_size", "ElectraBackbone": "vocab_size"}


def read_tokenizer(
    folder: pathlib.Path,
    num_rows: int | None,
    stated: bool | None = None,
    as_transformers: bool = False,
) -> FoundTokenizer:
    """Reads the tokenizer's files of a folder.

    Args:
      folder: may lack any of the files.
      num_rows: rows of the word table; a shorter vocabulary is filled up. None: there is no model.
      stated: the casing that the model's own configuration states, if it does.
      as_transformers: whether WordPiece splits every text exactly as transformers does: it reads
        special tokens written in a text, and knows no words longer than the files say.

    Raises:
      ValueError: if the files contradict each other, the vocabulary or the tokenizer that we have.
    """
    path = folder / "tokenizer_config.json"
    if read_optional_json(path).get("split_special_tokens"):
        raise ValueError(
            f"{path}: split_special_tokens is true, but bert_tf always reads special tokens as "
            "one token each; remove it."
        )
    for read in (read_sentencepiece, read_byte_bpe):
        if found := read(folder, num_rows):
            return found
    return read_wordpiece(folder, num_rows, stated, as_transformers)


def model_max_length(folder: pathlib.Path) -> int | None:
    """Returns the maximum length of a row that tokenizer_config.json states; None: no limit.

    transformers writes 1e30 for a tokenizer without a limit.

    Raises:
      ValueError: if it is not a number above 0.
    """
    path = folder / "tokenizer_config.json"
    length = read_optional_json(path).get("model_max_length")
    if length is None:
        return None
    is_number = isinstance(length, int | float) and not isinstance(length, bool)
    if not is_number or not length > 0:
        raise ValueError(f"{path}: model_max_length is {length!r}, expected a number above 0.")
    if length < UNLIMITED:
        return int(length)
    return None


def truncates_beginning(folder: pathlib.Path) -> bool:
    """Returns whether texts are cut at their beginning, by tokenizer_config.json.

    Without a statement there, transformers takes that of a tokenizer.json.

    Raises:
      ValueError: if it is neither left nor right.
    """
    path = folder / "tokenizer_config.json"
    side = json_field(read_optional_json(path), "truncation_side", str, path, nullable=True)
    if side is None:
        path = folder / TOKENIZER_FILE
        values = read_optional_json(path)
        truncation = json_field(values, "truncation", dict, path, nullable=True) or {}
        side = str(truncation.get("direction", "right")).lower()
    if side not in ("left", "right"):
        raise ValueError(f"{path}: truncation_side is {side!r}, expected 'left' or 'right'.")
    return side == "left"


def keras_hub_class(values: dict[str, Any], path: pathlib.Path) -> str:
    """Returns the class that the config.json of a keras-hub preset names, of `KERAS_HUB_SIZES`.

    Raises:
      ValueError: if it is another one.
    """
    name = values.get("class_name")
    if name not in tuple(KERAS_HUB_SIZES):
        raise ValueError(
            f"{path}: class_name is {name!r}, expected 'BertBackbone' or 'ElectraBackbone'."
        )
    return str(name)


def read_keras_hub_tokenizer(folder: pathlib.Path, num_rows: int) -> FoundTokenizer:
    """Reads the tokenizer of a keras-hub preset: its vocabulary.txt, and tokenizer.json if there.

    Args:
      num_rows: rows of the word table; a shorter vocabulary is filled up.

    Raises:
      ValueError: if the files contradict each other or the vocabulary.
    """
    vocab, notes = fill_up(Vocab.read(folder / KERAS_HUB_VOCAB), num_rows, str(folder))
    file = folder / TOKENIZER_FILE
    values = json_field(read_optional_json(file), "config", dict, file) or {}
    stated = json_field(values, "lowercase", bool, file)
    if stated and not values.get("strip_accents"):
        notes += (
            "keras-hub's tokenizer of this preset keeps accents; bert_tf strips them, as Google's "
            "does.",
        )
    return FoundTokenizer(vocab, check_casing(vocab, stated, str(folder)), stated, notes)
