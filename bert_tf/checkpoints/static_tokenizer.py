"""The tokenizer of a static embedder: a tokenizer.json that adds no special tokens.

The encoder packs every text between special tokens. A static embedder has none, so its vocabulary
gets some of its own, which no text contains; their rows are zeros, and the pooling skips them.
Files are written without them.
"""

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.byte_bpe_files import read_byte_bpe
from bert_tf.checkpoints.families.family import expect
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer
from bert_tf.checkpoints.sentencepiece_files import read_sentencepiece
from bert_tf.checkpoints.tokenizer_writing import wordpiece_json
from bert_tf.checkpoints.wordpiece_reading import read_wordpiece
from bert_tf.system.files import json_field, write_json
from bert_tf.text import tokenizer_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.vocab import BYTE_BPE, ROLES, WORDPIECE
from bert_tf.text.wordpiece_options import WordPieceOptions

OWN_TOKENS = {role: f"<static:{role}>" for role in ROLES}


def tokenizer_of(content: dict[str, Any], folder: pathlib.Path) -> FoundTokenizer:
    """Adds `OWN_TOKENS` to the content of a tokenizer.json, and returns the tokenizer.

    The order of the other tokens stays.

    Raises:
      ValueError: naming the file in `folder`, if it is of a kind that bert_tf does not have.
    """
    with tokenizer_json.naming_file(folder / tokenizer_json.TOKENIZER_FILE):
        roles = _add_own_tokens(content)
    layout = WordPieceOptions(
        special_tokens=tuple(roles[role] for role in ROLES), reads_special_tokens=True
    )
    # The readers of tokenizers read folders.
    with tempfile.TemporaryDirectory() as temporary:
        copy = pathlib.Path(temporary)
        write_json(copy / tokenizer_json.TOKENIZER_FILE, content)
        names = {f"{role}_token": token for role, token in roles.items()}
        write_json(copy / "special_tokens_map.json", names)
        try:
            return (
                read_sentencepiece(copy, None)
                or read_byte_bpe(copy, None)
                or read_wordpiece(copy, None, None, True, layout)
            )
        except ValueError as error:
            raise ValueError(str(error).replace(temporary, str(folder))) from None


def _add_own_tokens(content: dict[str, Any]) -> dict[str, str]:
    """Adds special tokens to the content of a tokenizer.json; returns the tokens by role."""
    model = content["model"]
    kind = model.get("type")
    added = content.get("added_tokens") or []
    ids = token_ids(content)
    roles = dict(OWN_TOKENS)
    known = {token["content"] for token in added}
    unknown = unknown_token(content)
    if kind == "Unigram":
        known.add(unknown)  # It may be an ordinary token, which no text is cut at.
    # Byte BPE knows all characters; its unknown token, if it has one, is only written in texts.
    if unknown in ids and (kind != "BPE" or unknown in known):
        roles["unk"] = unknown
    own = [token for token in roles.values() if token not in ids]
    start = max(ids.values(), default=-1) + 1
    if kind == "WordPiece":
        # Its ids leave no gaps, so tokens that are only added ones come after the new ones.
        start = len(model["vocab"])
        for token in added:
            token["id"] += len(own) if token["id"] >= start else 0
    ids |= {token: start + index for index, token in enumerate(own)}
    if kind != "Unigram":
        model["vocab"] |= {token: ids[token] for token in own}
    special = [AddedToken(token) for token in roles.values() if token not in known]
    content["added_tokens"] = [*added, *tokenizer_json.added_token_values(special, ids)]
    cls, sep = roles["cls"], roles["sep"]
    content["post_processor"] = tokenizer_json.template_processing((cls, ids[cls]), (sep, ids[sep]))
    # Lengths are those of the embedder, and padding has no effect on a text's own tokens.
    content["truncation"] = None
    content["padding"] = None
    return roles


def token_ids(content: dict[str, Any]) -> dict[str, int]:
    """Returns the ids of the model's tokens and of the added ones, by token."""
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram: [token, score], the ids are the positions.
        vocab = {token: index for index, (token, _) in enumerate(vocab)}
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    return {**added, **vocab}


def rows_of_tokens(vocab: AnyVocab) -> list[int]:
    """Returns the rows of a static embedder's tokens, without its own special tokens."""
    own = set(OWN_TOKENS.values())
    return [index for index, token in enumerate(vocab.tokens) if token not in own]


def unknown_token(content: dict[str, Any]) -> str | None:
    """Returns the unknown token of a tokenizer.json; None for a model without one."""
    model = content["model"]
    if model.get("type") == "Unigram":
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def stated_truncation(content: dict[str, Any], path: pathlib.Path) -> int | None:
    """Returns the number of tokens to which a tokenizer.json cuts texts; None: it does not.

    Raises:
      ValueError: if it cuts the beginning of texts.
    """
    truncation = json_field(content, "truncation", dict, path, nullable=True) or {}
    expect(truncation, path, direction="Right")
    return json_field(truncation, "max_length", int, path)


def static_tokenizer_json(
    vocab: AnyVocab, do_lower_case: bool, max_length: int | None, skipped: Sequence[int]
) -> dict[str, Any]:
    """Returns the tokenizer.json of a static embedder.

    Args:
      max_length: the number of tokens to which texts are cut; None: they are not.
      skipped: the tokens that its pooling skips.
    """
    content = tokenizer_content(vocab, do_lower_case)
    own = set(OWN_TOKENS.values())
    if vocab.kind == BYTE_BPE:
        # The model names its unknown token, though it knows all characters.
        names = [vocab.unk, *(vocab.tokens[index] for index in skipped)]
        content["model"]["unk_token"] = next((name for name in names if name not in own), None)
    without_tokens(content, own)
    content["post_processor"] = None
    if max_length is not None:
        content["truncation"] = {
            "direction": "Right",
            "max_length": max_length,
            "strategy": "LongestFirst",
            "stride": 0,
        }
    return content


def tokenizer_content(vocab: AnyVocab, do_lower_case: bool) -> dict[str, Any]:
    """Returns the tokenizer.json of any vocabulary."""
    if vocab.kind == WORDPIECE:
        return wordpiece_json(vocab, do_lower_case)
    return vocab.to_tokenizer_json()


def without_tokens(content: dict[str, Any], removed: set[str]) -> list[int]:
    """Removes tokens from the content of a tokenizer.json, and gives the others new ids.

    Returns:
      The previous id of each token, by its new id.
    """
    model = content["model"]
    unknown = unknown_token(content)
    kept = sorted(
        (index, name) for name, index in token_ids(content).items() if name not in removed
    )
    new_ids = {token: number for number, (_, token) in enumerate(kept)}
    if isinstance(model["vocab"], list):
        model["vocab"] = [pair for pair in model["vocab"] if pair[0] in new_ids]
        model["unk_id"] = new_ids[str(unknown)]
    else:
        model["vocab"] = {token: new_ids[token] for token in model["vocab"] if token in new_ids}
    content["added_tokens"] = [
        {**token, "id": new_ids[token["content"]]}
        for token in content["added_tokens"]
        if token["content"] in new_ids
    ]
    return [index for index, _ in kept]
