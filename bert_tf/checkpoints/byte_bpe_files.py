"""Reads the byte BPE tokenizer of a folder: tokenizer.json, or vocab.json and merges.txt."""

import dataclasses
import pathlib
import re

from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.checkpoints.tokenizer_settings import check_special_tokens, with_stated_tokens
from bert_tf.system.files import json_field, read_optional_json
from bert_tf.text.bpe_vocab import MERGES_FILE, VOCAB_FILE, BpeVocab
from bert_tf.text.tokenizer_json import TOKENIZER_FILE

# Tokenizers of transformers that split as RoBERTa's does, and those that say nothing of it.
BYTE_BPE_CLASSES = re.compile(r"(Roberta|GPT2|PreTrained)Tokenizer(Fast)?|TokenizersBackend")


def read_byte_bpe(folder: pathlib.Path, num_rows: int | None) -> FoundTokenizer | None:
    """Reads a byte BPE tokenizer, or returns None if the folder has none.

    If both forms of files exist, they must agree.

    Raises:
      ValueError: naming the file that is missing or contradicts another.
    """
    path = folder / TOKENIZER_FILE
    model = json_field(read_optional_json(path), "model", dict, path) or {}
    pair = [folder / VOCAB_FILE, folder / MERGES_FILE]
    missing = [path for path in pair if not path.exists()]
    if len(missing) == 2 and model.get("type") != "BPE":
        return None
    if len(missing) == 1:
        other = next(path for path in pair if path.exists())
        raise ValueError(
            f"{missing[0]} is missing, but {other.name} needs it; copy it also (a "
            f"{TOKENIZER_FILE} alone, without {other.name}, is enough)."
        )
    if (folder / "vocab.txt").exists():
        raise ValueError(
            f"{folder} holds two tokenizers, WordPiece's vocab.txt and byte BPE's; remove one of "
            f"them."
        )
    path = folder / "tokenizer_config.json"
    values = read_optional_json(path)
    name = json_field(values, "tokenizer_class", str, path, nullable=True)
    if name and not BYTE_BPE_CLASSES.fullmatch(name):
        raise ValueError(f"{path}: tokenizer_class is {name}, but the vocabulary is byte BPE's.")
    # tokenizer.json first, because it also has the flags of added tokens.
    found = [BpeVocab.read(path) for path in (folder / TOKENIZER_FILE, pair[0]) if path.exists()]
    if len(found) == 2:
        _check_same(found[0], found[1], folder)
    vocab = with_stated_tokens(folder, found[0])
    check_special_tokens(folder, vocab)
    added_path = folder / "added_tokens.json"
    added = read_optional_json(added_path)
    unknown = [token for token, index in added.items() if vocab.ids.get(token) != index]
    if unknown:
        raise ValueError(
            f"{added_path}: the vocabulary has no {unknown[:5]} with these ids; save the tokenizer "
            f"as {TOKENIZER_FILE}, which holds everything."
        )
    # As in transformers, where this file has the last word.
    has_prefix = json_field(values, "add_prefix_space", bool, path)
    if has_prefix is not None:
        vocab = dataclasses.replace(vocab, add_prefix_space=has_prefix)
    filled, notes = fill_up(vocab, num_rows, str(folder))
    return FoundTokenizer(filled, False, False, notes)


def _check_same(whole: BpeVocab, pair: BpeVocab, folder: pathlib.Path) -> None:
    """Raises ValueError unless vocab.json and merges.txt are those of tokenizer.json."""
    other = [token for token, index in pair.ids.items() if whole.ids.get(token) != index]
    if other:
        raise ValueError(
            f"{folder / VOCAB_FILE} gives {len(other)} tokens another id than {TOKENIZER_FILE}, "
            f"{other[0]!r} first; they do not belong together."
        )
    if pair.merges != whole.merges:
        raise ValueError(
            f"{folder / MERGES_FILE} has other merges than {TOKENIZER_FILE} ({len(pair.merges)} "
            f"and {len(whole.merges)}); they do not belong together."
        )
