"""SQuAD: questions from the official JSON, and their rows for the encoder.

A context that is too long for a row is cut into windows, one row each, that overlap:

  tokens of the context   0 . . . . . . . . . . . . . . . . 17
  window 0                |- - - - - - - - -|
  window 1                   doc_stride ->|- - - - - - - - -|
  row                     [CLS] question [SEP] window [SEP]       ids [T], unpadded
                                               ^ context_start
  starts, ends, is_max_context                 [W] for the W tokens of the window

`starts` and `ends` are characters of the context as it stands in the file, so the text of a span
is cut out of the context. A token in several windows has its maximum context in one of them.

Reference: google-research/bert's run_squad.py; Rajpurkar et al. 2016 and 2018.
"""

import bisect
import dataclasses
import functools
import logging
import os
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.examples.tables import RowError, RowErrors
from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.tasks.question_answering.sources import field, read_paragraphs
from bert_tf.text.kinds import with_trimmed_offsets
from bert_tf.text.packing import PackedText, add_special_tokens, num_special_tokens
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer
from bert_tf.text.vocab import Vocab

# The white space between words of a context is the original's; U+00A0 does not part words here.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_log = logging.getLogger(__name__)


class SquadAnswer(NamedTuple):
    """What an annotator marked."""

    text: str
    start: int  # first character in the context


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """One question about one context.

    Attributes:
      id: key of the output files.
      question, context: as they stand in the file.
      answer: what the loss is of; None if the question is impossible or has no answer, and, where
        nothing is trained, if the first one is not where its start says.
      answers: all that count as right in an evaluation; empty if there is none.
      is_impossible: the context has no answer (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answer: SquadAnswer | None
    answers: tuple[SquadAnswer, ...]
    is_impossible: bool


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeature:
    """One window of a context behind its question.

    Attributes:
      question_id: whose window it is.
      window: its number among the windows of the question.
      ids: int32 [T], [CLS] question [SEP] window [SEP].
      type_ids: int32 [T], 0 up to the first [SEP].
      context_start: position in `ids` of the window's first token.
      starts, ends: int32 [W], first character of each token, and the one after its last.
      is_max_context: bool [W], true where no other window shows the token with more context.
      start_position, end_position: first and last token of the answer in `ids`; both
        `class_position` if the window does not hold all of it or there is none.
      class_position: position of [CLS] in `ids`.
    """

    question_id: str
    window: int
    ids: np.ndarray
    type_ids: np.ndarray
    context_start: int
    starts: np.ndarray
    ends: np.ndarray
    is_max_context: np.ndarray
    start_position: int
    end_position: int
    class_position: int = 0

    def span_offsets(self, context: str, start_position: int, end_position: int) -> tuple[int, int]:
        """Returns the characters of the context from one token to another, both included.

        Marks after the last letter belong to it, also where the uncased rules dropped them.
        """
        start = int(self.starts[start_position - self.context_start])
        end = int(self.ends[end_position - self.context_start])
        while end < len(context) and unicodedata.category(context[end]) == "Mn":
            end += 1
        return start, end

    def span_text(self, context: str, start_position: int, end_position: int) -> str:
        """Returns the text between two tokens, both included, as it is in the context."""
        start, end = self.span_offsets(context, start_position, end_position)
        return context[start:end]


class SquadExamples(NamedTuple):
    """Questions with the windows that the model sees of their contexts."""

    questions: list[SquadQuestion]
    features: list[SquadFeature]
    rows: TokenizedDataset
    is_labelled: bool  # whether an evaluation can be made


def read_squad(path: str | os.PathLike, is_training: bool, version_2: bool) -> list[SquadQuestion]:
    """Reads the questions of an official file, SQuAD 1.1 or 2.0.

    For training, a question is skipped if its answer is not among the words it is said to be in,
    as in the original; the number is logged.

    An id may also be a whole number; it is written as a string.

    Differs from the original: for training it wants exactly one answer, here the first of several
    is taken; two questions of one id are an error, there the second overwrites the prediction of
    the first.

    Args:
      path: JSON with data / paragraphs / context and qas, or tfds:squad/v1.1 and the like.
      is_training: every question needs an answer to be trained on, or to be impossible. Otherwise
        `answers` may be missing in the file.
      version_2: questions may be impossible; `is_impossible` is then needed for training.

    Raises:
      ValueError: if the file is no such JSON, or holds no question.
    """
    questions: dict[str, SquadQuestion] = {}
    skipped: dict[str, SquadQuestion] = {}
    errors = RowErrors()
    for paragraph, where in read_paragraphs(path):
        context = field(paragraph, "context", str, where)
        for values in field(paragraph, "qas", list, where):
            try:
                question = _read_question(values, context, is_training, version_2, path, where)
            except ValueError as error:
                errors.add(RowError(str(error)))
                continue
            if question.id in questions or question.id in skipped:
                raise ValueError(
                    f"{path}, question {question.id}: a second question has this id; predictions "
                    f"are written by id, so ids must be unique."
                )
            if question.answer is None or _is_found(question.answer, context):
                questions[question.id] = question
            elif is_training:
                skipped[question.id] = question
            else:
                questions[question.id] = dataclasses.replace(question, answer=None)
    errors.raise_any(len(questions) + len(skipped))
    if skipped:
        _log.warning(
            "%s: %d of %d questions skipped, because their answer is not at answer_start; the "
            "first is %s.",
            *(path, len(skipped), len(skipped) + len(questions), next(iter(skipped))),
        )
    if not questions:
        raise ValueError(f"{path}: no usable question; expected SQuAD's JSON.")
    return list(questions.values())


def _read_question(
    values: Any,
    context: str,
    is_training: bool,
    version_2: bool,
    path: str | os.PathLike,
    where: str,
) -> SquadQuestion:
    if isinstance(values, dict) and type(values.get("id")) is int:
        values = {**values, "id": str(values["id"])}
    question_id = field(values, "id", str, where)
    where = f"{path}, question {question_id}"
    is_impossible = False
    if version_2 and (is_training or "is_impossible" in values):
        is_impossible = field(values, "is_impossible", bool, where)
    answers = []
    if is_training or "answers" in values:
        for item in field(values, "answers", list, where):
            text, start = field(item, "text", str, where), field(item, "answer_start", int, where)
            answers.append(SquadAnswer(text, start))
    if is_training and not is_impossible and not answers:
        raise ValueError(
            f"{where}: no answer to train on; give one, or read the file as version 2 if the "
            "question is impossible."
        )
    answer = answers[0] if answers and not is_impossible else None
    is_within = answer and 0 <= answer.start <= len(context) - len(answer.text)
    if answer and not (is_within and answer.text.strip()):
        if is_training:
            raise ValueError(
                f"{where}: answer {answer.text!r} at character {answer.start} of a context of "
                f"{len(context)}; expected a text within it."
            )
        answer = None
    text = field(values, "question", str, where)
    return SquadQuestion(question_id, text, context, answer, tuple(answers), is_impossible)


@functools.lru_cache(maxsize=4)
def _find_words(context: str) -> tuple[list[str], list[int]]:
    """Returns the words of a context and their first characters."""
    matches = list(_WORD.finditer(context))
    return [match.group() for match in matches], [match.start() for match in matches]


def _answer_words(answer: SquadAnswer, context: str) -> tuple[int, int]:
    """Returns the first and the last word that the answer touches."""
    starts = _find_words(context)[1]
    first = bisect.bisect_right(starts, answer.start) - 1
    last = bisect.bisect_right(starts, answer.start + len(answer.text) - 1) - 1
    return max(first, 0), last


def _is_found(answer: SquadAnswer, context: str) -> bool:
    """True if the words that the answer touches hold it, white space apart."""
    first, last = _answer_words(answer, context)
    words = _find_words(context)[0][first : last + 1]
    return " ".join(answer.text.split()) in " ".join(words)


def make_features(
    question: SquadQuestion,
    tokenizer: Tokenizer,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> list[SquadFeature]:
    """Makes the rows of a question, one a window; none if the context has no token.

    Differs from the original: it goes back to text word by word and aligns characters again
    (`get_final_text`), here every token knows its characters; an answer without a token, such as a
    zero-width space, gets [CLS] as an answer outside the window does, there an end before its
    start.

    Args:
      question: of `read_squad`.
      tokenizer: makes the tokens.
      max_seq_length: maximum length of a row.
      doc_stride: from one window's start to the next; less if the window is shorter.
      max_query_length: tokens of the question that are kept.

    Raises:
      ValueError: if the lengths leave no room for a window, or it does not move.
    """
    vocab = tokenizer.vocab
    check_room(vocab, max_seq_length, doc_stride, max_query_length)
    ids, starts, ends = _context_tokens(question.context, tokenizer)
    query = tokenizer.encode(question.question)[:max_query_length]
    context_start = vocab.text_start + len(query) + vocab.num_separators
    span = _answer_span(question, tokenizer)
    num_special = num_special_tokens(True, vocab.num_separators)
    windows = make_windows(len(ids), max_seq_length - len(query) - num_special, doc_stride)
    features = []
    for number, is_max_context in enumerate(find_max_context(windows)):
        start, end = windows[number]
        packed = add_special_tokens(vocab, query, ids[start:end])
        class_position = len(packed.ids) - 1 if vocab.class_at_end else 0
        positions = (class_position, class_position)
        if span and start <= span[0] and span[1] < end:
            first_token = context_start - start
            positions = (span[0] + first_token, span[1] + first_token)
        features.append(
            SquadFeature(
                question_id=question.id,
                window=number,
                ids=np.array(packed.ids, np.int32),
                type_ids=np.array(packed.type_ids, np.int32),
                context_start=context_start,
                starts=starts[start:end],
                ends=ends[start:end],
                is_max_context=is_max_context,
                start_position=positions[0],
                end_position=positions[1],
                class_position=class_position,
            )
        )
    return features


def check_room(
    vocab: AnyVocab, max_seq_length: int, doc_stride: int, max_query_length: int
) -> None:
    """Raises ValueError if the lengths leave no room for a window, or it does not move."""
    num_special = num_special_tokens(True, vocab.num_separators)
    if max_seq_length <= max_query_length + num_special:
        raise ValueError(
            f"max_seq_length is {max_seq_length}, expected more than max_query_length + "
            f"{num_special}, which is {max_query_length + num_special}; change one of them."
        )
    if doc_stride < 1 or max_query_length < 0:
        raise ValueError(
            f"doc_stride is {doc_stride}, max_query_length {max_query_length}; expected at least "
            "1 and 0."
        )


def make_examples(
    questions: list[SquadQuestion], tokenizer: Tokenizer, max_seq_length: int, config: SquadConfig
) -> SquadExamples:
    """Cuts contexts in windows behind their questions."""
    features = [
        feature
        for question in questions
        for feature in make_features(
            question, tokenizer, max_seq_length, config.doc_stride, config.max_query_length
        )
    ]
    texts = [PackedText(feature.ids.tolist(), feature.type_ids.tolist()) for feature in features]
    positions = {
        "start_positions": [feature.start_position for feature in features],
        "end_positions": [feature.end_position for feature in features],
    }
    labels = {name: np.array(values, np.int32) for name, values in positions.items()}
    if config.span_head == "joint":
        if not tokenizer.vocab.second_type:
            raise ValueError(
                "span_head=joint tells the context from the question by its type, but this model's "
                "vocabulary has one type for all; leave it out."
            )
        if tokenizer.vocab.class_at_end:
            raise ValueError(
                "span_head=joint reads the class token at the front of a row, but this model's "
                "vocabulary puts it at the end; leave it out."
            )
        # Of the question, not of the window, which may lack the answer: the original's.
        without = {question.id for question in questions if question.is_impossible}
        is_impossible = [feature.question_id in without for feature in features]
        labels["is_impossible"] = np.array(is_impossible, np.float32)
    answered = [bool(question.answers) for question in questions]
    is_labelled = any(answered) if config.version_2_with_negative else all(answered)
    rows = TokenizedDataset(texts, labels, pad_id=tokenizer.vocab.pad_id)
    return SquadExamples(questions, features, rows, is_labelled)


@functools.lru_cache(maxsize=4)  # The questions about one context follow each other.
def _context_tokens(context: str, tokenizer: Tokenizer) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Returns ids, first characters and ends of all tokens.

    The original tokenizes word by word. That gives the same tokens, as its tokenizer never looks
    across the white space between words. Those of byte-level BPE have it in front.
    """
    tokens, starts, ends = _trimming(tokenizer).tokenize_with_offsets(context)
    ids = [tokenizer.vocab.ids[token] for token in tokens]
    return ids, np.array(starts, np.int32), np.array(ends, np.int32)


@functools.lru_cache(maxsize=1)
def _trimming(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer whose offsets leave out the spaces before words."""
    vocab = with_trimmed_offsets(tokenizer.vocab)
    return tokenizer if vocab is tokenizer.vocab else make_tokenizer(vocab, False)


def _answer_span(question: SquadQuestion, tokenizer: Tokenizer) -> tuple[int, int] | None:
    """Returns the first and last token of the answer in the context; None if there is none.

    They are the tokens of the words that the answer touches or, inside them, the first run that
    has the answer's tokens: "1895" in "(1895-1943)", but all of "Japanese" for "Japan".
    With byte-level BPE, whose tokens depend on the text before them, they are the fewest that hold
    the answer's characters.
    """
    answer, context = question.answer, question.context
    if answer is None:
        return None
    ids, starts, ends = _context_tokens(context, tokenizer)
    first_word, last_word = _answer_words(answer, context)
    word_starts = [*_find_words(context)[1], len(context)]
    if not isinstance(tokenizer.vocab, Vocab):
        begin, end = word_starts[first_word], word_starts[last_word + 1]
        is_there = context.startswith(answer.text, answer.start)
        found = answer.start if is_there else context.find(answer.text, begin, end)
        if found >= 0:
            begin = found
            end = found + len(answer.text)
        inside = np.flatnonzero((ends > begin) & (starts < end) & (starts < ends))
        return (int(inside[0]), int(inside[-1])) if inside.size else None
    first = int(np.searchsorted(starts, word_starts[first_word]))
    last = int(np.searchsorted(starts, word_starts[last_word + 1])) - 1
    own = tokenizer.encode(answer.text)
    if own:
        for start in range(first, last - len(own) + 2):
            if ids[start : start + len(own)] == own:
                return start, start + len(own) - 1
    return (first, last) if first <= last else None


def make_windows(num_tokens: int, max_length: int, doc_stride: int) -> list[tuple[int, int]]:
    """Returns windows (first token, one after the last) that cover all tokens.

    Example: make_windows(10, max_length=6, doc_stride=3) == [(0, 6), (3, 9), (6, 10)].
    """
    windows: list[tuple[int, int]] = []
    start = 0
    while start < num_tokens:
        end = min(start + max_length, num_tokens)
        windows.append((start, end))
        if end == num_tokens:
            break
        start += min(max_length, doc_stride)
    return windows


def find_max_context(windows: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Returns for each window, bool [W], which of its tokens no other window shows better.

    The score of a token in a window is the smaller of its left and right context, plus a hundredth
    of the window's length, as in the original; of equal ones the first window wins.
    """
    if not windows:
        return []
    tokens = np.arange(windows[-1][1])  # [all tokens]
    scores = np.stack(  # [windows, all tokens]
        [
            np.where(
                (start <= tokens) & (tokens < end),
                np.minimum(tokens - start, end - 1 - tokens) + 0.01 * (end - start),
                -np.inf,
            )
            for start, end in windows
        ]
    )
    best = scores.argmax(axis=0)  # [all tokens]
    return [best[start:end] == number for number, (start, end) in enumerate(windows)]
