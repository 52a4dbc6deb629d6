"""The rows of SQuAD's questions for the encoder.

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

import dataclasses
import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.question_answering.questions import (
    SquadQuestion,
    answer_words,
    are_answered,
    find_words,
)
from bert_tf.text.packing import PackedText, add_special_tokens, num_special_tokens
from bert_tf.text.text_counts import Remedy, count_text
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer

# Contexts of any length are read in windows; a question may be cut.
QUESTION_REMEDY = Remedy("max_query_length={}", limit="max_query_length")


@dataclasses.dataclass(frozen=True, eq=False)
class SquadFeature:
    """A question with one window of its context."""

    question_id: str  # id of the question
    window: int  # index of the window among those of the question
    ids: np.ndarray  # int32 [T], [CLS] question [SEP] window [SEP]
    type_ids: np.ndarray  # int32 [T], 0 up to the first [SEP]
    context_start: int  # position in `ids` of the window's first token
    # starts, ends: int32 [W], offsets in characters of each token of the window.
    starts: np.ndarray
    ends: np.ndarray
    # bool [W], True if no other window shows the token with more context.
    is_max_context: np.ndarray
    # start_position, end_position: positions of the first and the last token of the answer in
    # `ids`; both are `class_position` if the window does not contain the whole answer.
    start_position: int
    end_position: int
    class_position: int = 0  # position of [CLS] in `ids`

    def span_offsets(self, context: str, start_position: int, end_position: int) -> tuple[int, int]:
        """Returns start and end, in characters, of the span between two tokens, both included."""
        start = int(self.starts[start_position - self.context_start])
        end = int(self.ends[end_position - self.context_start])
        # Combining marks belong to the letter before them, even if uncased tokenization drops them.
        while end < len(context) and unicodedata.category(context[end]) == "Mn":
            end += 1
        return start, end


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
      doc_stride: distance between the starts of two windows; less if the windows are shorter.
      max_query_length: maximum number of tokens of the question, which is truncated.
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
    if vocab is tokenizer.vocab:
        return tokenizer
    return make_tokenizer(vocab, False)


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
    first_word, last_word = answer_words(answer, context)
    # With the end of the context, so that every word ends before an entry of the list.
    word_starts = [*find_words(context)[1], len(context)]
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
        if inside.size:
            return (int(inside[0]), int(inside[-1]))
        return None
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
