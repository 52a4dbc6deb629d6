"""SQuAD: questions from the official JSON, and their rows for the encoder.

A context that is too long for a row is split into overlapping windows, one row each:

  tokens of the context   0 . . . . . . . . . . . . . . . . 17
  window 0                |- - - - - - - - -|
  window 1                   doc_stride ->|- - - - - - - - -|
  row                     [CLS] question [SEP] window [SEP]       ids [T], unpadded
                                               ^ context_start
  starts, ends, is_max_context                 [W] for the W tokens of the window

`starts` and `ends` are offsets in characters of the original context, so that the text of a span is
a substring of it. A token in several windows has its maximum context in one of them.

Reference: google-research/bert's run_squad.py; Rajpurkar et al. 2016 and 2018.
"""

import bisect
import dataclasses
import functools
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.base.examples.offsets import code_points, find_unit
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.question_answering.sources import field, read_paragraphs
from bert_tf.text.packing import PackedText, add_special_tokens, num_special_tokens
from bert_tf.text.text_counts import Remedy, count_text
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer

# The original's definition of white space between words of a context, without U+00A0.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_log = logging.getLogger(__name__)

# Contexts of any length are read in windows; a question may be cut.
QUESTION_REMEDY = Remedy("max_query_length={}", limit="max_query_length")


class SquadAnswer(NamedTuple):
    """An annotated answer."""

    text: str
    start: int  # offset in characters of the context


@dataclasses.dataclass(frozen=True)
class SquadQuestion:
    """A question about a context.

    Attributes:
      id: key in the output files.
      question, context: texts as in the file.
      answer: the answer to train on; None if the question is impossible or has no answer, or, in a
        file that is not for training, if the first answer is not at its start.
      answers: all correct answers for an evaluation; may be empty.
      is_impossible: whether the context does not contain the answer (SQuAD 2.0).
    """

    id: str
    question: str
    context: str
    answer: SquadAnswer | None
    answers: tuple[SquadAnswer, ...]
    is_impossible: bool


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeature:
    """A question with one window of its context.

    Attributes:
      question_id: id of the question.
      window: index of the window among those of the question.
      ids: int32 [T], [CLS] question [SEP] window [SEP].
      type_ids: int32 [T], 0 up to the first [SEP].
      context_start: position in `ids` of the window's first token.
      starts, ends: int32 [W], offsets in characters of each token of the window.
      is_max_context: bool [W], True if no other window shows the token with more context.
      start_position, end_position: positions of the first and the last token of the answer in
        `ids`; both are `class_position` if the window does not contain the whole answer.
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
        """Returns start and end, in characters, of the span between two tokens, both included."""
        start = int(self.starts[start_position - self.context_start])
        end = int(self.ends[end_position - self.context_start])
        # Combining marks belong to the letter before them, even if uncased tokenization drops them.
        while end < len(context) and unicodedata.category(context[end]) == "Mn":
            end += 1
        return start, end

    def span_text(self, context: str, start_position: int, end_position: int) -> str:
        """Returns the substring of the context between two tokens, both included."""
        start, end = self.span_offsets(context, start_position, end_position)
        return context[start:end]


class SquadExamples(NamedTuple):
    """Questions, and the windows of their contexts."""

    questions: list[SquadQuestion]
    features: list[SquadFeature]
    rows: TokenizedDataset
    is_labelled: bool  # whether there are answers for an evaluation

    @property
    def owners(self) -> np.ndarray:
        """Index of the question of each row, int64 [N]."""
        index_of = {question.id: index for index, question in enumerate(self.questions)}
        return np.array([index_of[feature.question_id] for feature in self.features], np.int64)


def are_answered(questions: Iterable[SquadQuestion], version_2: bool) -> bool:
    """Returns whether there are answers for an evaluation."""
    # In version 2, impossible questions have no answers; in version 1, every question has one.
    answered = [bool(question.answers) for question in questions]
    return any(answered) if version_2 else all(answered)


def read_squad(path: str | os.PathLike, is_training: bool, version_2: bool) -> list[SquadQuestion]:
    """Reads the questions of an official file, SQuAD 1.1 or 2.0.

    In training, a question is skipped if the words at its answer's start do not contain the answer,
    as in the original; the number of skipped questions is logged.

    An id may also be an integer, which is converted to a string.

    Differs from the original, which in training needs exactly one answer; here the first of several
    is used. Two questions with the same id are an error here; there the second overwrites the
    prediction of the first.

    Args:
      path: JSON with data / paragraphs / context and qas, or tfds:squad/v1.1 and similar names.
      is_training: whether every question needs an answer or must be impossible; otherwise `answers`
        may be missing.
      version_2: whether questions may be impossible; `is_impossible` is then needed in training.

    Raises:
      ValueError: if the file has another format, or no questions.
    """
    questions: dict[str, SquadQuestion] = {}
    skipped: dict[str, SquadQuestion] = {}
    errors = RowErrors()
    paragraphs = list(read_paragraphs(path))
    unit = find_unit(functools.partial(_are_found, paragraphs), str(path))
    for paragraph, where in paragraphs:
        context = field(paragraph, "context", str, where)
        for values in field(paragraph, "qas", list, where):
            if is_training and isinstance(values, dict) and errors.leaves_out(values):
                continue
            try:
                values = _in_code_points(values, context, unit)
                question = _read_question(values, context, is_training, version_2, path, where)
            except ValueError as error:
                errors.add(RowError(str(error)))
                continue
            if question.id in questions or question.id in skipped:
                raise ValueError(
                    f"{path}, question {question.id}: two questions have this id; predictions are "
                    "written by id, so that ids must be unique."
                )
            if question.answer is None or _is_found(question.answer, context):
                questions[question.id] = question
            elif is_training:
                skipped[question.id] = question
            else:
                questions[question.id] = dataclasses.replace(question, answer=None)
    errors.finish(str(path), len(questions) + len(skipped))
    if skipped:
        _log.warning(
            "%s: %d of %d questions skipped, because their answer is not at answer_start; the "
            "first is %s.",
            path,
            len(skipped),
            len(skipped) + len(questions),
            next(iter(skipped)),
        )
    if not questions:
        raise ValueError(f"{path}: no usable question; expected SQuAD's JSON.")
    return list(questions.values())


def _answers_of(paragraphs: Sequence[tuple[Any, str]]) -> Iterator[tuple[str, str, int]]:
    """Yields context, text and start of each answer that has these; errors are reported later."""
    for paragraph, _ in paragraphs:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        context = paragraph.get("context") if questions else None
        for question in questions if isinstance(questions, list) else ():
            answers = question.get("answers") if isinstance(question, dict) else None
            for answer in answers if isinstance(answers, list) else ():
                values = answer if isinstance(answer, dict) else {}
                text = values.get("text")
                start = values.get("answer_start")
                if isinstance(context, str) and isinstance(text, str) and type(start) is int:
                    yield context, text, start


def _are_found(paragraphs: Sequence[tuple[Any, str]], unit: str) -> bool:
    """Returns whether all answers of a file are at their starts."""
    return all(
        context.startswith(text, code_points(context, start, unit))
        for context, text, start in _answers_of(paragraphs)
    )


def _in_code_points(values: Any, context: str, unit: str) -> Any:
    """Returns an entry of "qas" with starts of answers in code points."""
    if not unit or not isinstance(values, dict) or not isinstance(values.get("answers"), list):
        return values
    answers = []
    for answer in values["answers"]:
        if isinstance(answer, dict) and type(answer.get("answer_start")) is int:
            answer = {**answer, "answer_start": code_points(context, answer["answer_start"], unit)}
        answers.append(answer)
    return {**values, "answers": answers}


def _read_question(
    values: Any,
    context: str,
    is_training: bool,
    version_2: bool,
    path: str | os.PathLike,
    where: str,
) -> SquadQuestion:
    """Reads an entry of "qas"; see `read_squad`."""
    if isinstance(values, dict) and type(values.get("id")) is int:
        values = {**values, "id": str(values["id"])}
    question_id = field(values, "id", str, where)
    where = f"{path}, question {question_id}"
    # SQuAD 1.1 does not have the field, and a file to predict may leave it out.
    is_impossible = False
    if version_2 and (is_training or "is_impossible" in values):
        is_impossible = field(values, "is_impossible", bool, where)
    answers = []
    if is_training or "answers" in values:
        for item in field(values, "answers", list, where):
            text = field(item, "text", str, where)
            start = field(item, "answer_start", int, where)
            answers.append(SquadAnswer(text, start))
    if is_training and not is_impossible and not answers:
        raise ValueError(
            f"{where}: no answer to train on; give one, or set --version_2_with_negative if the "
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


# Cached, because all questions about a context follow each other.
@functools.lru_cache(maxsize=4)
def _find_words(context: str) -> tuple[list[str], list[int]]:
    """Returns the words of a context and their offsets."""
    matches = list(_WORD.finditer(context))
    return [match.group() for match in matches], [match.start() for match in matches]


def _answer_words(answer: SquadAnswer, context: str) -> tuple[int, int]:
    """Returns the indices of the first and the last word that the answer overlaps."""
    starts = _find_words(context)[1]
    # The last words that begin at or before the answer's first and last character.
    first = bisect.bisect_right(starts, answer.start) - 1
    last = bisect.bisect_right(starts, answer.start + len(answer.text) - 1) - 1
    # -1 if the answer begins with white space before the first word.
    return max(first, 0), last


def _is_found(answer: SquadAnswer, context: str) -> bool:
    """Returns whether the words that the answer overlaps contain it, apart from white space."""
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
    """Makes a row for each window of a question; a context without tokens has no windows.

    Differs from the original, which converts tokens to text word by word and aligns the characters
    (`get_final_text`); here every token has its offsets. An answer without tokens, such as a
    zero-width space, gets the position of [CLS], as an answer outside the window does; there its
    end is before its start.

    Args:
      question: a question of `read_squad`.
      tokenizer: tokenizes question and context.
      max_seq_length: maximum length of a row.
      doc_stride: distance between the starts of two windows; less if the windows are shorter.
      max_query_length: maximum number of tokens of the question, which is truncated.

    Raises:
      ValueError: if the lengths leave no room for a window, or doc_stride is below 1.
    """
    vocab = tokenizer.vocab
    check_room(vocab, max_seq_length, doc_stride, max_query_length)
    ids, starts, ends = _context_tokens(question.context, tokenizer)
    query = tokenizer.encode(question.question)
    # Windows show all of the context, but a long question loses its end.
    count_text(vocab, query, ids, len(query), max_query_length)
    query = query[:max_query_length]
    context_start = vocab.text_start + len(query) + vocab.num_separators
    span = _answer_span(question, tokenizer)
    num_special = num_special_tokens(True, vocab.num_separators)
    # A window fills the rest of the row, after the question and the special tokens.
    windows = make_windows(len(ids), max_seq_length - len(query) - num_special, doc_stride)
    features = []
    for number, is_max_context in enumerate(find_max_context(windows)):
        start, end = windows[number]
        packed = add_special_tokens(vocab, query, ids[start:end])
        class_position = len(packed.ids) - 1 if vocab.class_at_end else 0
        # A window that does not contain the whole answer is trained to point to [CLS].
        start_position = class_position
        end_position = class_position
        if span and start <= span[0] and span[1] < end:
            start_position = context_start + span[0] - start
            end_position = context_start + span[1] - start
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
                start_position=start_position,
                end_position=end_position,
                class_position=class_position,
            )
        )
    return features


def check_room(
    vocab: AnyVocab, max_seq_length: int, doc_stride: int, max_query_length: int
) -> None:
    """Raises ValueError if the lengths leave no room for a window, or doc_stride is below 1."""
    num_special = num_special_tokens(True, vocab.num_separators)
    if max_seq_length <= max_query_length + num_special:
        raise ValueError(
            f"max_seq_length is {max_seq_length}, expected more than max_query_length + "
            f"{num_special} = {max_query_length + num_special}; change one of them."
        )
    if doc_stride < 1 or max_query_length < 0:
        raise ValueError(
            f"doc_stride is {doc_stride}, max_query_length {max_query_length}; expected at least "
            "1 and 0."
        )


def make_examples(
    questions: list[SquadQuestion], tokenizer: Tokenizer, max_seq_length: int, config: SquadConfig
) -> SquadExamples:
    """Splits contexts into windows, and packs them with their questions."""
    features: list[SquadFeature] = []
    for question in questions:
        features += make_features(
            question, tokenizer, max_seq_length, config.doc_stride, config.max_query_length
        )
    texts = [PackedText(feature.ids.tolist(), feature.type_ids.tolist()) for feature in features]
    start_positions = [feature.start_position for feature in features]
    end_positions = [feature.end_position for feature in features]
    labels = {
        "start_positions": np.array(start_positions, np.int32),
        "end_positions": np.array(end_positions, np.int32),
    }
    if config.span_head == "joint":
        if not tokenizer.vocab.second_type:
            raise ValueError(
                "span_head=joint distinguishes the context from the question by its type, but "
                "this model's vocabulary has the same type for both; leave it out."
            )
        if tokenizer.vocab.class_at_end:
            raise ValueError(
                "span_head=joint reads the class token at the start of a row, but this model's "
                "vocabulary puts it at the end; leave it out."
            )
        # As in the original, this is a label of the question: a window of an answerable question
        # gets 0 even if it does not contain the answer.
        impossible_ids = {question.id for question in questions if question.is_impossible}
        is_impossible = [feature.question_id in impossible_ids for feature in features]
        labels["is_impossible"] = np.array(is_impossible, np.float32)
    is_labelled = are_answered(questions, config.version_2_with_negative)
    rows = TokenizedDataset(texts, labels, pad_id=tokenizer.vocab.pad_id)
    return SquadExamples(questions, features, rows, is_labelled)


# Cached, because all questions about a context follow each other.
@functools.lru_cache(maxsize=4)
def _context_tokens(context: str, tokenizer: Tokenizer) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Returns the ids, starts and ends of all tokens.

    The original tokenizes word by word. The tokens are the same, because WordPiece tokens never
    cross white space. Tokens of byte-level BPE include the space before a word.
    """
    tokens, starts, ends = _trimming(tokenizer).tokenize_with_offsets(context)
    ids = [tokenizer.vocab.ids[token] for token in tokens]
    return ids, np.array(starts, np.int32), np.array(ends, np.int32)


@functools.lru_cache(maxsize=1)
def _trimming(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer whose offsets leave out the spaces before words."""
    vocab = tokenizer.vocab.with_trimmed_offsets()
    return tokenizer if vocab is tokenizer.vocab else make_tokenizer(vocab, False)


def _answer_span(question: SquadQuestion, tokenizer: Tokenizer) -> tuple[int, int] | None:
    """Returns the first and the last token of the answer in the context; None without an answer.

    The span covers the words that the answer overlaps, or within them the first sequence of the
    answer's tokens: "1895" in "(1895-1943)", but the whole of "Japanese" for "Japan". With
    byte-level BPE, whose tokens depend on the preceding text, it is the shortest span that contains
    the answer's characters.
    """
    answer = question.answer
    context = question.context
    if answer is None:
        return None
    ids, starts, ends = _context_tokens(context, tokenizer)
    first_word, last_word = _answer_words(answer, context)
    # With the end of the context, so that every word ends before an entry of the list.
    word_starts = [*_find_words(context)[1], len(context)]
    if tokenizer.vocab.marks_spaces:
        begin = word_starts[first_word]
        end = word_starts[last_word + 1]
        if context.startswith(answer.text, answer.start):
            offset = answer.start
        else:
            # The annotated offset may be wrong by a few characters.
            offset = context.find(answer.text, begin, end)
        if offset >= 0:
            begin = offset
            end = offset + len(answer.text)
        # Tokens that overlap the answer, without those that are only a space.
        inside = np.flatnonzero((ends > begin) & (starts < end) & (starts < ends))
        return (int(inside[0]), int(inside[-1])) if inside.size else None
    # From characters to tokens: no WordPiece token crosses the start of a word.
    first = int(np.searchsorted(starts, word_starts[first_word]))
    last = int(np.searchsorted(starts, word_starts[last_word + 1])) - 1
    answer_ids = tokenizer.encode(answer.text)
    if answer_ids:
        # As in the original's _improve_answer_span: the first tokens equal to those of the answer.
        for start in range(first, last - len(answer_ids) + 2):
            if ids[start : start + len(answer_ids)] == answer_ids:
                return start, start + len(answer_ids) - 1
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
        # A stride longer than a window would skip tokens.
        start += min(max_length, doc_stride)
    return windows


def find_max_context(windows: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Returns for each window, bool [W], whether it shows a token with more context than others.

    The score of a token in a window is the number of tokens on its shorter side, plus a hundredth
    of the window's length, as in the original; among equal scores, the first window wins.
    """
    if not windows:
        return []
    tokens = np.arange(windows[-1][1])  # [all tokens]
    scores = []
    for start, end in windows:
        context = np.minimum(tokens - start, end - 1 - tokens)
        is_inside = (start <= tokens) & (tokens < end)
        scores.append(np.where(is_inside, context + 0.01 * (end - start), -np.inf))
    best_window = np.stack(scores).argmax(axis=0)  # [windows, all tokens] -> [all tokens]
    return [best_window[start:end] == number for number, (start, end) in enumerate(windows)]
