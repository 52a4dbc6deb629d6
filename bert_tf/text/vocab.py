"""Vocabulary of WordPiece: a list of tokens. The id of a token is its line in vocab.txt."""

import collections
import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np

from bert_tf.system.files import atomic_write, json_field, read_json, read_lines, write_json
from bert_tf.text.fast_tokenizers import check_token_lengths
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

# The kinds of vocabularies, as `ModelConfig.tokenizer` names them.
WORDPIECE: Final = "wordpiece"
BYTE_BPE: Final = "byte_bpe"
UNIGRAM: Final = "unigram"
SENTENCEPIECE_BPE: Final = "sentencepiece_bpe"
ROLES = ("pad", "unk", "cls", "sep", "mask")
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"
# str.strip() removes more, but U+2028 is a token of the released Chinese and multilingual files.
_BLANKS = " \t\r\n"
OPTIONS = "wordpiece_options"  # the key of `to_config`
_ROWS = "rows"  # the key of the rows of added tokens in the file of options


class BaseVocab:
    """Base class of the vocabularies: ids of tokens, and how texts are read with them.

    kind               file            first token of a word    special tokens written in a text
    wordpiece          vocab.txt       has no ## prefix         are ordinary words: "[", "mask", "]"
                                                                (or special: `WordPieceOptions`)
    byte_bpe           tokenizer.json  starts with the space    are special tokens: <mask>
    unigram            tokenizer.json  starts with the space    are special tokens: <mask>
    sentencepiece_bpe  tokenizer.json  starts with the space    are special tokens: <mask>

    Attributes:
      kind: the name in the first column.
      title: the name of the algorithm in texts for people.
      options: the rules of WordPiece; other kinds have the default.
      has_casing: whether texts are lower-cased where `ModelConfig.do_lower_case` is set. Only
        WordPiece lower-cases by the configuration.
      marks_spaces: whether the first token of a word includes the space before it.
      separates_punctuation: whether a token ends before and after punctuation.
      sentence_separator: the text between the sentences of a document. In BPE the space between
        two sentences belongs to the first token of the second. Unigram puts a space before every
        text.
      class_at_end: whether `cls` is the last token of a sequence, as in XLNet, not the first.
      class_type: type id of `cls` at the end of a sequence.
      pad, unk, cls, sep, mask: the special tokens.
    """

    tokens: tuple[str, ...]
    file_name: ClassVar[str]
    options: WordPieceOptions = DEFAULT_OPTIONS
    has_casing: ClassVar[bool] = False
    marks_spaces: ClassVar[bool] = True
    separates_punctuation: ClassVar[bool] = True
    class_at_end: bool = False
    class_type: int = 0
    pad: str
    unk: str
    cls: str
    sep: str
    mask: str

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The padding, unknown, class, separator and mask tokens."""
        return self.pad, self.unk, self.cls, self.sep, self.mask

    def __len__(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def pad_id(self) -> int:
        return self.ids[self.pad]

    @property
    def unk_id(self) -> int:
        return self.ids[self.unk]

    @property
    def cls_id(self) -> int:
        return self.ids[self.cls]

    @property
    def sep_id(self) -> int:
        return self.ids[self.sep]

    @property
    def mask_id(self) -> int:
        return self.ids[self.mask]

    @property
    def text_start(self) -> int:
        """The position of the first text in a sequence: the number of special tokens before it."""
        return 0 if self.class_at_end else 1

    @property
    def content(self) -> str:
        """The text to hash for a vocabulary: all fields as JSON."""
        return json.dumps(self.to_config(), sort_keys=True)

    def to_config(self) -> Any:
        """Returns the vocabulary for JSON, which `kinds.vocab_from_config` reads."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Vocab(BaseVocab):
    """Immutable vocabulary, read from and written to google-research/bert's vocab.txt.

    Differs from the original: a duplicate, an empty line or a missing special token is an error
    here. The original keeps the last of two equal lines, and fails later or not at all.

    Args:
      tokens: tokens in id order; a token that continues a word starts with "##".
      options: how texts are split and packed where it differs from google-research/bert. They
        are in another file of the folder (`options_file`), which exists only if there are any.
      source: the file that errors name.

    Raises:
      ValueError: if a token is empty, duplicated or starts or ends with a blank, or if a special
        token is missing.
    """

    tokens: tuple[str, ...]
    options: WordPieceOptions = DEFAULT_OPTIONS
    source: dataclasses.InitVar[str] = "vocabulary"

    kind: ClassVar[Literal["wordpiece"]] = WORDPIECE
    title: ClassVar[str] = "WordPiece"
    file_name: ClassVar[str] = "vocab.txt"
    has_casing: ClassVar[bool] = True
    marks_spaces: ClassVar[bool] = False
    sentence_separator: ClassVar[str] = ""

    def __post_init__(self, source: str) -> None:
        # The class is frozen, and callers may pass a list.
        object.__setattr__(self, "tokens", tuple(self.tokens))
        special_tokens = self.options.special_tokens or SPECIAL_TOKENS
        for name, token in zip(ROLES, special_tokens, strict=True):
            object.__setattr__(self, name, token)
        _check_tokens(self.tokens, source, self.options)

    @property
    def num_separators(self) -> int:
        """The number of separators between two texts."""
        return self.options.num_separators

    @property
    def second_type(self) -> int:
        """The type id of the second text."""
        return self.options.second_type

    @classmethod
    def read(
        cls, path: str | os.PathLike, default_options: WordPieceOptions = DEFAULT_OPTIONS
    ) -> "Vocab":
        """Reads one token per line (UTF-8), without blanks at the ends.

        Args:
          default_options: the options if the folder has no file of options.

        Raises:
          ValueError: see the class; the message names the file and the line.
        """
        tokens = [line.strip(_BLANKS) for line in read_lines(path, is_bounded=True)]
        options_path = options_file(path)
        options = default_options
        if options_path.exists():
            values = read_json(options_path)
            # Tokens with blanks at their ends: their lines in vocab.txt hold a placeholder.
            for token, index in (json_field(values, _ROWS, dict, options_path) or {}).items():
                if type(index) is not int or not 0 <= index < len(tokens):
                    raise ValueError(
                        f"{options_path}: the row of {token!r} is {index!r}, expected one of the "
                        f"{len(tokens)} lines of {path}."
                    )
                tokens[index] = token
            values.pop(_ROWS, None)
            options = WordPieceOptions.from_config(values, str(options_path))
        vocab = cls(tuple(tokens), options, str(path))
        _check_added(tokens, options, options_path)
        return vocab

    def write(self, path: str | os.PathLike) -> None:
        """Writes one token per line, and a file of options if they are not the default.

        Each file is written atomically, the options first: a reader that finds the tokens finds
        their options too.
        """
        options_path = options_file(path)
        lines = list(self.tokens)
        rows = {}  # of added tokens that no line can hold
        for token in self.options.only_added:
            if _has_outer_blanks(token):
                rows[token] = self.ids[token]
                lines[self.ids[token]] = f"[row{self.ids[token]}]"
        if self.options.is_default:
            # Options that another vocabulary left at this path would be read with this one.
            options_path.unlink(missing_ok=True)
        else:
            write_json(options_path, {**self.options.to_config(), _ROWS: rows})
        with atomic_write(path) as file:
            file.write("\n".join(lines) + "\n")

    @functools.cached_property
    def subword_ids(self) -> dict[str, int]:
        """The id of each token that a word can be split into: all but `options.only_added`."""
        only_added = set(self.options.only_added)
        if not only_added:
            return self.ids
        return {token: index for token, index in self.ids.items() if token not in only_added}

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """bool [V], true where the token continues a word ("##" and more)."""
        # "##" alone is an ordinary token.
        length = len(CONTINUATION_PREFIX)
        return np.array(
            [token.startswith(CONTINUATION_PREFIX) and len(token) > length for token in self.tokens]
        )

    @functools.cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the five special tokens."""
        return frozenset(self.ids[token] for token in self.special_tokens)

    @property
    def never_masked(self) -> tuple[int, ...]:
        """Ids of the tokens that are not selected for masking, ascending.

        Special tokens that are written in a text are split into ordinary tokens, so a sequence
        contains only [CLS], [SEP] and [UNK], and the original selects [UNK]. MPNet's WordPiece
        reads them as special tokens, but its [UNK] is selected like BERT's.
        """
        if self.options.special_tokens:
            return tuple(sorted(self.special_ids - {self.unk_id}))
        return tuple(sorted((self.cls_id, self.sep_id)))

    @property
    def content(self) -> str:
        """The text to hash: the lines of vocab.txt, or all fields as JSON."""
        return "\n".join(self.tokens) if self.options == DEFAULT_OPTIONS else super().content

    def to_config(self) -> Any:
        """Returns the list of tokens, or a dict with the options where they are not the default."""
        if self.options.is_default:
            return list(self.tokens)
        return {"tokens": list(self.tokens), OPTIONS: self.options.to_config()}

    def token_texts(self) -> tuple[str, ...]:
        """Returns the tokens as readable text; those that continue a word start with "##"."""
        return self.tokens

    def with_trimmed_offsets(self) -> "Vocab":
        """Returns this vocabulary: the offsets of a token never include a space."""
        return self


def options_file(path: str | os.PathLike) -> pathlib.Path:
    """Returns the file with the options of a vocab.txt: vocab.options.json."""
    return pathlib.Path(path).with_suffix(".options.json")


def _has_outer_blanks(token: str) -> bool:
    return token != token.strip(_BLANKS) or "\n" in token


def _check_added(tokens: Sequence[str], options: WordPieceOptions, path: pathlib.Path) -> None:
    """Raises ValueError if an added token is not in the vocabulary."""
    known = set(tokens)
    missing = [token.content for token in options.added_tokens if token.content not in known]
    if missing:
        raise ValueError(
            f"{path}: vocab.txt has no {missing[:5]}; the two files do not belong together."
        )


def _check_tokens(tokens: Sequence[str], source: str, options: WordPieceOptions) -> None:
    """Raises the errors of `Vocab`, naming `source` and the line."""
    check_token_lengths(tokens, source)
    for line, token in enumerate(tokens, start=1):
        if not token or (_has_outer_blanks(token) and token not in options.only_added):
            raise ValueError(
                f"{source}, line {line}: received {token!r}, expected a token without blanks at "
                "its ends; remove the line (which lowers every later id by one) or name the token."
            )
    if len(set(tokens)) < len(tokens):
        repeated = next(t for t, count in collections.Counter(tokens).items() if count > 1)
        lines = [line for line, token in enumerate(tokens, start=1) if token == repeated]
        raise ValueError(
            f"{source}, line {lines[1]}: {repeated!r} is already on line {lines[0]}; expected "
            "unique tokens, so rename one of the two."
        )
    special_tokens = options.special_tokens or SPECIAL_TOKENS
    missing = [token for token in special_tokens if token not in tokens]
    if missing:
        raise ValueError(
            f"{source}: no line for the special tokens {missing} in {len(tokens)} lines; add one "
            "line for each."
        )
