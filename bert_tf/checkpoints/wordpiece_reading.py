"""Reads the WordPiece tokenizer of a folder, whose files must not contradict each other.

vocab.txt                one token per line; google-research/bert's and Hugging Face's
tokenizer_config.json    Hugging Face: do_lower_case, rules of splitting, added tokens
tokenizer.json           Hugging Face: the same again, with the vocabulary
added_tokens.json        ids of added tokens
"""

import dataclasses
import json
import pathlib
import re
from typing import Any

from bert_tf.checkpoints import wordpiece_files
from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.checkpoints.tokenizer_settings import check_named_tokens
from bert_tf.checkpoints.wordpiece_layouts import check_post_processor, read_layout, special_names
from bert_tf.system.files import json_field, read_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.vocab import CONTINUATION_PREFIX, Vocab
from bert_tf.text.wordpiece_options import WordPieceOptions

# Tokenizers of transformers that split as BERT's does, and those that say nothing of it; a name
# that is missing says as little.
WORDPIECE_CLASSES = re.compile(
    r"(Bert|DistilBert|Electra|MobileBert|MPNet|PreTrained)Tokenizer(Fast)?|TokenizersBackend"
)


@dataclasses.dataclass
class _WordPieceFiles:
    """Statements of the files of a WordPiece tokenizer, by file name where files may differ.

    Attributes:
      vocabs: vocabularies.
      casings: whether texts are lower-cased.
      rules: rules of splitting.
      added: ids of added tokens.
      flags: how added tokens are found.
      notes: remarks for the user.
    """

    vocabs: dict[str, Vocab] = dataclasses.field(default_factory=dict)
    casings: dict[str, bool] = dataclasses.field(default_factory=dict)
    rules: dict[str, wordpiece_files.StatedRules] = dataclasses.field(default_factory=dict)
    added: dict[str, int] = dataclasses.field(default_factory=dict)
    flags: dict[str, AddedToken] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def check(self, folder: pathlib.Path) -> None:
        """Raises ValueError if the files contradict each other."""
        if len(set(self.casings.values())) > 1:
            raise ValueError(
                f"{folder}: the files state different casings: {self.casings}; correct one of them."
            )
        if len({vocab.tokens for vocab in self.vocabs.values()}) > 1:
            raise ValueError(
                f"{folder}: vocab.txt and tokenizer.json hold different vocabularies; remove the "
                f"wrong one."
            )

    def added_tokens(
        self, base: Vocab, layout: WordPieceOptions
    ) -> tuple[list[AddedToken], list[str]]:
        """Returns the added tokens, and the texts of those that the vocabulary lacks."""
        tokens = []
        only_added = []
        for content in self.added:
            tokens.append(self.flags.get(content, wordpiece_files.without_flags(content, layout)))
            if content not in base.ids:
                only_added.append(content)
        return tokens, only_added


def _read_wordpiece_files(folder: pathlib.Path, layout: WordPieceOptions) -> _WordPieceFiles:
    """Reads each file of a WordPiece tokenizer that the folder has."""
    files = _WordPieceFiles()
    if (path := folder / "vocab.txt").exists():
        files.vocabs[path.name] = Vocab.read(path, layout)
    if (path := folder / "tokenizer_config.json").exists():
        values = read_json(path)
        _refuse_other_tokenizers(values, path, layout)
        found, files.flags = _added_in_config(values, path)
        _merge_added(files.added, found, path)
        files.rules[path.name] = wordpiece_files.rules_in_config(values, path)
        if values.get("never_split"):
            files.notes = (
                f"never_split is {values['never_split']!r:.100}: these words are split like others,"
                " as by Hugging Face's fast tokenizers.",
            )
        if (casing := json_field(values, "do_lower_case", bool, path)) is not None:
            files.casings[path.name] = casing
    if (path := folder / "tokenizer.json").exists():
        _read_tokenizer_json(path, layout, files)
    if (path := folder / "added_tokens.json").exists():
        _merge_added(files.added, read_json(path), path)
    return files


def read_wordpiece(
    folder: pathlib.Path,
    num_rows: int | None,
    stated: bool | None,
    as_transformers: bool,
    layout: WordPieceOptions | None = None,
) -> FoundTokenizer:
    """Reads a WordPiece tokenizer; see `tokenizer_files.read_tokenizer`.

    `layout` has the special tokens; None: those that the files name.
    """
    layout = layout or read_layout(folder)
    files = _read_wordpiece_files(folder, layout)
    if stated is not None:
        files.casings = {"the configuration": stated, **files.casings}
    files.check(folder)
    stated = next(iter(files.casings.values()), None)
    if not files.vocabs:
        note = () if stated is not None else ("The casing is unknown; lower case is assumed.",)
        return FoundTokenizer(None, stated, stated, note)
    # Any of them: `check` has compared their tokens.
    base = next(iter(files.vocabs.values()))
    if base.options != layout:  # The options file of a vocab.txt says everything.
        lower = check_casing(base, stated, str(folder))
        vocab, row_notes = fill_up(base, num_rows, str(folder))
        return FoundTokenizer(vocab, lower, stated, row_notes)
    check_named_tokens(folder, (*base.special_tokens, *files.added), {})
    vocab, lower = _with_options(base, files, folder, num_rows, as_transformers)
    vocab, row_notes = fill_up(vocab, num_rows, str(folder))
    notes = (*files.notes, *row_notes)
    if stated is None:
        kind = "uncased" if lower else "cased"
        notes += (f"The files do not state the casing; by its tokens the vocabulary is {kind}.",)
    return FoundTokenizer(vocab, lower, stated, notes)


def _with_options(
    base: Vocab,
    files: _WordPieceFiles,
    folder: pathlib.Path,
    num_rows: int | None,
    as_transformers: bool,
) -> tuple[Vocab, bool]:
    """Returns the vocabulary with the rules and added tokens of its files, and the casing."""
    layout = base.options
    stated = next(iter(files.casings.values()), None)
    # Which tokens show the casing depends on the rules for accents, and those on the casing.
    options = wordpiece_files.make_options(files.rules, stated is not False, str(folder), layout)
    lower = check_casing(dataclasses.replace(base, options=options), stated, str(folder))
    options = wordpiece_files.make_options(files.rules, lower, str(folder), layout)
    reads_special_tokens = as_transformers or layout.reads_special_tokens
    options = dataclasses.replace(options, reads_special_tokens=reads_special_tokens)
    # Without a table: the most rows that these tokens need if their ids leave no gaps.
    most = len(base) + len(files.added) if num_rows is None else num_rows
    vocab = _with_added(base, files.added, most, str(folder))
    tokens, only_added = files.added_tokens(base, layout)
    options = wordpiece_files.with_added_tokens(options, tokens, only_added)
    if not as_transformers:
        options = wordpiece_files.without_usual_limit(options)
    # A folder of google-research/bert's has neither of these files.
    is_hugging_face = bool(files.rules) or (folder / "config.json").exists()
    options = dataclasses.replace(options, keeps_blank_seconds=is_hugging_face)
    options.check(str(folder))
    return dataclasses.replace(vocab, options=options), lower


def _refuse_other_tokenizers(
    values: dict[str, Any], path: pathlib.Path, layout: WordPieceOptions
) -> None:
    name = json_field(values, "tokenizer_class", str, path, nullable=True)
    if name and not WORDPIECE_CLASSES.fullmatch(name):
        raise ValueError(
            f"{path}: tokenizer_class is {name}; only BERT's WordPiece and RoBERTa's byte BPE are "
            "read."
        )
    expected: dict[str, tuple[Any, ...]] = {
        **{key: (token,) for key, token in special_names(layout).items()},
        "do_basic_tokenize": (True,),
        "word_tokenizer_type": ("basic",),
        "subword_tokenizer_type": ("wordpiece",),
        "wordpieces_prefix": (CONTINUATION_PREFIX,),
    }
    for key, allowed in expected.items():
        # A special token is a text, or a dict with its content and flags.
        value = values.get(key, allowed[0])
        if isinstance(value, dict):
            value = value.get("content")
        if value not in allowed:
            raise ValueError(
                f"{path}: {key} is {value!r}, but bert_tf's tokenizer, which follows "
                f"google-research/bert, only supports {allowed[0]!r}."
            )


def _read_tokenizer_json(
    path: pathlib.Path, layout: WordPieceOptions, files: _WordPieceFiles
) -> None:
    """Reads a tokenizer.json of WordPiece into the statements of all files."""
    values = read_json(path)
    model = json_field(values, "model", dict, path) or {}
    normalizer = json_field(values, "normalizer", dict, path) or {}
    if model.get("type", "WordPiece") != "WordPiece" or normalizer.get("type") != "BertNormalizer":
        raise ValueError(
            f"{path}: a {model.get('type')} tokenizer with {normalizer.get('type')}; expected "
            f"WordPiece with BertNormalizer, or byte BPE."
        )
    lower = json_field(normalizer, "lowercase", bool, path) is not False
    _refuse_other_tokenizers(
        {
            "wordpieces_prefix": model.get("continuing_subword_prefix"),
            "unk_token": model.get("unk_token", special_names(layout)["unk_token"]),
        },
        path,
        layout,
    )
    _check_parts(values, normalizer, path, layout)
    ids = json_field(model, "vocab", dict, path) or {}
    is_numbered = all(type(index) is int for index in ids.values())
    if not ids or not is_numbered or set(ids.values()) != set(range(len(ids))):
        raise ValueError(f"{path}: the vocabulary's ids are not 0, 1, 2 ...")
    for token in json_field(values, "added_tokens", list, path) or []:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise ValueError(f"{path}: {token!r:.200} is not an added token with a content.")
        _merge_added(files.added, {token["content"]: token.get("id")}, path)
        # As in transformers, tokenizer_config.json has the last word.
        files.flags.setdefault(token["content"], wordpiece_files.added_token(token, path))
    files.vocabs[path.name] = Vocab(tuple(sorted(ids, key=ids.__getitem__)), layout)
    files.casings[path.name] = lower
    files.rules[path.name] = wordpiece_files.rules_in_tokenizer_json(normalizer, model, path)


def _check_parts(
    values: dict[str, Any],
    normalizer: dict[str, Any],
    path: pathlib.Path,
    layout: WordPieceOptions,
) -> None:
    """Raises ValueError for parts of a tokenizer.json that BERT's WordPiece does not have."""
    if json_field(normalizer, "clean_text", bool, path) is False:
        raise ValueError(f"{path}: clean_text is false, expected true, which bert_tf always does.")
    kinds = {"pre_tokenizer": "pretokenizers", "post_processor": "processors"}
    expected = {
        "pre_tokenizer": ("BertPreTokenizer",),
        "post_processor": ("TemplateProcessing", "BertProcessing", "RobertaProcessing"),
    }
    for part, inner in kinds.items():
        if part not in values:
            continue
        value = json_field(values, part, dict, path)
        steps = value.get(inner) if value.get("type") == "Sequence" else [value]
        is_known = isinstance(steps, list) and len(steps) == 1 and isinstance(steps[0], dict)
        if not is_known or steps[0].get("type") not in expected[part]:
            raise ValueError(
                f"{path}: {part} is {json.dumps(value)[:200]}, expected "
                f"{' or '.join(expected[part])}."
            )
    check_post_processor(values.get("post_processor") or {}, layout, path)


def _added_in_config(
    values: dict[str, Any], path: pathlib.Path
) -> tuple[dict[str, Any], dict[str, AddedToken]]:
    """Returns the ids and flags of the added tokens in a tokenizer_config.json."""
    added = {}
    flags = {}
    for index, token in (json_field(values, "added_tokens_decoder", dict, path) or {}).items():
        content = token.get("content") if isinstance(token, dict) else None
        if not isinstance(content, str):
            raise ValueError(
                f"{path}: added_tokens_decoder has {token!r:.200} for {index}, expected a token "
                "with a content."
            )
        # `_merge_added` refuses an index that is no number.
        added[content] = int(index) if index.isdecimal() else index
        flags[content] = wordpiece_files.added_token(token, path)
    return added, flags


def _merge_added(known: dict[str, int], found: dict[str, Any], path: pathlib.Path) -> None:
    """Adds added tokens to those that other files have.

    Raises:
      ValueError: if an id is no number from 0 on, or a token has two ids.
    """
    for token, index in found.items():
        if type(index) is not int or index < 0:
            raise ValueError(
                f"{path}: the added token {token!r} has the id {index!r}, expected a number from 0 "
                "on."
            )
        if known.setdefault(token, index) != index:
            raise ValueError(
                f"{path}: the added token {token!r} has the id {index}, and {known[token]} "
                "elsewhere; expected one."
            )


def _with_added(vocab: Vocab, added: dict[str, int], num_rows: int, source: str) -> Vocab:
    """Appends Hugging Face's added tokens, whose rows follow the vocabulary's.

    Args:
      vocab: without them.
      added: their ids; those of the vocabulary's special tokens may be among them.
      num_rows: rows of the word table.

    Returns:
      The vocabulary, in which ids between the added ones are named by their row.

    Raises:
      ValueError: if two tokens have one id, or an id is beyond the table.
    """
    tokens = list(vocab.tokens)
    for token, index in sorted(added.items(), key=lambda pair: pair[1]):
        if index >= num_rows:
            raise ValueError(
                f"{source}: the added token {token!r} has the id {index}, but there are "
                f"{num_rows} rows; resize the table, or remove the token."
            )
        tokens += (f"[row{row}]" for row in range(len(tokens), index))
        if index == len(tokens):
            tokens.append(token)
        if tokens[index] != token or vocab.ids.get(token, index) != index:
            raise ValueError(
                f"{source}: the added token {token!r} has the id {index}, but {tokens[index]!r} "
                "also has it; expected one id each."
            )
    only_added = tuple(token for token in added if token not in vocab.ids)
    named = dataclasses.replace(
        vocab.options,
        added_tokens=tuple(map(AddedToken, only_added)),
        only_added=only_added,
    )
    return Vocab(tuple(tokens), named)
