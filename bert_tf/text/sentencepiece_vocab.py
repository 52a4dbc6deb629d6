"""Vocabulary of SentencePiece: Unigram, or BPE that spells unknown characters as bytes.

It is read from a tokenizer.json of Hugging Face's `tokenizers` and written as one. A .model file of
SentencePiece is read by `bert_tf.text.sentencepiece_model`.
"""

import base64
import dataclasses
import json
import os
import pathlib
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bert_tf.system.files import read_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.charsmap import check_charsmap
from bert_tf.text.fast_tokenizers import check_pattern, make_fast_tokenizer
from bert_tf.text.tokenizer_json import (
    TokenizerJsonVocab,
    added_token_values,
    bpe_model,
    check_packed_ids,
    make_vocab,
    naming_file,
    read_added_tokens,
    read_merge,
    read_post_processor,
    special_names,
    template_processing,
    tokens_in_id_order,
)
from bert_tf.text.vocab import SENTENCEPIECE_BPE, UNIGRAM

SPACE_SYMBOL = "\u2581"
METASPACE = {
    "type": "Metaspace",
    "replacement": SPACE_SYMBOL,
    "prepend_scheme": "always",
    "split": True,
}
# Steps of normalizers and pre-tokenizers that Python and the graph both have.
NORMALIZERS = frozenset(
    {"Precompiled", "Replace", "Strip", "NFKD", "StripAccents", "Lowercase", "Prepend"}
)
PRE_TOKENIZERS = frozenset({"Metaspace", "WhitespaceSplit", "Split", "Punctuation"})


class WordRules(NamedTuple):
    """Where the words of normalized text end, and which of them get U+2581: see Metaspace."""

    splits_at_blanks: bool = False
    splits_at_punctuation: bool = False
    prefix: str = ""  # always, first or never


@dataclasses.dataclass(frozen=True)
class SentencePieceVocab(TokenizerJsonVocab):
    """Immutable vocabulary of SentencePiece.

    Args:
      tokens: tokens in id order; the first token of a word starts with U+2581.
      scores: the log probability of each token, for Unigram; empty for BPE. The last tokens may
        have none: no text is divided into them. They are added tokens, or names of rows of the
        word table that no token has (`row_name`).
      merges: pairs of tokens in the order of merging, for BPE; empty for Unigram.
      added_tokens: tokens that are cut out of a text first, including the special tokens.
      normalizer: the normalizer of tokenizer.json, as JSON.
      pre_tokenizer: the pre-tokenizer of tokenizer.json, as JSON.
      cls, sep, pad, unk, mask: the special tokens.
      num_separators: the number of `sep` between two texts.
      second_type: type id of the second text.
      trim_offsets: whether a token's offsets exclude the space at its start.
      class_at_end, class_type: see `BaseVocab`.

    Raises:
      ValueError: if a token is duplicated, a token has no score and is not an added one, a special
        token is missing, or the normalizer or pre-tokenizer has a step that bert_tf lacks.
    """

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    added_tokens: tuple[AddedToken, ...]
    normalizer: str
    pre_tokenizer: str
    cls: str = "<s>"
    sep: str = "</s>"
    pad: str = "<pad>"
    unk: str = "<unk>"
    mask: str = "<mask>"
    num_separators: int = 2
    second_type: int = 0
    trim_offsets: bool = False
    class_at_end: bool = False
    class_type: int = 0

    space_mark: ClassVar[str] = SPACE_SYMBOL
    separates_punctuation: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", tuple(map(float, self.scores)))
        super().__post_init__()
        _check(self)

    @classmethod
    def read(cls, path: str | os.PathLike) -> "SentencePieceVocab":
        """Reads a tokenizer.json.

        Raises:
          ValueError: see the class; or if the file is corrupt or of another kind. The message
            names the file.
          OSError: if there is no such file.
        """
        path = pathlib.Path(path)
        content = read_json(path)
        with naming_file(path):
            return _from_tokenizer_json(path, content)

    def to_tokenizer_json(self, with_rows: bool = True) -> dict[str, Any]:
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": _added_tokens_json(self, with_rows),
            "normalizer": json.loads(self.normalizer),
            "pre_tokenizer": json.loads(self.pre_tokenizer),
            "post_processor": template_processing(
                (self.cls, self.cls_id),
                (self.sep, self.sep_id),
                self.num_separators,
                self.second_type,
                self.class_type if self.class_at_end else None,
            ),
            "decoder": _decoder_json(self),
            "model": _model_json(self),
        }

    def token_texts(self) -> tuple[str, ...]:
        """Returns the tokens as readable text; the first token of a word starts with a space."""
        return tuple(token.replace(SPACE_SYMBOL, " ") for token in self.tokens)

    @property
    def kind(self) -> Literal["unigram", "sentencepiece_bpe"]:
        return UNIGRAM if self.is_unigram else SENTENCEPIECE_BPE

    @property
    def title(self) -> str:
        return "SentencePiece Unigram" if self.is_unigram else "SentencePiece BPE with bytes"

    @property
    def sentence_separator(self) -> str:  # type: ignore[override]
        return "" if self.is_unigram else " "

    @property
    def is_unigram(self) -> bool:
        return bool(self.scores)

    def normalizer_steps(self) -> list[dict[str, Any]]:
        """Returns the steps of the normalizer, in order."""
        return _steps(json.loads(self.normalizer), "normalizers")

    def pre_tokenizer_steps(self) -> list[dict[str, Any]]:
        """Returns the steps of the pre-tokenizer, in order."""
        return _steps(json.loads(self.pre_tokenizer), "pretokenizers")

    def word_rules(self) -> WordRules:
        """Reads the pre-tokenizer; the prefix is "" if its steps are not known as rules."""
        rules = WordRules()
        for step in self.pre_tokenizer_steps():
            kind = step["type"]
            if rules.prefix:  # Only the last step replaces spaces.
                return WordRules()
            if kind == "WhitespaceSplit":
                rules = rules._replace(splits_at_blanks=True)
            elif kind == "Punctuation" and step.get("behavior") == "Isolated":
                rules = rules._replace(splits_at_punctuation=True)
            elif kind == "Metaspace" and step.get("split", True):
                prefix = step.get("prepend_scheme") or "always"
                has_none = step.get("add_prefix_space") is False
                rules = rules._replace(prefix="never" if has_none else prefix)
            else:
                return WordRules()
        return rules


def row_name(index: int) -> str:
    """Returns the name of a row of the word table that no token has."""
    return f"[row{index}]"


def is_sentencepiece(content: dict[str, Any]) -> bool:
    """Returns whether the content of a tokenizer.json is SentencePiece's, not byte-level BPE's."""
    model = content.get("model")
    if not isinstance(model, dict):
        return False
    # BPE without byte_fallback is byte-level BPE, see `bpe_vocab.py`.
    return model.get("type") == "Unigram" or bool(model.get("byte_fallback"))


def decode_charsmap(step: dict[str, Any]) -> bytes:
    """Returns the charsmap of a Precompiled step; ValueError if it is empty or not base64."""
    encoded = step.get("precompiled_charsmap")
    if not isinstance(encoded, str) or not encoded:
        raise ValueError(
            f"precompiled_charsmap is {encoded!r}, expected a charsmap in base64; remove the step "
            "Precompiled if the file has none."
        )
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise ValueError(f"precompiled_charsmap is not base64: {error}") from None


def _steps(part: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    if not part:
        return []
    if part.get("type") != "Sequence":
        return [part]
    steps = []
    for step in part[key]:
        steps.extend(_steps(step, key))
    return steps


def _check(vocab: SentencePieceVocab) -> None:
    """Raises the errors of `SentencePieceVocab`."""
    if bool(vocab.scores) == bool(vocab.merges):
        raise ValueError(
            f"received {len(vocab.scores)} scores and {len(vocab.merges)} merges; expected scores "
            "(Unigram) or merges (BPE)."
        )
    if vocab.scores:
        _check_number_of_scores(vocab)
    if not np.isfinite(vocab.scores).all():
        number = int(np.argmin(np.isfinite(vocab.scores)))
        raise ValueError(f"the score of {vocab.tokens[number]!r} is not a finite number.")
    for part, steps, known in (
        ("normalizer", vocab.normalizer_steps(), NORMALIZERS),
        ("pre_tokenizer", vocab.pre_tokenizer_steps(), PRE_TOKENIZERS),
    ):
        for step in steps:
            if step.get("type") not in known:
                raise ValueError(
                    f"{part} has the step {step.get('type')!r}; bert_tf has {sorted(known)}."
                )
        for step in steps:
            if step.get("type") == "Precompiled":
                check_charsmap(decode_charsmap(step))
            if step.get("type") in ("Replace", "Split"):
                check_pattern(step["pattern"])
    # Problems that the checks above miss would otherwise appear with the first text.
    make_fast_tokenizer(vocab.to_tokenizer_json(with_rows=False))


def _check_number_of_scores(vocab: SentencePieceVocab) -> None:
    """Raises ValueError unless each token has a score, is an added token, or names a row."""
    added = {token.content for token in vocab.added_tokens}
    num_scores = len(vocab.scores)
    unscored = []
    for index in range(num_scores, len(vocab.tokens)):
        token = vocab.tokens[index]
        if token not in added and token != row_name(index):
            unscored.append(token)
    if unscored or num_scores > len(vocab.tokens):
        raise ValueError(
            f"received {num_scores} scores for {len(vocab.tokens)} tokens; expected as many"
            f" (no score: {unscored[:5]})."
        )


def _from_tokenizer_json(path: pathlib.Path, content: dict[str, Any]) -> SentencePieceVocab:
    model = content["model"]
    added = read_added_tokens(path, content)
    packing: dict[str, Any] = read_post_processor(path, content.get("post_processor"))
    # A setting of byte-level BPE; the field of this class is not read from files.
    packing.pop("trim_offsets")
    names = {"cls": packing.pop("cls"), "sep": packing.pop("sep")}
    scores: list[float] = []
    merges: list[tuple[str, str]] = []
    if model.get("type") == "Unigram":
        tokens = [token for token, _ in model["vocab"]]
        scores = [score for _, score in model["vocab"]]
        if model.get("byte_fallback"):
            raise ValueError(f"{path}: Unigram with byte_fallback is not supported.")
        unk_id = model.get("unk_id")
        if type(unk_id) is not int or not 0 <= unk_id < len(tokens):
            raise ValueError(
                f"{path}: unk_id is {unk_id!r}; a Unigram model needs the id of an unknown token."
            )
        names["unk"] = tokens[unk_id]
    else:
        tokens = list(tokens_in_id_order(path, model["vocab"]))
        merges = [read_merge(path, merge) for merge in model["merges"]]
        names["unk"] = model.get("unk_token") or "<unk>"
    _append_added(path, tokens, added)
    check_packed_ids(path, content["post_processor"], tuple(tokens))
    rows = set()
    for token, index in added.values():
        # Written by `to_tokenizer_json(with_rows=True)`: the row exists, but no token has it.
        if scores and index >= len(scores) and token.content == row_name(index):
            rows.add(token.content)
    known = set(added) | {names["unk"]}
    return make_vocab(
        SentencePieceVocab,
        path,
        tokens=tuple(tokens),
        scores=tuple(scores),
        merges=tuple(merges),
        added_tokens=tuple(token for token, _ in added.values() if token.content not in rows),
        normalizer=json.dumps(content.get("normalizer"), ensure_ascii=False),
        pre_tokenizer=json.dumps(content.get("pre_tokenizer"), ensure_ascii=False),
        **packing,
        **special_names(path.parent, known, names),
    )


def _append_added(
    path: pathlib.Path, tokens: list[str], added: dict[str, tuple[AddedToken, int]]
) -> None:
    """Appends the added tokens whose ids follow those of the model.

    Raises:
      ValueError: if an added token has the id of another token.
    """
    for token, index in added.values():
        # An added token may be the next row after those of the model.
        if index == len(tokens):
            tokens.append(token.content)
        if index > len(tokens) or tokens[index] != token.content:
            raise ValueError(
                f"{path}: the added token {token.content!r} has id {index}, where the vocabulary "
                f"has {tokens[index : index + 1]}; expected the same token."
            )


def _added_tokens_json(vocab: SentencePieceVocab, with_rows: bool) -> list[dict[str, Any]]:
    """Returns the added tokens in the order of their ids."""
    named = list(vocab.added_tokens)
    if with_rows and vocab.is_unigram:
        known = {token.content for token in named}
        unscored = vocab.tokens[len(vocab.scores) :]
        named.extend(AddedToken(token) for token in unscored if token not in known)
        named.sort(key=lambda token: vocab.ids[token.content])
    return added_token_values(named, vocab.ids)


def _model_json(vocab: SentencePieceVocab) -> dict[str, Any]:
    """Returns the tokens with their scores or merges."""
    if vocab.is_unigram:
        return {
            "type": "Unigram",
            "unk_id": vocab.unk_id,
            # Tokens without a score are left out: no text is divided into them.
            "vocab": list(map(list, zip(vocab.tokens, vocab.scores, strict=False))),
            "byte_fallback": False,
        }
    return bpe_model(vocab, vocab.unk)


def _decoder_json(vocab: SentencePieceVocab) -> dict[str, Any]:
    """Returns how tokens become text again."""
    if vocab.is_unigram:
        return METASPACE
    space = {"type": "Replace", "pattern": {"String": SPACE_SYMBOL}, "content": " "}
    return {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
