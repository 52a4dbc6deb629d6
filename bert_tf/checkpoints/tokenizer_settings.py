"""Settings of tokenizer_config.json that change ids, checked against the vocabulary that was read.

In transformers this file overrules a tokenizer.json, a vocabulary or a .model. What bert_tf
does not read there, or reads from another file, is refused where it says something else.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from bert_tf.system.files import json_field, read_optional_json
from bert_tf.text.added_tokens import read_decoder
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tokenizer_json import SPECIAL_TOKENS_MAP, TOKENIZER_FILE, TokenizerJsonVocab
from bert_tf.text.vocab import ROLES

FLAGS = ("lstrip", "rstrip", "normalized")
JsonVocabT = TypeVar("JsonVocabT", BpeVocab, SentencePieceVocab)
# Settings of ALBERT's, DeBERTa's and XLNet's tokenizers: the step of a tokenizer.json, and whether
# it is there where the setting is true.
STEPS = {
    "do_lower_case": ("Lowercase", True),
    "keep_accents": ("StripAccents", False),
    "split_by_punct": ("Punctuation", True),
}
HAVE_STEPS = {
    "Albert": ("do_lower_case", "keep_accents"),
    "XLNet": ("do_lower_case", "keep_accents"),
    "DebertaV2": ("do_lower_case", "split_by_punct"),
}


def check_named_tokens(
    folder: pathlib.Path, known: Iterable[str], roles: Mapping[str, str]
) -> None:
    """Raises ValueError if a folder's settings name special tokens that the vocabulary lacks.

    They are in tokenizer_config.json, and in special_tokens_map.json where the former lists no
    added tokens: transformers then reads both. It gives a token that the other files do not have an
    id of its own, and finds a word of the vocabulary that is named here anywhere in a text.

    Args:
      known: the special and added tokens.
      roles: the special tokens by name: cls, sep, pad, unk, mask; those left out may be any.
    """
    path = folder / "tokenizer_config.json"
    paths = [path]
    if "added_tokens_decoder" not in read_optional_json(path):
        paths.append(folder / SPECIAL_TOKENS_MAP)
    known = {*known, *roles.values()}
    for path in paths:
        for key, content in _named_tokens(read_optional_json(path), path):
            allowed = sorted(known)
            if (role := key.removesuffix("_token")) in roles:
                allowed = [roles[role]]
            if content not in allowed:
                raise ValueError(
                    f"{path}: {key} is {content!r}, but the vocabulary has {allowed[:20]} there; "
                    "correct the name, or save the tokenizer again."
                )


def _named_tokens(values: dict[str, Any], path: pathlib.Path) -> list[tuple[str, str]]:
    """Returns (key, token) for all special tokens that are named; a token may have flags."""
    found = [(f"{role}_token", values.get(f"{role}_token")) for role in (*ROLES, "bos", "eos")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        listed = values.get(key) or []
        if not isinstance(listed, list | dict):
            raise ValueError(f"{path}: {key} is {listed!r:.200}, expected a list of tokens.")
        for token in listed.values() if isinstance(listed, dict) else listed:
            found.append((key, token))
    named = []
    for key, token in found:
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            named.append((key, content))
    return named


def omits_types(folder: pathlib.Path) -> bool:
    """Returns whether a folder's tokenizer gives its model no types: both texts then have type 0.

    Raises:
      ValueError: if `model_input_names` is no list.
    """
    path = folder / "tokenizer_config.json"
    names = json_field(read_optional_json(path), "model_input_names", list, path, nullable=True)
    return names is not None and "token_type_ids" not in names


def check_special_tokens(folder: pathlib.Path, vocab: TokenizerJsonVocab) -> None:
    """Raises ValueError if tokenizer_config.json names other special tokens than a vocabulary."""
    added = [token.content for token in vocab.added_tokens]
    check_named_tokens(folder, added, {role: getattr(vocab, role) for role in ROLES})


def with_stated_tokens(folder: pathlib.Path, vocab: JsonVocabT) -> JsonVocabT:
    """Returns the vocabulary with the flags of `added_tokens_decoder`, which has the last word.

    Raises:
      ValueError: if a token is not among the added ones, or has another id.
    """
    path = folder / "tokenizer_config.json"
    added = {token.content: token for token in vocab.added_tokens}
    for index, token in read_decoder(read_optional_json(path), path).items():
        if token.content not in added or vocab.ids[token.content] != index:
            raise ValueError(
                f"{path}: added_tokens_decoder has {token.content!r:.200} for {index}, which is no "
                "added token of the vocabulary; save the tokenizer as tokenizer.json."
            )
        if token.single_word:
            raise ValueError(f"{path}: {token.content!r} has single_word, expected false.")
        stated = {name: getattr(token, name) for name in FLAGS}
        added[token.content] = dataclasses.replace(added[token.content], **stated)
    return dataclasses.replace(vocab, added_tokens=tuple(added.values()))


def check_steps(folder: pathlib.Path, vocab: SentencePieceVocab, name: str) -> None:
    """Raises ValueError if settings of a tokenizer's class contradict the steps that were read."""
    path = folder / "tokenizer_config.json"
    values = read_optional_json(path)
    steps = {step["type"] for step in (*vocab.normalizer_steps(), *vocab.pre_tokenizer_steps())}
    for key in HAVE_STEPS.get(name, ()):
        stated = json_field(values, key, bool, path, nullable=True)
        step, is_there = STEPS[key]
        if stated is not None and (step in steps) != (stated == is_there):
            raise ValueError(
                f"{path}: {key} is {json.dumps(stated)}, but the tokenizer "
                f"{'has' if step in steps else 'lacks'} the step {step}; correct one of them."
            )
    is_prefixed = json_field(values, "add_prefix_space", bool, path, nullable=True)
    schemes = {step.get("prepend_scheme") for step in vocab.pre_tokenizer_steps()}
    # DeBERTa's tokenizer does not read the setting.
    if is_prefixed is False and "never" not in schemes and name != "DebertaV2":
        raise ValueError(
            f"{path}: add_prefix_space is false, but the tokenizer puts a space before a text; "
            "remove the setting, or save the tokenizer again."
        )
    ends = {key: values.get(key) for key in ("add_bos_token", "add_eos_token")}
    is_usual = list(ends.values()) in ([None, None], [True, True])
    # Only ALBERT's tokenizer reads them, and only to make one of a .model.
    if name == "Albert" and not is_usual and not (folder / TOKENIZER_FILE).exists():
        raise ValueError(
            f"{path}: {ends} leaves out special tokens, which bert_tf always adds; remove both."
        )
