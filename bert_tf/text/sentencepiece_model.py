"""Reads SentencePiece's .model files as the fast tokenizers of transformers convert them.

The ids of a .model are not those of the encoder: RoBERTa's descendants have rows of fairseq before
them. The class of the tokenizer, in tokenizer_config.json, decides.
"""

import base64
import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

from bert_tf.system import bounded_files
from bert_tf.text.added_tokens import AddedToken, read_decoder
from bert_tf.text.fast_tokenizers import check_token_lengths
from bert_tf.text.sentencepiece_vocab import METASPACE, SPACE_SYMBOL, SentencePieceVocab
from bert_tf.text.vocab import ROLES

if TYPE_CHECKING:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

MODEL_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
CONFIG = "tokenizer_config.json"
# Values of the protobuf's enumerations: the type of the unknown token, and of a Unigram model.
_UNKNOWN = 2
_UNIGRAM = 1
# The converters make ALBERT's and XLNet's tokens that end in a digit and a comma improbable.
_NUMBER_COMMA_PENALTY = 100.0
_ALBERT = "albert"
_DEBERTA = "deberta"
_ROBERTA = "roberta"


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How the tokens of a .model become the rows of an encoder."""

    names: dict[str, Any]  # the special tokens
    # See `SentencePieceVocab`.
    num_separators: int = 1
    second_type: int = 1
    # Tokens and scores of the rows before those of the .model.
    before: tuple[tuple[str, float], ...] = ()
    skipped: int = 0  # the number of tokens at the start of the .model that have no row
    after: tuple[str, ...] = ()  # tokens of the rows after those of the .model, with scores of 0
    # Tokens of the rows after those, without scores: no text is divided into them.
    added: tuple[str, ...] = ()
    class_at_end: bool = False
    class_type: int = 0
    rules: str = _ROBERTA  # how text is normalized: as for ALBERT and XLNet, DeBERTa, or RoBERTa
    # Whether text is lower-cased, unless tokenizer_config.json has `do_lower_case`.
    lowers: bool = False
    mask_takes_space: bool = True  # see `AddedToken.lstrip`
    # See `AddedToken.normalized`, unless tokenizer_config.json has it.
    is_mask_normalized: bool = False
    other_special: tuple[str, ...] = ()  # further special tokens


def _names(*tokens: str) -> dict[str, Any]:
    """Returns special tokens by role, in the order of `ROLES`."""
    return dict(zip(ROLES, tokens, strict=True))


_ROBERTA_LAYOUT = _Layout(
    names=_names("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    num_separators=2,
    second_type=0,
    after=("<mask>",),
)
_LAYOUTS = {
    "XLMRoberta": dataclasses.replace(
        _ROBERTA_LAYOUT,
        before=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
        skipped=3,
        is_mask_normalized=True,
    ),
    "Camembert": dataclasses.replace(
        _ROBERTA_LAYOUT,
        before=(
            ("<s>NOTUSED", 0.0),
            ("<pad>", 0.0),
            ("</s>NOTUSED", 0.0),
            ("<unk>", 0.0),
            ("<unk>NOTUSED", -100.0),
        ),
        skipped=1,
    ),
    "Albert": _Layout(
        names=_names("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), rules=_ALBERT, lowers=True
    ),
    "DebertaV2": _Layout(
        names=_names("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        added=("[MASK]",),
        rules=_DEBERTA,
        mask_takes_space=False,
    ),
    "XLNet": _Layout(
        names=_names("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"),
        class_at_end=True,
        class_type=2,
        rules=_ALBERT,
        is_mask_normalized=True,
        other_special=("<s>", "</s>", "<eop>", "<eod>"),
    ),
}


def has_layout(tokenizer_class: str) -> bool:
    """Returns whether the rows of a tokenizer class of transformers are known."""
    return _layout_name(tokenizer_class) in _LAYOUTS


def _layout_name(tokenizer_class: str) -> str:
    return tokenizer_class.removesuffix("Fast").removesuffix("Tokenizer")


def read_model(
    path: str | os.PathLike, tokenizer_class: str, settings: dict[str, Any]
) -> SentencePieceVocab:
    """Reads a .model of SentencePiece.

    Args:
      tokenizer_class: the class of transformers whose rows the encoder has.
      settings: the content of tokenizer_config.json: `keep_accents` of ALBERT and XLNet,
        `split_by_punct` of DeBERTa, `do_lower_case` of all three.

    Raises:
      ValueError: if the file is corrupt, not Unigram, or the class is unknown.
    """
    try:
        return make_vocab(bounded_files.read_bytes(path), tokenizer_class, settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def make_vocab(model: bytes, tokenizer_class: str, settings: dict[str, Any]) -> SentencePieceVocab:
    """Returns the vocabulary of an encoder for the content of a .model; see `read_model`."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    layout = _LAYOUTS.get(_layout_name(tokenizer_class))
    if layout is None:
        raise ValueError(
            f"the rows of {tokenizer_class or 'an unnamed tokenizer'} are not known, only those of "
            f"{', '.join(_LAYOUTS)}; save the tokenizer as tokenizer.json."
        )
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise ValueError(f"not a model of SentencePiece ({error}).") from None
    if proto.trainer_spec.model_type != _UNIGRAM:
        raise ValueError("expected a Unigram model; save it as tokenizer.json.")
    if not any(entry.type == _UNKNOWN for entry in proto.pieces):
        raise ValueError("the model has no unknown token; expected one.")
    check_token_lengths((entry.piece for entry in proto.pieces), "the model")
    # The rows of the encoder: those of fairseq, of the .model, and of the tokenizer class.
    pairs = list(layout.before)
    for entry in proto.pieces[layout.skipped :]:
        score = entry.score
        if layout.rules == _ALBERT and _ends_in_number_comma(entry.piece):
            score -= _NUMBER_COMMA_PENALTY
        pairs.append((entry.piece, score))
    pairs.extend((token, 0.0) for token in layout.after)
    scored = [token for token, _ in pairs]
    tokens = tuple(scored + _tokens_after(layout, scored, settings))
    return SentencePieceVocab(
        tokens=tokens,
        scores=tuple(score for _, score in pairs),
        merges=(),
        added_tokens=_added_tokens(layout, tokens, settings),
        normalizer=json.dumps(_normalizer(layout, proto, settings), ensure_ascii=False),
        pre_tokenizer=json.dumps(_pre_tokenizer(layout, settings), ensure_ascii=False),
        num_separators=layout.num_separators,
        second_type=layout.second_type,
        class_at_end=layout.class_at_end,
        class_type=layout.class_type,
        **layout.names,
    )


def _tokens_after(layout: _Layout, scored: list[str], settings: dict[str, Any]) -> list[str]:
    """Returns the tokens of the rows after the scored ones: those of the class, then added."""
    tokens = [token for token in layout.added if token not in scored]
    known = {*scored, *tokens}
    for index, token in sorted(read_decoder(settings, CONFIG).items()):
        # Rows have no gaps: a token counts only if its id is the next row.
        if index == len(scored) + len(tokens) and token.content not in known:
            tokens.append(token.content)
            known.add(token.content)
    return tokens


def _ends_in_number_comma(token: str) -> bool:
    return len(token) >= 2 and token[-1] == "," and token[-2].isdigit()


def _added_tokens(
    layout: _Layout, tokens: tuple[str, ...], settings: dict[str, Any]
) -> tuple[AddedToken, ...]:
    """Returns the added tokens of tokenizer_config.json, else the special tokens."""
    stated = read_decoder(settings, CONFIG)
    if stated:
        return tuple(token for token in stated.values() if token.content in tokens)
    added = []
    for name, content in layout.names.items():
        is_mask = name == "mask"
        # DeBERTa's tokenizer makes its unknown token a normalized one.
        is_normalized = name == "unk" and layout.rules == _DEBERTA
        if is_mask:
            is_normalized = layout.is_mask_normalized
        takes_space = is_mask and layout.mask_takes_space
        added.append(AddedToken(content, lstrip=takes_space, normalized=is_normalized))
    added.extend(AddedToken(content) for content in layout.other_special if content in tokens)
    return tuple(added)


def _pre_tokenizer(layout: _Layout, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the pre-tokenizer of the converted tokenizer."""
    if layout.rules != _DEBERTA:
        return METASPACE
    steps: list[dict[str, Any]] = [METASPACE]
    if settings.get("split_by_punct"):
        steps.insert(0, {"type": "Punctuation", "behavior": "Isolated"})
    return {"type": "Sequence", "pretokenizers": steps}


def _normalizer(layout: _Layout, proto: "ModelProto", settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the normalizer of the converted tokenizer."""
    steps: list[dict[str, Any]] = []
    # The steps and their order are those of transformers' convert_slow_tokenizer.py.
    lowers = settings.get("do_lower_case")
    if lowers is None:
        lowers = layout.lowers
    if layout.rules == _DEBERTA:
        if lowers:
            steps.append({"type": "Lowercase"})
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
    if layout.rules == _ALBERT:
        # LaTeX's quotes, as in the preprocessing of ALBERT and XLNet.
        for quotes in ("``", "''"):
            steps.append({"type": "Replace", "pattern": {"String": quotes}, "content": '"'})
        if not settings.get("keep_accents", False):
            steps.append({"type": "NFKD"})
            steps.append({"type": "StripAccents"})
        if lowers:
            steps.append({"type": "Lowercase"})
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
    if layout.rules in (_ALBERT, _DEBERTA):
        steps.append({**spaces, "content": " "})
    else:
        steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
        steps.append({**spaces, "content": SPACE_SYMBOL})
    return {"type": "Sequence", "normalizers": steps}
