"""Counts the texts that a model does not read as they were given, and says so in one line.

    with counting_texts("classify", model, remedy_of(model)):
        rows = [pack(vocab, tokenizer.encode(text), [], 128) for text in texts]

Packing adds each text to the count of the call that it belongs to, so no text is tokenized twice. A
call inside another one adds to the count of the outer call, which alone logs the line. A line about
the same model is repeated only if more texts are affected than in the lines before, so servers and
loops of single calls are not flooded.
"""

import contextlib
import contextvars
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_tf.text.tokenization import AnyVocab

Method = TypeVar("Method", bound=Callable[..., Any])
# The most affected texts that a line has named, by model and reason.
_said: weakref.WeakKeyDictionary[object, dict[str, int]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Remedy:
    """How a user makes the model read more of each text."""

    set_length: str = "max_seq_length={}"  # the setting for another length, with {} for the number
    num_positions: int = 0  # the longest sequence that the model can read; 0: unknown
    kept: str = "head"  # the part of a text that is kept
    read_all: str = ""  # the setting with which the model reads whole texts; "": no such setting
    limit: str = "max_seq_length"  # name of the limit


class TextCounts:
    """Counts of the texts of a call or a file."""

    def __init__(self) -> None:
        self.num_texts = 0  # texts, or pairs of texts
        self.num_cut = 0  # those that lost tokens
        self.num_empty = 0  # those without a token
        self.num_unknown = 0  # those whose tokens are all [UNK]
        self.num_known = 0  # examples that the training data contain as well
        self.num_compared = 0  # all examples that were compared with them
        self.longest = 0  # tokens of the longest text before it was cut
        self.limit = 0  # the limit on tokens of the texts that were cut

    def add(self, ids: Sequence[int], unk_id: int, size: int, limit: int) -> None:
        """Counts a text.

        Args:
          ids: the tokens of the text, or of both texts of a pair.
          unk_id: id of [UNK].
          size: number of tokens to which the limit applies.
          limit: the most tokens that are kept.
        """
        self.num_texts += 1
        self.longest = max(self.longest, size)
        if size > limit:
            self.num_cut += 1
            self.limit = limit
        if not ids:
            self.num_empty += 1
        # Most texts begin with another token, which ends the comparison at once.
        elif ids[0] == unk_id and all(index == unk_id for index in ids):
            self.num_unknown += 1

    def merge(self, other: Mapping[str, int]) -> None:
        """Adds counts that another process recorded, the attributes of a `TextCounts` by name."""
        for name, value in vars(self).items():
            is_maximum = name in ("longest", "limit")
            added = int(other.get(name, 0))
            setattr(self, name, max(value, added) if is_maximum else value + added)

    def reasons(self, remedy: Remedy) -> dict[str, tuple[int, str]]:
        """Returns the number of affected texts and a sentence about them, by reason."""
        sentences = {
            "cut": (self.num_cut, self._cut_sentence(remedy)),
            "empty": (self.num_empty, "are empty, so the model reads special tokens alone."),
            "unknown": (
                self.num_unknown,
                "are unknown to the vocabulary ([UNK] alone), so the model cannot tell them apart. "
                "Check language and spelling, or take a model whose vocabulary has their words.",
            ),
            "known": (
                self.num_known,
                "are in train: their results do not show how the model does on new texts. Leave "
                "them out of one of the two.",
            ),
        }
        found = {}
        for reason, (count, sentence) in sentences.items():
            total = self.num_compared if reason == "known" else self.num_texts
            if count:
                found[reason] = count, f"{count:,} of {total:,} texts {sentence}"
        return found

    def _cut_sentence(self, remedy: Remedy) -> str:
        remedies = []
        if not remedy.num_positions:
            remedies.append(remedy.set_length.format(self.longest))
        elif self.limit < remedy.num_positions:
            length = min(self.longest, remedy.num_positions)
            remedies.append(remedy.set_length.format(length))
        if remedy.read_all:
            remedies.append(f"{remedy.read_all} to read all of every text")
        return (
            f"are longer than {remedy.limit}={self.limit} tokens, the longest has "
            f"{self.longest:,}: only their {remedy.kept} is kept. Give "
            f"{', or '.join(remedies) or 'a model with more positions, or shorter texts'}."
        )

    def log(self, name: str, remedy: Remedy, model: object = None) -> None:
        """Logs one line about all reasons; none if no text is affected.

        Args:
          name: the call or the file, with which the line begins.
          remedy: see `Remedy`.
          model: the model that read the texts; the same line about it is not repeated.
        """
        said = {} if model is None else _said.setdefault(model, {})
        sentences = []
        for reason, (count, sentence) in self.reasons(remedy).items():
            # Queries and documents may have limits of their own.
            key = f"{reason} {remedy.limit}"
            if count > said.get(key, 0):
                said[key] = count
                sentences.append(sentence)
        if sentences:
            logging.warning("%s: %s", name, " ".join(sentences))


_current: contextvars.ContextVar[TextCounts | None] = contextvars.ContextVar(
    "text_counts", default=None
)


def current_counts() -> TextCounts | None:
    """Returns the count of the current call; None if its texts are not counted."""
    return _current.get()


def count_text(
    vocab: AnyVocab,
    ids_a: Sequence[int],
    ids_b: Sequence[int],
    size: int,
    limit: int,
) -> None:
    """Adds a text or a pair to the count of the current call; see `TextCounts.add`."""
    counts = _current.get()
    if counts is not None:
        counts.add([*ids_a, *ids_b] if ids_b else ids_a, vocab.unk_id, size, limit)


@contextlib.contextmanager
def counting_texts(
    name: str, model: object = None, remedy: Remedy | None = None
) -> Iterator[TextCounts]:
    """Counts the texts that are packed in the context, and logs a line at its end.

    Inside another such context the texts are counted there.

    Args:
      name: the call or the file, with which the line begins; "": no line is logged.
      model: see `TextCounts.log`.
      remedy: how the model reads more of each text; None: derived from the model.
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    counts = TextCounts()
    token = _current.set(counts)
    try:
        yield counts
    finally:
        _current.reset(token)
    if name:
        counts.log(name, remedy or remedy_of(model), model)


def counts_texts(method: Method) -> Method:
    """Makes a method of a model count the texts that it reads."""

    @functools.wraps(method)
    def call(self: object, *arguments: object, **options: object) -> Any:
        with counting_texts(method.__name__, self):
            return method(self, *arguments, **options)

    return call  # type: ignore[return-value]


def remedy_of(model: object) -> Remedy:
    """Returns the remedy for a model that was loaded: an argument of the call that loads it."""
    stated = getattr(model, "text_remedy", None)
    if stated is not None:
        return stated
    config = getattr(getattr(model, "bert", model), "config", None)
    return Remedy(
        num_positions=getattr(config, "longest_row", 0),
        kept=getattr(model, "long_texts", "head"),
        # Only classifiers have windows.
        read_all='long_texts="windows"' if hasattr(model, "long_texts") else "",
    )
