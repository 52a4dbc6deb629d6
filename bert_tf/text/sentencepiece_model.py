"""Reads SentencePiece's .model files as the fast tokenizers of transformers convert them.

The ids of a .model are not those of the encoder: RoBERTa's descendants have rows of fairseq before
them. The class of the tokenizer, in tokenizer_config.json, decides.
"""

import base64
import dataclasses
import json
import os
from typing import Any

from bert_tf import bounded_files
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.sentencepiece_vocab import SPACE_SYMBOL, SentencePieceVocab

MODEL_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
# Values of the protobuf's enumerations: the type of the unknown piece, and of a Unigram model.
_UNKNOWN = 2
_UNIGRAM = 1
# ALBERT's pieces that end in a digit and a comma are made improbable by its converter.
_NUMBER_COMMA_PENALTY = 100.0


@dataclasses.dataclass(frozen=True)
class _Layout:
    """How the tokens of a .model become the rows of an encoder.

    Args:
      before: tokens and scores of the rows before the pieces.
      skipped: the number of pieces at the start of the .model that have no row of their own.
      after: tokens of the rows after the pieces.
      names: the special tokens.
      num_separators, second_type: see `SentencePieceVocab`.
      is_albert: whether text is normalized as for ALBERT.
      is_mask_normalized: see `AddedToken.normalized`, unless tokenizer_config.json has it.
    """

    before: tuple[tuple[str, float], ...]
    skipped: int
    after: tuple[str, ...]
    names: dict[str, str]
    num_separators: int
    second_type: int
    is_albert: bool = False
    is_mask_normalized: bool = False


_ROBERTA_NAMES = {
    "cls": "<s>",
    "sep": "</s>",
    "pad": "<pad>",
    "unk": "<unk>",
    "mask": "<mask>",
}
_LAYOUTS = {
    "XLMRoberta": _Layout(
        before=(("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
        skipped=3,
        after=("<mask>",),
        names=_ROBERTA_NAMES,
        num_separators=2,
        second_type=0,
        is_mask_normalized=True,
    ),
    "Camembert": _Layout(
        before=(
            ("<s>NOTUSED", 0.0),
            ("<pad>", 0.0),
            ("</s>NOTUSED", 0.0),
            ("<unk>", 0.0),
            ("<unk>NOTUSED", -100.0),
        ),
        skipped=1,
        after=("<mask>",),
        names=_ROBERTA_NAMES,
        num_separators=2,
        second_type=0,
    ),
    "Albert": _Layout(
        before=(),
        skipped=0,
        after=(),
        names={
            "cls": "[CLS]",
            "sep": "[SEP]",
            "pad": "<pad>",
            "unk": "<unk>",
            "mask": "[MASK]",
        },
        num_separators=1,
        second_type=1,
        is_albert=True,
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
      path: the file.
      tokenizer_class: the class of transformers whose rows the encoder has.
      settings: of tokenizer_config.json; `do_lower_case` and `keep_accents` are ALBERT's.

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
    if not any(piece.type == _UNKNOWN for piece in proto.pieces):
        raise ValueError("the model has no unknown token; expected one.")
    pairs = list(layout.before)
    for piece in proto.pieces[layout.skipped :]:
        score = piece.score
        if layout.is_albert and _ends_in_number_comma(piece.piece):
            score -= _NUMBER_COMMA_PENALTY
        pairs.append((piece.piece, score))
    pairs.extend((token, 0.0) for token in layout.after)
    tokens = tuple(token for token, _ in pairs)
    return SentencePieceVocab(
        tokens=tokens,
        scores=tuple(score for _, score in pairs),
        merges=(),
        added_tokens=_added_tokens(layout, tokens, settings),
        normalizer=json.dumps(_normalizer(layout, proto, settings), ensure_ascii=False),
        pre_tokenizer=json.dumps(
            {
                "type": "Metaspace",
                "replacement": SPACE_SYMBOL,
                "prepend_scheme": "always",
                "split": True,
            },
            ensure_ascii=False,
        ),
        num_separators=layout.num_separators,
        second_type=layout.second_type,
        cls=layout.names["cls"],
        sep=layout.names["sep"],
        pad=layout.names["pad"],
        unk=layout.names["unk"],
        mask=layout.names["mask"],
    )


def _ends_in_number_comma(piece: str) -> bool:
    return len(piece) >= 2 and piece[-1] == "," and piece[-2].isdigit()


def _added_tokens(
    layout: _Layout, tokens: tuple[str, ...], settings: dict[str, Any]
) -> tuple[AddedToken, ...]:
    """Returns the added tokens of tokenizer_config.json, else the special tokens."""
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict) and decoder:
        names = [field.name for field in dataclasses.fields(AddedToken)]
        added = []
        for token in decoder.values():
            added.append(AddedToken(**{name: token[name] for name in names if name in token}))
        return tuple(token for token in added if token.content in tokens)
    added = []
    for name, content in layout.names.items():
        is_mask = name == "mask"
        added.append(
            AddedToken(content, lstrip=is_mask, normalized=is_mask and layout.is_mask_normalized)
        )
    return tuple(added)


def _normalizer(layout: _Layout, proto: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the normalizer of the converted tokenizer."""
    steps: list[dict[str, Any]] = []
    if layout.is_albert:
        for quotes in ("``", "''"):
            steps.append({"type": "Replace", "pattern": {"String": quotes}, "content": '"'})
        if not settings.get("keep_accents", False):
            steps.append({"type": "NFKD"})
            steps.append({"type": "StripAccents"})
        if settings.get("do_lower_case", True):
            steps.append({"type": "Lowercase"})
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap:
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
    if layout.is_albert:
        steps.append({**spaces, "content": " "})
    else:
        steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
        steps.append({**spaces, "content": SPACE_SYMBOL})
    return {"type": "Sequence", "normalizers": steps}
