"""Reads how Hugging Face's files say that WordPiece splits texts.

tokenizer_config.json    strip_accents, tokenize_chinese_chars
tokenizer.json           the same in the normalizer, and max_input_chars_per_word in the model
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from bert_tf.system.files import json_field
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

# Hugging Face's default, which nearly every tokenizer.json has, whatever its model was trained by.
HUGGING_FACE_LIMIT = 100


FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")


@dataclasses.dataclass(frozen=True)
class StatedRules:
    """The rules of splitting that one file states; None where it states none.

    Args:
      accents: "strip", "keep", or "lower" for stripping exactly where text is lower-cased.
    """

    accents: str | None = None
    splits_ideographs: bool | None = None
    max_word_characters: int | None = None


def rules_in_config(values: dict[str, Any], path: pathlib.Path) -> StatedRules:
    """Returns the rules that a tokenizer_config.json states.

    Raises:
      ValueError: if a field has another type.
    """
    return StatedRules(
        accents=_accents(values, path),
        splits_ideographs=json_field(values, "tokenize_chinese_chars", bool, path),
    )


def rules_in_tokenizer_json(
    normalizer: dict[str, Any], model: dict[str, Any], path: pathlib.Path
) -> StatedRules:
    """Returns the rules that a tokenizer.json states.

    Raises:
      ValueError: if a field has another type, or words may have no character.
    """
    limit = json_field(model, "max_input_chars_per_word", int, path, nullable=True)
    if limit is not None and limit < 1:
        raise ValueError(f"{path}: max_input_chars_per_word is {limit}, expected a number above 0.")
    return StatedRules(
        accents=_accents(normalizer, path),
        splits_ideographs=json_field(normalizer, "handle_chinese_chars", bool, path),
        max_word_characters=limit,
    )


def _accents(values: dict[str, Any], path: pathlib.Path) -> str | None:
    if "strip_accents" not in values:
        return None
    strips = json_field(values, "strip_accents", bool, path, nullable=True)
    if strips is None:
        return "lower"
    return "strip" if strips else "keep"


def make_options(
    stated: dict[str, StatedRules],
    lower: bool,
    source: str,
    layout: WordPieceOptions = DEFAULT_OPTIONS,
) -> WordPieceOptions:
    """Returns the options that the files of a folder state.

    Raises:
      ValueError: if two files contradict each other.
    """
    default = "strip" if lower else "keep"
    accents: dict[str, str] = {}
    ideographs: dict[str, bool] = {}
    limits: list[int] = []
    for name, rules in stated.items():
        if rules.accents is not None:
            # null in a file: accents are stripped exactly where text is lower-cased.
            accents[name] = default if rules.accents == "lower" else rules.accents
        if rules.splits_ideographs is not None:
            ideographs[name] = rules.splits_ideographs
        if rules.max_word_characters is not None:
            limits.append(rules.max_word_characters)
    for key, values in (("strip_accents", accents), ("tokenize_chinese_chars", ideographs)):
        if len(set(values.values())) > 1:
            raise ValueError(
                f"{source}: the files state different rules for {key}: {values}; correct one of "
                "them."
            )
    options = dataclasses.replace(
        layout,
        splits_ideographs=next(iter(ideographs.values()), True),
        # Only a tokenizer.json states a limit, so there is at most one.
        max_word_characters=limits[0] if limits else HUGGING_FACE_LIMIT,
    )
    found = next(iter(accents.values()), default)
    # The option's default, None, already follows the casing.
    if found != default:
        options = dataclasses.replace(options, strip_accents=found == "strip")
    return options


def without_usual_limit(options: WordPieceOptions) -> WordPieceOptions:
    """Returns default options where only Hugging Face's usual limit differs from them.

    Hugging Face writes this limit of 100 characters for every model, and those that were trained by
    google-research/bert know words of up to 200 characters.
    """
    if options == WordPieceOptions(max_word_characters=HUGGING_FACE_LIMIT):
        return DEFAULT_OPTIONS
    return options


def added_token(values: dict[str, Any], path: pathlib.Path) -> AddedToken:
    """Returns an added token of a tokenizer.json or tokenizer_config.json.

    Raises:
      ValueError: if it has no content, or a flag is not true or false.
    """
    content = values.get("content")
    if not isinstance(content, str) or not content:
        raise ValueError(
            f"{path}: the added token {values!r:.200} has no content, expected a text."
        )
    flags = {}
    for name in FLAGS:
        flags[name] = json_field(values, name, bool, path) or False
    if "normalized" not in values:  # As in Hugging Face's tokenizers.
        flags["normalized"] = not flags["special"]
    return AddedToken(content, **flags)


def without_flags(content: str, options: WordPieceOptions = DEFAULT_OPTIONS) -> AddedToken:
    """Returns an added token as transformers reads one whose file states no flags."""
    is_special = content in (options.special_tokens or SPECIAL_TOKENS)
    return AddedToken(content, special=is_special, normalized=not is_special)


def with_added_tokens(
    options: WordPieceOptions, tokens: Sequence[AddedToken], only_added: Sequence[str]
) -> WordPieceOptions:
    """Returns the options with the added tokens of a folder.

    The five special tokens are among the result only if there are others, and only if their flags
    are unusual: see `WordPieceOptions.tokens_to_find`.
    """
    special_tokens = options.special_tokens or SPECIAL_TOKENS
    kept = []
    for token in tokens:
        if token.content not in special_tokens or token != AddedToken(token.content):
            kept.append(token)
    if all(token.content in special_tokens for token in kept) and not options.reads_special_tokens:
        kept = []
    return dataclasses.replace(options, added_tokens=tuple(kept), only_added=tuple(only_added))


def model_tokens(vocab: Vocab) -> tuple[str, ...]:
    """Returns the tokens of a vocabulary up to the last that is more than an added token.

    Hugging Face's files have the added tokens apart, and no names of rows behind them.
    """
    only_added = set(vocab.options.only_added)
    end = len(vocab)
    while (
        only_added
        and end
        and (vocab.tokens[end - 1] in only_added or vocab.tokens[end - 1] == f"[row{end - 1}]")
    ):
        end -= 1
    return vocab.tokens[:end]


def added_token_values(vocab: Vocab) -> list[dict[str, Any]]:
    """Returns the added tokens of a tokenizer.json, the special tokens among them, by their ids."""
    tokens = {token: AddedToken(token) for token in vocab.special_tokens}
    # Flags that the options state replace the usual ones of special tokens.
    tokens |= {token.content: token for token in vocab.options.added_tokens}
    values = []
    for content, token in sorted(tokens.items(), key=lambda pair: vocab.ids[pair[0]]):
        values.append({"id": vocab.ids[content], **dataclasses.asdict(token)})
    return values
