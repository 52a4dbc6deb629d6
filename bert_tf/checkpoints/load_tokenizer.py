"""`bert_tf.load_tokenizer`: reads the tokenizer in a folder, in any format."""

import os
import pathlib
import typing

from bert_tf.checkpoints import tokenizer_files
from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.keras_archive import is_keras_file
from bert_tf.checkpoints.keras_archive import read_tokenizer as read_keras_tokenizer
from bert_tf.checkpoints.run_identity import check_files
from bert_tf.checkpoints.sentence_modules import is_sentence_transformers
from bert_tf.system.files import json_field, read_json
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.text_tokenizer import TextTokenizer
from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import Vocab

# Files with the number of tokens, and maybe the casing: of an export, a run, Hugging Face.
CONFIGURATIONS = ("bert_tf.json", "bert_config.json", "config.json")


def load_tokenizer(path: str | os.PathLike) -> TextTokenizer:
    """Reads a tokenizer without reading weights or loading TensorFlow.

    Args:
      path: a run directory; a .keras file; a folder of google-research/bert's or Hugging Face's; a
        version of a SavedModel that `export.saved_model` wrote, or its assets.extra; or a
        vocabulary alone: a vocab.txt, a tokenizer.json of byte-level BPE, or its vocab.json next to
        merges.txt. A keras-hub preset, or a name on a hub: see `bert_tf.checkpoints.hub`.

    Raises:
      ValueError: if it is missing, damaged or of an unknown kind, or files contradict each
        other.
    """
    path = local_path(path, with_weights=False)
    if is_keras_file(path):
        tokenizer = read_keras_tokenizer(path)
        if tokenizer is None:
            raise ValueError(f"{path} has no tokenizer; save a model that has a preprocessor.")
        return TextTokenizer(*tokenizer)
    if path.is_dir():
        check_files(path)
    if (path / "assets.extra").is_dir():
        path = path / "assets.extra"
    if (path / tokenizer_files.KERAS_HUB_VOCAB).is_file():
        return _load_keras_hub_tokenizer(path)
    for name in CONFIGURATIONS:
        if (path / name).is_file():
            values = read_json(path / name)
            size = json_field(values, "vocab_size", int, path / name)
            if size is None:
                raise ValueError(
                    f"{path / name} has no vocab_size; expected the configuration of a model."
                )
            stated = json_field(values, "do_lower_case", bool, path / name)
            found = tokenizer_files.read_tokenizer(
                path, size, stated, is_sentence_transformers(path)
            )
            if found.vocab is not None:
                return TextTokenizer(found.vocab, bool(found.do_lower_case))
    if path.is_dir() and (found := tokenizer_files.read_tokenizer(path, None)).vocab is not None:
        return TextTokenizer(found.vocab, bool(found.do_lower_case))
    if not path.is_file():
        names = ", ".join(VOCABULARY_FILES)
        raise ValueError(f"{path} has no tokenizer; expected one of {names}.")
    vocab = read_vocab(path)
    return TextTokenizer(vocab, check_casing(vocab, None, str(path)))


def _load_keras_hub_tokenizer(folder: pathlib.Path) -> TextTokenizer:
    file = folder / "config.json"
    values = read_json(file)
    key = tokenizer_files.KERAS_HUB_SIZES[tokenizer_files.keras_hub_class(values, file)]
    size = json_field(json_field(values, "config", dict, file) or {}, key, int, file)
    if size is None:
        raise ValueError(f"{file} has no {key}; expected that of a keras-hub preset.")
    found = tokenizer_files.read_keras_hub_tokenizer(folder, size)
    return TextTokenizer(typing.cast(Vocab, found.vocab), bool(found.do_lower_case))
