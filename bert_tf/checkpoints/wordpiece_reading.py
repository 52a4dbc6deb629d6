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
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.casing import check_casing
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.checkpoints.tokenizer_settings import check_named_tokens
from bert_tf.checkpoints.wordpiece_layouts import check_post_processor, read_layout, special_names
from bert_tf.system.files import json_field, read_json
from bert_tf.text.added_tokens import AddedToken, read_added_token, read_decoder
from bert_tf.text.sentencepiece_vocab import row_name
from bert_tf.text.vocab import CONTINUATION_PREFIX, SPECIAL_TOKENS, Vocab
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

# Tokenizers of transformers that split as BERT's does, and those that say nothing of it; a name
# that is missing says as little.
WORDPIECE_CLASSES = re.compile(
    r"(Bert|DistilBert|Electra|MobileBert|MPNet|PreTrained)Tokenizer(Fast)?|TokenizersBackend"
)
# Hugging Face's default, which nearly every tokenizer.json has, whatever its model was trained by.
HUGGING_FACE_LIMIT = 100


@dataclasses.dataclass
class _Statements:
    """Statements of the files of a WordPiece tokenizer, by file name where files may differ."""

    vocabs: dict[str, Vocab] = dataclasses.field(default_factory=dict)  # vocabularies
    # Whether texts are lower-cased.
    casings: dict[str, bool] = dataclasses.field(default_factory=dict)
    # Whether accents are stripped; None: exactly where text is lower-cased.
    accents: dict[str, bool | None] = dataclasses.field(default_factory=dict)
    # Whether each ideograph is a word by itself.
    ideographs: dict[str, bool] = dataclasses.field(default_factory=dict)
    limit: int = HUGGING_FACE_LIMIT  # the most characters of a word
    added: dict[str, int] = dataclasses.field(default_factory=dict)  # ids of added tokens
    # How added tokens are found.
    flags: dict[str, AddedToken] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()  # remarks for the user

    def add_rules(self, values: dict[str, Any], ideographs_key: str, path: pathlib.Path) -> None:
        """Adds the rules of splitting of a tokenizer_config.json or a normalizer."""
        if "strip_accents" in values:
            strips = json_field(values, "strip_accents", bool, path, nullable=True)
            self.accents[path.name] = strips
        if (splits := json_field(values, ideographs_key, bool, path)) is not None:
            self.ideographs[path.name] = splits

    def add_ids(self, found: dict[str, Any], path: pathlib.Path) -> None:
        """Adds added tokens; ValueError if an id is no number from 0 on, or a token has two."""
        for token, index in found.items():
            if type(index) is not int or index < 0:
                raise ValueError(
                    f"{path}: the added token {token!r} has the id {index!r}, expected a number "
                    "from 0 on."
                )
            if self.added.setdefault(token, index) != index:
                raise ValueError(
                    f"{path}: the added token {token!r} has the id {index}, and "
                    f"{self.added[token]} elsewhere; expected one."
                )

    def options(self, lower: bool, layout: WordPieceOptions, source: str) -> WordPieceOptions:
        """Returns the rules of splitting for a casing; ValueError if two files differ."""
        accents = {}
        for name, strips in self.accents.items():
            accents[name] = lower if strips is None else strips
        _check_equal("strip_accents", accents, source)
        _check_equal("tokenize_chinese_chars", self.ideographs, source)
        strips_accents = next(iter(accents.values()), lower)
        return dataclasses.replace(
            layout,
            # The option's default, None, already follows the casing.
            strip_accents=None if strips_accents == lower else strips_accents,
            splits_ideographs=next(iter(self.ideographs.values()), True),
            max_word_characters=self.limit,
        )


def _check_equal(key: str, values: Mapping[str, object], source: str) -> None:
    """Raises ValueError if files state different values."""
    if len(set(values.values())) > 1:
        raise ValueError(
            f"{source}: the files state different values for {key}: {values}; correct one of them."
        )


def _read_files(folder: pathlib.Path, layout: WordPieceOptions) -> _Statements:
    """Reads each file of a WordPiece tokenizer that the folder has."""
    files = _Statements()
    if (path := folder / "vocab.txt").exists():
        files.vocabs[path.name] = Vocab.read(path, layout)
    if (path := folder / "tokenizer_config.json").exists():
        values = read_json(path)
        _refuse_other_tokenizers(values, path, layout)
        decoder = read_decoder(values, path)
        files.flags = {token.content: token for token in decoder.values()}
        files.add_ids({token.content: index for index, token in decoder.items()}, path)
        files.add_rules(values, "tokenize_chinese_chars", path)
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
        files.add_ids(read_json(path), path)
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
    files = _read_files(folder, layout)
    if stated is not None:
        files.casings = {"the configuration": stated, **files.casings}
    _check_equal("do_lower_case", files.casings, str(folder))
    if len({vocab.tokens for vocab in files.vocabs.values()}) > 1:
        raise ValueError(
            f"{folder}: vocab.txt and tokenizer.json hold different vocabularies; remove the wrong "
            "one."
        )
    stated = next(iter(files.casings.values()), None)
    if not files.vocabs:
        note = () if stated is not None else ("The casing is unknown; lower case is assumed.",)
        return FoundTokenizer(None, stated, stated, note)
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
    files: _Statements,
    folder: pathlib.Path,
    num_rows: int | None,
    as_transformers: bool,
) -> tuple[Vocab, bool]:
    """Returns the vocabulary with the rules and added tokens of its files, and the casing."""
    layout = base.options
    stated = next(iter(files.casings.values()), None)
    # Which tokens show the casing depends on the rules for accents, and those on the casing.
    options = files.options(stated is not False, layout, str(folder))
    lower = check_casing(dataclasses.replace(base, options=options), stated, str(folder))
    options = files.options(lower, layout, str(folder))
    # Without a table: the most rows that these tokens need if their ids leave no gaps.
    most = len(base) + len(files.added) if num_rows is None else num_rows
    tokens = _tokens_with_added(base, files.added, most, str(folder))
    # A folder of google-research/bert's has none of these files.
    names = ("tokenizer_config.json", "tokenizer.json", "config.json")
    options = dataclasses.replace(
        options,
        reads_special_tokens=as_transformers or layout.reads_special_tokens,
        only_added=tuple(token for token in files.added if token not in base.ids),
    )
    options = dataclasses.replace(options, added_tokens=_unusual_tokens(files, options))
    # Hugging Face writes its limit for every model, and those that were trained by
    # google-research/bert know words of up to 200 characters.
    usual = WordPieceOptions(max_word_characters=HUGGING_FACE_LIMIT)
    if options == usual and not as_transformers:
        options = DEFAULT_OPTIONS
    is_hugging_face = any((folder / name).exists() for name in names)
    options = dataclasses.replace(options, keeps_blank_seconds=is_hugging_face)
    options.check(str(folder))
    return Vocab(tokens, options), lower


def _unusual_tokens(files: _Statements, options: WordPieceOptions) -> tuple[AddedToken, ...]:
    """Returns the added tokens of a folder.

    The five special tokens are among them only if there are others, and only if their flags are
    unusual: see `WordPieceOptions.tokens_to_find`.
    """
    special_tokens = options.special_tokens or SPECIAL_TOKENS
    kept = []
    for content in files.added:
        is_special = content in special_tokens
        # As transformers reads a token whose file states no flags.
        usual = AddedToken(content, special=is_special, normalized=not is_special)
        token = files.flags.get(content, usual)
        if not is_special or token != AddedToken(content):
            kept.append(token)
    if all(token.content in special_tokens for token in kept) and not options.reads_special_tokens:
        return ()
    return tuple(kept)


def _refuse_other_tokenizers(
    values: dict[str, Any], path: pathlib.Path, layout: WordPieceOptions
) -> None:
    name = json_field(values, "tokenizer_class", str, path, nullable=True)
    if name and not WORDPIECE_CLASSES.fullmatch(name):
        raise ValueError(
            f"{path}: tokenizer_class is {name}; only BERT's WordPiece and RoBERTa's byte BPE are "
            "read."
        )
    expected: dict[str, Any] = {
        **special_names(layout),
        "do_basic_tokenize": True,
        "word_tokenizer_type": "basic",
        "subword_tokenizer_type": "wordpiece",
        "wordpieces_prefix": CONTINUATION_PREFIX,
    }
    for key, allowed in expected.items():
        # A special token is a text, or a dict with its content and flags.
        value = values.get(key, allowed)
        if isinstance(value, dict):
            value = value.get("content")
        if value != allowed:
            raise ValueError(
                f"{path}: {key} is {value!r}, but bert_tf's tokenizer, which follows "
                f"google-research/bert, only supports {allowed!r}."
            )


def _read_tokenizer_json(path: pathlib.Path, layout: WordPieceOptions, files: _Statements) -> None:
    """Reads a tokenizer.json of WordPiece into the statements of all files."""
    values = read_json(path)
    model = json_field(values, "model", dict, path, default={})
    normalizer, lowers_first = _read_normalizer(values, model, path)
    _refuse_other_tokenizers(
        {
            "wordpieces_prefix": model.get("continuing_subword_prefix"),
            "unk_token": model.get("unk_token", special_names(layout)["unk_token"]),
        },
        path,
        layout,
    )
    _check_parts(values, normalizer, path, layout)
    ids = json_field(model, "vocab", dict, path, default={})
    is_numbered = all(type(index) is int for index in ids.values())
    if not ids or not is_numbered or set(ids.values()) != set(range(len(ids))):
        raise ValueError(f"{path}: the vocabulary's ids are not 0, 1, 2 ...")
    for item in json_field(values, "added_tokens", list, path, default=[]):
        token = read_added_token(item, path)
        files.add_ids({token.content: item.get("id")}, path)
        # As in transformers, tokenizer_config.json has the last word.
        files.flags.setdefault(token.content, token)
    files.vocabs[path.name] = Vocab(tuple(sorted(ids, key=ids.__getitem__)), layout)
    lower = json_field(normalizer, "lowercase", bool, path, default=True)
    files.casings[path.name] = lower or lowers_first
    if lowers_first and normalizer.get("strip_accents") is None:
        # The other step alone decides about accents.
        normalizer = {**normalizer, "strip_accents": lower}
    files.add_rules(normalizer, "handle_chinese_chars", path)
    limit = json_field(model, "max_input_chars_per_word", int, path, nullable=True, least=1)
    files.limit = limit or HUGGING_FACE_LIMIT


def _read_normalizer(
    values: dict[str, Any], model: dict[str, Any], path: pathlib.Path
) -> tuple[dict[str, Any], bool]:
    """Returns the BertNormalizer of a tokenizer.json, and whether a step of its own lower-cases.

    sentence-transformers adds that step for models whose setting do_lower_case is true. A Strip
    removes white space, which no word of WordPiece has.
    """
    normalizer = json_field(values, "normalizer", dict, path, default={})
    steps = [normalizer]
    if normalizer.get("type") == "Sequence":
        steps = json_field(normalizer, "normalizers", list, path, default=[])
    kinds = [step.get("type") if isinstance(step, dict) else step for step in steps]
    is_known = kinds.count("BertNormalizer") == 1
    is_known &= all(kind in ("BertNormalizer", "Lowercase", "Strip") for kind in kinds)
    if model.get("type", "WordPiece") != "WordPiece" or not is_known:
        raise ValueError(
            f"{path}: a {model.get('type')} tokenizer with the normalizer {kinds}; expected "
            "WordPiece with BertNormalizer and perhaps Lowercase or Strip, or byte BPE."
        )
    return steps[kinds.index("BertNormalizer")], "Lowercase" in kinds


def _check_parts(
    values: dict[str, Any],
    normalizer: dict[str, Any],
    path: pathlib.Path,
    layout: WordPieceOptions,
) -> None:
    """Raises ValueError for parts of a tokenizer.json that BERT's WordPiece does not have."""
    if json_field(normalizer, "clean_text", bool, path) is False:
        raise ValueError(f"{path}: clean_text is false, expected true, which bert_tf always does.")
    processors = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
    for part, inner, kinds in (
        ("pre_tokenizer", "pretokenizers", ("BertPreTokenizer",)),
        ("post_processor", "processors", processors),
    ):
        if part not in values:
            continue
        value = json_field(values, part, dict, path)
        steps = value.get(inner) if value.get("type") == "Sequence" else [value]
        is_known = isinstance(steps, list) and len(steps) == 1 and isinstance(steps[0], dict)
        if not is_known or steps[0].get("type") not in kinds:
            raise ValueError(
                f"{path}: {part} is {json.dumps(value)[:200]}, expected {' or '.join(kinds)}."
            )
    check_post_processor(values.get("post_processor") or {}, layout, path)


def _tokens_with_added(
    vocab: Vocab, added: dict[str, int], num_rows: int, source: str
) -> tuple[str, ...]:
    """Returns the tokens with Hugging Face's added ones, whose rows follow the vocabulary's.

    Ids between the added ones are named by their row. The vocabulary's special tokens may be among
    the added ones; the word table has `num_rows`.

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
        tokens += map(row_name, range(len(tokens), index))
        if index == len(tokens):
            tokens.append(token)
        if tokens[index] != token or vocab.ids.get(token, index) != index:
            raise ValueError(
                f"{source}: the added token {token!r} has the id {index}, but {tokens[index]!r} "
                "also has it; expected one id each."
            )
    return tuple(tokens)
