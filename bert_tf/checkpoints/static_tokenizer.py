"""The tokenizer of a static embedder: a tokenizer.json that adds no special tokens.

The encoder packs every text between special tokens. A static embedder has none, so its vocabulary
gets some of its own, which no text contains; their rows are zeros, and the pooling skips them.
Files are written without them.
"""

import copy
import json
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints.byte_bpe_files import read_byte_bpe
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer
from bert_tf.checkpoints.sentencepiece_files import read_sentencepiece
from bert_tf.checkpoints.tokenizer_writing import wordpiece_json
from bert_tf.checkpoints.wordpiece_reading import read_wordpiece
from bert_tf.system.files import json_field, read_json
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer_json import TOKENIZER_FILE, naming_file, template_processing
from bert_tf.text.vocab import BYTE_BPE, ROLES, WORDPIECE
from bert_tf.text.wordpiece_options import WordPieceOptions

OWN_TOKENS = {role: f"<static:{role}>" for role in ROLES}


def read_static_tokenizer(path: pathlib.Path) -> FoundTokenizer:
    """Reads a tokenizer.json and adds `OWN_TOKENS`; the order of the other tokens stays.

    Raises:
      ValueError: if it is missing, corrupt or of a kind that bert_tf does not have.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing; copy it to the other files of the model.")
    return tokenizer_of(read_json(path), path)


def tokenizer_of(content: dict[str, Any], path: pathlib.Path) -> FoundTokenizer:
    """Returns the tokenizer of the content of a tokenizer.json; see `read_static_tokenizer`."""
    content = copy.deepcopy(content)
    with naming_file(path):
        roles = _add_own_tokens(content)
    # The readers of tokenizers read folders.
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / TOKENIZER_FILE).write_text(json.dumps(content), "utf8")
        names = {f"{role}_token": token for role, token in roles.items()}
        (folder / "special_tokens_map.json").write_text(json.dumps(names), "utf8")
        layout = WordPieceOptions(
            special_tokens=tuple(roles[role] for role in ROLES), reads_special_tokens=True
        )
        try:
            for read in (read_sentencepiece, read_byte_bpe):
                if found := read(folder, None):
                    return found
            return read_wordpiece(folder, None, None, True, layout)
        except ValueError as error:
            # The message names the file of the user.
            message = str(error).replace(str(folder / TOKENIZER_FILE), str(path))
            raise ValueError(message.replace(str(folder), str(path.parent))) from None


def _add_own_tokens(content: dict[str, Any]) -> dict[str, str]:
    """Adds special tokens to the content of a tokenizer.json; returns the tokens by role."""
    model = content["model"]
    added = content.get("added_tokens") or []
    content["added_tokens"] = added
    ids = token_ids(content)
    roles = dict(OWN_TOKENS)
    known = {token["content"] for token in added}
    unknown = unknown_token(content)
    if model.get("type") == "Unigram":
        known.add(unknown)  # It may be an ordinary token, which no text is cut at.
    # Byte BPE knows all characters; its unknown token, if it has one, is only written in texts.
    if unknown in ids and (model.get("type") != "BPE" or unknown in known):
        roles["unk"] = unknown
    own = [token for token in roles.values() if token not in ids]
    start = max(ids.values(), default=-1) + 1
    if model.get("type") == "WordPiece":
        # Its ids leave no gaps, so tokens that are only added ones come after the new ones.
        start = len(model["vocab"])
        for token in added:
            token["id"] += len(own) if token["id"] >= start else 0
    ids |= {token: start + index for index, token in enumerate(own)}
    if model.get("type") != "Unigram":
        model["vocab"] |= {token: ids[token] for token in own}
    added += [_special_token(token, ids[token]) for token in roles.values() if token not in known]
    cls = (roles["cls"], ids[roles["cls"]])
    sep = (roles["sep"], ids[roles["sep"]])
    content["post_processor"] = template_processing(cls, sep)
    # Lengths are those of the embedder, and padding has no effect on a text's own tokens.
    content["truncation"] = None
    content["padding"] = None
    return roles


def _special_token(content: str, index: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": content, **flags, "special": True}


def token_ids(content: dict[str, Any]) -> dict[str, int]:
    """Returns the ids of the model's tokens and of the added ones, by token."""
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram: [token, score], the ids are the positions.
        ids = {token: index for index, (token, _) in enumerate(vocab)}
    else:
        ids = dict(vocab)
    for token in content.get("added_tokens") or ():
        ids.setdefault(token["content"], token["id"])
    return ids


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
    truncation = json_field(content, "truncation", dict, path, nullable=True)
    if not truncation:
        return None
    if str(truncation.get("direction", "Right")).lower() != "right":
        raise ValueError(
            f"{path}: truncation has the direction {truncation['direction']!r}, expected Right: "
            "bert_tf's embedders cut texts at their end."
        )
    length = json_field(truncation, "max_length", int, path)
    if length is None or length < 1:
        raise ValueError(f"{path}: truncation has the max_length {length}, expected 1 or more.")
    return length


def static_tokenizer_json(
    vocab: AnyVocab, do_lower_case: bool, max_length: int | None, skipped: Sequence[int]
) -> dict[str, Any]:
    """Returns the tokenizer.json of a static embedder.

    Args:
      vocab, do_lower_case: its vocabulary and casing.
      max_length: the number of tokens to which texts are cut; None: they are not.
      skipped: the tokens that its pooling skips.
    """
    content = tokenizer_content(vocab, do_lower_case)
    if vocab.kind == BYTE_BPE:
        # The model names its unknown token, though it knows all characters.
        names = [vocab.unk, *(vocab.tokens[index] for index in skipped)]
        own = set(OWN_TOKENS.values())
        content["model"]["unk_token"] = next((name for name in names if name not in own), None)
    without_tokens(content, set(OWN_TOKENS.values()))
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
    """Removes tokens from the content of a tokenizer.json, and numbers the others anew.

    Returns:
      The previous id of each token, by its new id.
    """
    model = content["model"]
    ids = token_ids(content)
    kept = sorted((index, token) for token, index in ids.items() if token not in removed)
    new_ids = {token: number for number, (_, token) in enumerate(kept)}
    if isinstance(model["vocab"], list):
        model["vocab"] = [pair for pair in model["vocab"] if pair[0] not in removed]
        unknown = model.get("unk_id")
        if unknown is not None:
            token = next(token for token, index in ids.items() if index == unknown)
            model["unk_id"] = new_ids[token]
    else:
        model["vocab"] = {token: new_ids[token] for token in model["vocab"] if token in new_ids}
    added = []
    for token in content.get("added_tokens") or ():
        if token["content"] in new_ids:
            added.append({**token, "id": new_ids[token["content"]]})
    content["added_tokens"] = added
    return [index for index, _ in kept]
