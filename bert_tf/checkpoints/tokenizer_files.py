"""Reads and writes the vocabulary and casing that belong to a checkpoint.

    vocab.txt                one token per line; google-research/bert's and Hugging Face's
    tokenizer_config.json    Hugging Face: do_lower_case, special tokens
    tokenizer.json           Hugging Face: the same again, with the vocabulary; also of byte BPE
    vocab.json, merges.txt   byte BPE: GPT-2's and RoBERTa's
    *.model                  SentencePiece

Casing decides the tokens of WordPiece, and a wrong one is easily overlooked: files that contradict
each other, or the vocabulary, are an error.
"""

import dataclasses
import json
import pathlib
import re
from typing import Any, TypeVar

import numpy as np

from bert_tf.checkpoints.wordpiece_files import (
    StatedRules,
    added_token,
    added_token_values,
    make_options,
    model_tokens,
    rules_in_config,
    rules_in_tokenizer_json,
    with_added_tokens,
    without_flags,
    without_usual_limit,
)
from bert_tf.checkpoints.wordpiece_layouts import (
    MPNET,
    XLNET,
    check_post_processor,
    read_layout,
    special_names,
    tokenizer_class,
)
from bert_tf.config import UNLIMITED, ModelConfig
from bert_tf.system.files import atomic_write, json_field, read_json, read_optional_json, write_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.bpe_vocab import (
    MERGES_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    BpeVocab,
    template_processing,
)
from bert_tf.text.sentencepiece_model import MODEL_FILES, has_layout, read_model
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab, is_sentencepiece
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.vocab import (
    CONTINUATION_PREFIX,
    Vocab,
)
from bert_tf.text.wordpiece import split_words
from bert_tf.text.wordpiece_options import WordPieceOptions

KERAS_HUB_VOCAB = pathlib.PurePath("assets", "tokenizer", "vocabulary.txt")
# By the class of a preset: the field of its config.json with the number of tokens.
KERAS_HUB_SIZES = {"BertBackbone": "vocabulary_size", "ElectraBackbone": "vocab_size"}
AnyT = TypeVar("AnyT", bound=AnyVocab)

# In a cased English vocabulary 30 % of the tokens have capitals or accents, in an uncased one 0 %.
CASED_SHARE = 0.01
# In an uncased English vocabulary 92 % of the tokens have lower-case letters, in the Chinese 19 %.
LATIN_SHARE = 0.5
LATIN_SIZE = 1000


# Tokenizers of transformers that split as BERT's or as RoBERTa's does, and those that say nothing
# of it; a name that is missing says as little.
WORDPIECE_CLASSES = re.compile(
    r"(Bert|DistilBert|Electra|MobileBert|MPNet|PreTrained)Tokenizer(Fast)?|TokenizersBackend"
)
BYTE_BPE_CLASSES = re.compile(r"(Roberta|GPT2|PreTrained)Tokenizer(Fast)?|TokenizersBackend")


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """The tokenizer settings of a folder.

    Args:
      vocab: None without a vocabulary.
      do_lower_case: the casing as stated, else as inferred from the tokens; None if unknown.
      stated: the casing that the files state.
      notes: remarks for the user, one sentence each.
    """

    vocab: AnyVocab | None
    do_lower_case: bool | None
    stated: bool | None
    notes: tuple[str, ...] = ()

    def applied_to(self, config: ModelConfig, source: str) -> ModelConfig:
        """Returns the configuration with this casing, if there is one, and this vocabulary.

        Raises:
          ValueError: if positions are counted from a padding id that is not the vocabulary's.
        """
        if self.do_lower_case is not None:
            config = dataclasses.replace(config, do_lower_case=self.do_lower_case)
        if self.vocab is None:
            return config
        pad_id = self.vocab.pad_id
        if config.position_offset and config.pad_token_id != pad_id:
            raise ValueError(
                f"{source}: pad_token_id is {config.pad_token_id}, but the vocabulary's padding is "
                f"{pad_id}; positions count from it, so correct the one that is wrong."
            )
        lower = config.do_lower_case and self.vocab.has_casing
        return dataclasses.replace(
            config, pad_token_id=pad_id, tokenizer=self.vocab.kind, do_lower_case=lower
        )


def read_tokenizer(
    folder: pathlib.Path,
    num_rows: int | None,
    stated: bool | None = None,
    as_transformers: bool = False,
) -> TokenizerFiles:
    """Reads the tokenizer's files of a folder.

    Args:
      folder: may lack any of the files.
      num_rows: rows of the word table; a shorter vocabulary is filled up. None: there is no model.
      stated: the casing that the model's own configuration states, if it does.
      as_transformers: whether WordPiece splits every text exactly as transformers does: it reads
        special tokens written in a text, and knows no words longer than the files say.

    Raises:
      ValueError: if the files contradict each other, the vocabulary or the tokenizer that we have.
    """
    path = folder / "tokenizer_config.json"
    if read_optional_json(path).get("split_special_tokens"):
        raise ValueError(
            f"{path}: split_special_tokens is true, but bert_tf always reads special tokens as "
            "one token each; remove it."
        )
    if _has_sentencepiece(folder):
        return _read_sentencepiece(folder, num_rows)
    if _has_byte_bpe(folder):
        return _read_byte_bpe(folder, num_rows)
    layout = read_layout(folder)
    files = _read_wordpiece_files(folder, layout)
    if stated is not None:
        files.casings = {"the configuration": stated, **files.casings}
    files.check(folder)
    stated = next(iter(files.casings.values()), None)
    if not files.vocabs:
        note = () if stated is not None else ("The casing is unknown; lower case is assumed.",)
        return TokenizerFiles(None, stated, stated, note)
    # Any of them: `check` has compared their tokens.
    base = next(iter(files.vocabs.values()))
    if base.options != layout:  # The options file of a vocab.txt says everything.
        lower = check_casing(base, stated, str(folder))
        vocab, row_notes = fill_up(base, num_rows, str(folder))
        return TokenizerFiles(vocab, lower, stated, row_notes)
    # Which tokens show the casing depends on the rules for accents, and those on the casing.
    options = make_options(files.rules, stated is not False, str(folder), layout)
    lower = check_casing(dataclasses.replace(base, options=options), stated, str(folder))
    options = make_options(files.rules, lower, str(folder), layout)
    reads_special_tokens = as_transformers or layout.reads_special_tokens
    options = dataclasses.replace(options, reads_special_tokens=reads_special_tokens)
    # Without a table: the most rows that these tokens need if their ids leave no gaps.
    most = len(base) + len(files.added) if num_rows is None else num_rows
    vocab = _with_added(base, files.added, most, str(folder))
    tokens, only_added = files.added_tokens(base, layout)
    options = with_added_tokens(options, tokens, only_added)
    if not as_transformers:
        options = without_usual_limit(options)
    options.check(str(folder))
    vocab = dataclasses.replace(vocab, options=options)
    vocab, row_notes = fill_up(vocab, num_rows, str(folder))
    notes = (*files.notes, *row_notes)
    if stated is None:
        kind = "uncased" if lower else "cased"
        notes += (f"The files do not state the casing; by its tokens the vocabulary is {kind}.",)
    return TokenizerFiles(vocab, lower, stated, notes)


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
    rules: dict[str, StatedRules] = dataclasses.field(default_factory=dict)
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
            tokens.append(self.flags.get(content, without_flags(content, layout)))
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
        files.rules[path.name] = rules_in_config(values, path)
        if values.get("never_split"):
            files.notes = (
                f"never_split is {values['never_split']!r:.100}: these words are split like others,"
                " as by Hugging Face's fast tokenizers.",
            )
        if (casing := json_field(values, "do_lower_case", bool, path)) is not None:
            files.casings[path.name] = casing
    if (path := folder / "tokenizer.json").exists():
        parts = _read_tokenizer_json(path, layout)
        files.vocabs[path.name] = parts.vocab
        files.casings[path.name] = parts.do_lower_case
        files.rules[path.name] = parts.rules
        # As in transformers, tokenizer_config.json has the last word.
        files.flags = {**parts.flags, **files.flags}
        _merge_added(files.added, parts.added, path)
    if (path := folder / "added_tokens.json").exists():
        _merge_added(files.added, read_json(path), path)
    return files


def _has_byte_bpe(folder: pathlib.Path) -> bool:
    if any((folder / name).exists() for name in (VOCAB_FILE, MERGES_FILE)):
        return True
    path = folder / TOKENIZER_FILE
    model = json_field(read_optional_json(path), "model", dict, path)
    return (model or {}).get("type") == "BPE"


def _read_byte_bpe(folder: pathlib.Path, num_rows: int | None) -> TokenizerFiles:
    """Reads a byte BPE tokenizer; if both forms of files exist, they must agree.

    Raises:
      ValueError: naming the file that is missing or contradicts another.
    """
    pair = [folder / VOCAB_FILE, folder / MERGES_FILE]
    missing = [path for path in pair if not path.exists()]
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
    vocab = found[0]
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
    return TokenizerFiles(filled, False, False, notes)


def _has_sentencepiece(folder: pathlib.Path) -> bool:
    if is_sentencepiece(read_optional_json(folder / TOKENIZER_FILE)):
        return True
    return any((folder / name).exists() for name in MODEL_FILES)


def _read_sentencepiece(folder: pathlib.Path, num_rows: int | None) -> TokenizerFiles:
    """Reads a SentencePiece tokenizer; if both forms of files exist, they must agree.

    Raises:
      ValueError: naming the file that is corrupt or contradicts another.
    """
    settings = read_optional_json(folder / "tokenizer_config.json")
    name = tokenizer_class(folder)
    vocabs: dict[str, SentencePieceVocab] = {}
    file = folder / TOKENIZER_FILE
    if file.exists():
        if not is_sentencepiece(read_json(file)):
            raise ValueError(
                f"{folder} holds two tokenizers: {TOKENIZER_FILE} is not SentencePiece's, but "
                "there is a .model; remove one of them."
            )
        vocabs[TOKENIZER_FILE] = SentencePieceVocab.read(file)
    models = [model for model in MODEL_FILES if (folder / model).exists()]
    if models and (not vocabs or has_layout(name)):
        vocabs[models[0]] = read_model(folder / models[0], name, settings)
    if len(vocabs) == 2:
        _check_same_tokens(vocabs[TOKENIZER_FILE], vocabs[models[0]], folder / models[0])
    vocab = next(iter(vocabs.values()))
    filled, notes = fill_up(vocab, num_rows, str(folder))
    return TokenizerFiles(filled, False, False, notes)


def _check_same_tokens(
    whole: SentencePieceVocab, model: SentencePieceVocab, path: pathlib.Path
) -> None:
    """Raises ValueError unless a .model has the tokens and scores of tokenizer.json."""
    # Added tokens may follow in either file, so the common part is compared.
    size = min(len(whole), len(model))
    different = [index for index in range(size) if whole.tokens[index] != model.tokens[index]]
    if different:
        index = different[0]
        raise ValueError(
            f"{path} has {model.tokens[index]!r} as token {index}, {TOKENIZER_FILE} has "
            f"{whole.tokens[index]!r}; they do not belong together."
        )
    size = min(len(whole.scores), len(model.scores))
    # A .model stores float32, tokenizer.json decimal digits.
    close = np.isclose(whole.scores[:size], model.scores[:size], rtol=1e-4, atol=1e-4)
    if not close.all():
        index = int(np.argmin(close))
        raise ValueError(
            f"{path} gives {model.tokens[index]!r} the score {model.scores[index]:g}, "
            f"{TOKENIZER_FILE} {whole.scores[index]:g}; they do not belong together."
        )


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


@dataclasses.dataclass(frozen=True)
class _TokenizerJson:
    """The content of a tokenizer.json of WordPiece.

    Args:
      vocab: the vocabulary without the added tokens.
      do_lower_case: the casing.
      added: the ids of the added tokens.
      flags: the added tokens by their contents.
      rules: how texts are split.
    """

    vocab: Vocab
    do_lower_case: bool
    added: dict[str, int]
    flags: dict[str, AddedToken]
    rules: StatedRules


def _read_tokenizer_json(path: pathlib.Path, layout: WordPieceOptions) -> _TokenizerJson:
    """Reads a tokenizer.json of WordPiece."""
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
    added: dict[str, int] = {}
    flags: dict[str, AddedToken] = {}
    for token in json_field(values, "added_tokens", list, path) or []:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise ValueError(f"{path}: {token!r:.200} is not an added token with a content.")
        _merge_added(added, {token["content"]: token.get("id")}, path)
        flags[token["content"]] = added_token(token, path)
    vocab = Vocab(tuple(sorted(ids, key=ids.__getitem__)), layout)
    rules = rules_in_tokenizer_json(normalizer, model, path)
    return _TokenizerJson(vocab, lower, added, flags, rules)


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
        flags[content] = added_token(token, path)
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
      source: the folder, for messages.

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


def fill_up(vocab: AnyT, num_rows: int | None, source: str) -> tuple[AnyT, tuple[str, ...]]:
    """Names the extra rows of a table beyond its vocabulary (some are padded to a multiple of 8).

    Without a table, `num_rows` None, nothing changes.

    Raises:
      ValueError: if the vocabulary is longer than the table.
    """
    if num_rows is None:
        return vocab, ()
    missing = num_rows - len(vocab)
    if missing < 0:
        raise ValueError(
            f"{source}: the vocabulary has {len(vocab)} tokens, but the word table only "
            f"{num_rows} rows; they do not belong together."
        )
    if not missing:
        return vocab, ()
    names = tuple(f"[row{index}]" for index in range(len(vocab), num_rows))
    note = f"The word table has {missing} rows beyond the vocabulary; they are named {names[0]} .."
    return dataclasses.replace(vocab, tokens=(*vocab.tokens, *names)), (note,)


def check_casing(vocab: AnyVocab, stated: bool | None, source: str) -> bool:
    """Returns whether text is lower-cased: as stated, else as inferred from the tokens.

    Only WordPiece does it.

    Raises:
      ValueError: if the tokens contradict the stated casing.
    """
    if not isinstance(vocab, Vocab):
        return False
    # Added tokens are found as they are written, whatever the casing.
    tokens = [token.removeprefix("##") for token in vocab.subword_ids if token[0] != "["]
    # Tokens that lower-casing or stripping accents changes occur only in cased text.
    cased = []
    for token in tokens:
        if split_words(token, True, vocab.options) != split_words(token, False, vocab.options):
            cased.append(token)
    is_cased = len(cased) > CASED_SHARE * len(vocab)
    if stated is None:
        return not is_cased
    if stated and is_cased:
        raise ValueError(
            f"{source}: do_lower_case is true, but the vocabulary is cased: {len(cased)} of its "
            f"{len(vocab)} tokens ({', '.join(cased[:3])} ..) could never occur. Correct the file."
        )
    # Few tokens, or scripts without case, say nothing about the casing.
    num_lower = sum(any(map(str.islower, token)) for token in tokens)
    if not stated and not cased and len(vocab) >= LATIN_SIZE:
        if num_lower > LATIN_SHARE * len(vocab):
            raise ValueError(
                f"{source}: do_lower_case is false, but no token of the vocabulary has a capital: "
                "every word with one would be [UNK]. Correct the file."
            )
    return stated


def model_max_length(folder: pathlib.Path) -> int | None:
    """Returns the maximum length of a row that tokenizer_config.json states; None: no limit.

    transformers writes 1e30 for a tokenizer without a limit.

    Raises:
      ValueError: if it is not a number above 0.
    """
    path = folder / "tokenizer_config.json"
    length = read_optional_json(path).get("model_max_length")
    if length is None:
        return None
    is_number = isinstance(length, int | float) and not isinstance(length, bool)
    if not is_number or not length > 0:
        raise ValueError(f"{path}: model_max_length is {length!r}, expected a number above 0.")
    if length < UNLIMITED:
        return int(length)
    return None


def truncates_beginning(folder: pathlib.Path) -> bool:
    """Returns whether texts are cut at their beginning, by tokenizer_config.json.

    Without a statement there, transformers takes that of a tokenizer.json.

    Raises:
      ValueError: if it is neither left nor right.
    """
    path = folder / "tokenizer_config.json"
    side = json_field(read_optional_json(path), "truncation_side", str, path, nullable=True)
    if side is None:
        path = folder / TOKENIZER_FILE
        values = read_optional_json(path)
        truncation = json_field(values, "truncation", dict, path, nullable=True) or {}
        side = str(truncation.get("direction", "right")).lower()
    if side not in ("left", "right"):
        raise ValueError(f"{path}: truncation_side is {side!r}, expected 'left' or 'right'.")
    return side == "left"


def keras_hub_class(values: dict[str, Any], path: pathlib.Path) -> str:
    """Returns the class that the config.json of a keras-hub preset names, of `KERAS_HUB_SIZES`.

    Raises:
      ValueError: if it is another one.
    """
    name = values.get("class_name")
    if name not in tuple(KERAS_HUB_SIZES):
        raise ValueError(
            f"{path}: class_name is {name!r}, expected 'BertBackbone' or 'ElectraBackbone'."
        )
    return str(name)


def read_keras_hub_tokenizer(folder: pathlib.Path, num_rows: int) -> TokenizerFiles:
    """Reads the tokenizer of a keras-hub preset: its vocabulary.txt, and tokenizer.json if there.

    Args:
      folder: of the preset.
      num_rows: rows of the word table; a shorter vocabulary is filled up.

    Raises:
      ValueError: if the files contradict each other or the vocabulary.
    """
    vocab, notes = fill_up(Vocab.read(folder / KERAS_HUB_VOCAB), num_rows, str(folder))
    file = folder / TOKENIZER_FILE
    values = json_field(read_optional_json(file), "config", dict, file) or {}
    stated = json_field(values, "lowercase", bool, file)
    if stated and not values.get("strip_accents"):
        notes += (
            "keras-hub's tokenizer of this preset keeps accents; bert_tf strips them, as Google's "
            "does.",
        )
    return TokenizerFiles(vocab, check_casing(vocab, stated, str(folder)), stated, notes)


def write_tokenizer(folder: pathlib.Path, vocab: AnyVocab, config: ModelConfig) -> None:
    """Writes Hugging Face's tokenizer files: tokenizer.json and others that its classes read."""
    special = _special_tokens(vocab)
    length = min(config.longest_row, config.max_position_embeddings)
    settings: dict[str, Any] = {"model_max_length": length, **special}
    if config.type_vocab_size < 2:  # Some models refuse types, others have no row for the second.
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if not isinstance(vocab, Vocab):
        settings |= {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
        }
        if isinstance(vocab, BpeVocab):
            settings["add_prefix_space"] = vocab.add_prefix_space
        if vocab.class_at_end:
            # This class pads on the left, where XLNet's heads expect the padding.
            settings["tokenizer_class"] = f"{XLNET}Tokenizer"
            settings["padding_side"] = "left"
            settings["added_tokens_decoder"] = _flags_by_id(vocab)
        vocab.write(folder / TOKENIZER_FILE)
    else:
        settings |= {
            "tokenizer_class": f"{MPNET if vocab.options.special_tokens else 'Bert'}Tokenizer",
            "do_lower_case": config.do_lower_case,
            "strip_accents": vocab.options.strip_accents,
            "tokenize_chinese_chars": vocab.options.splits_ideographs,
        }
        if vocab.options.added_tokens:
            values = {str(token.pop("id")): token for token in added_token_values(vocab)}
            settings["added_tokens_decoder"] = values
        # Options are in the other files, in Hugging Face's form.
        with atomic_write(folder / "vocab.txt") as file:
            file.write("\n".join(model_tokens(vocab)) + "\n")
        write_json(folder / TOKENIZER_FILE, _wordpiece_json(vocab, config.do_lower_case))
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", special)


def _flags_by_id(vocab: BpeVocab | SentencePieceVocab) -> dict[str, dict[str, Any]]:
    """Returns the added tokens as tokenizer_config.json has them."""
    tokens = {}
    for token in vocab.added_tokens:
        tokens[str(vocab.ids[token.content])] = dataclasses.asdict(token)
    return tokens


def _special_tokens(vocab: AnyVocab) -> dict[str, str]:
    """Returns the special tokens by Hugging Face's names of them."""
    ids = {name: getattr(vocab, f"{name}_id") for name in ("unk", "sep", "pad", "cls", "mask")}
    if not isinstance(vocab, Vocab) or vocab.options.special_tokens:
        ids |= {"bos": vocab.cls_id, "eos": vocab.sep_id}
    return {f"{name}_token": vocab.tokens[index] for name, index in ids.items()}


def _wordpiece_json(vocab: Vocab, lower: bool) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_token_values(vocab),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": vocab.options.splits_ideographs,
            "strip_accents": vocab.options.strip_accents,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template_processing(
            (vocab.cls, vocab.cls_id),
            (vocab.sep, vocab.sep_id),
            vocab.num_separators,
            vocab.second_type,
        ),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": vocab.unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": vocab.options.max_word_characters,
            "vocab": {token: vocab.ids[token] for token in model_tokens(vocab)},
        },
    }
