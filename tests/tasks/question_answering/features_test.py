"""SQuAD questions and windows: features spelled out by hand, and every answer of real files."""

import json
import logging
import pathlib
from typing import Any

import numpy as np
import pytest

from bert_tf.tasks.question_answering.features import (
    SquadFeature,
    find_max_context,
    make_features,
    make_windows,
)
from bert_tf.tasks.question_answering.questions import SquadAnswer, SquadQuestion, read_squad
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.shared_data import golden_file, shared_data
from tests.tasks.padded_features import pad_features


@pytest.fixture
def tokenizer(tiny_vocab: Vocab) -> WordPiece:
    return WordPiece(tiny_vocab, do_lower_case=True)


def ask(
    context: str, answer: str | None = None, question: str = "the mill", start: int | None = None
) -> SquadQuestion:
    """Returns a question whose answer is the first place of that text in the context."""
    if answer is None:
        return SquadQuestion("q", question, context, None, (), True)
    marked = SquadAnswer(answer, context.index(answer) if start is None else start)
    return SquadQuestion("q", question, context, marked, (marked,), False)


def pieces(feature: SquadFeature, tokenizer: WordPiece) -> list[str]:
    return [tokenizer.vocab.tokens[index] for index in feature.ids]


def answer_of(feature: SquadFeature, question: SquadQuestion) -> str:
    positions = (feature.start_position, feature.end_position)
    return question.context[slice(*feature.span_offsets(question.context, *positions))]


def write(path: pathlib.Path, questions: list[Any], context: Any = "The mill stood.") -> str:
    paragraph = {"context": context, "qas": questions}
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    return str(path)


def qa(name: Any = "q", text: str = "mill", start: int = 4, **fields: Any) -> dict[str, Any]:
    values = {"id": name, "question": "what?", "answers": [{"text": text, "answer_start": start}]}
    return values | fields


def test_one_window_spelled_out(tokenizer):
    question = ask("The Mill  walked, slowly.", "walked")
    (feature,) = make_features(question, tokenizer)
    expected = "[CLS] the mill [SEP] the mill walk ##ed , slow ##ly . [SEP]"
    assert pieces(feature, tokenizer) == expected.split()
    assert (feature.question_id, feature.window, feature.context_start) == ("q", 0, 4)
    #                                 the Mill walk ed  ,  slow ly  .
    assert feature.starts.tolist() == [0, 4, 10, 14, 16, 18, 22, 24]
    assert feature.ends.tolist() == [3, 8, 14, 16, 17, 22, 24, 25]
    assert feature.is_max_context.all()
    assert (feature.start_position, feature.end_position) == (6, 7)
    assert answer_of(feature, question) == "walked"
    batch = pad_features([feature], 15)
    ids = tokenizer.vocab.ids
    assert batch["input_word_ids"][0].tolist() == [ids[t] for t in expected.split()] + [0, 0]
    assert batch["input_mask"].tolist() == [[1] * 13 + [0, 0]]
    assert batch["input_type_ids"].tolist() == [[0] * 4 + [1] * 9 + [0, 0]]
    assert (batch["start_positions"].tolist(), batch["end_positions"].tolist()) == ([6], [7])
    assert all(values.dtype == np.int32 for values in batch.values())


@pytest.mark.parametrize(
    ("num_pieces", "length", "stride", "expected"),
    [
        (0, 6, 3, []),
        (6, 6, 3, [(0, 6)]),
        (7, 6, 3, [(0, 6), (3, 7)]),
        (10, 6, 3, [(0, 6), (3, 9), (6, 10)]),
        (12, 6, 3, [(0, 6), (3, 9), (6, 12)]),
        (7, 3, 100, [(0, 3), (3, 6), (6, 7)]),  # a stride over the length leaves no gap
    ],
)
def test_windows_by_hand(num_pieces, length, stride, expected):
    assert make_windows(num_pieces, length, stride) == expected


def test_maximum_context_by_hand():
    # Piece:     0    1    2    3    4    5    6    7    8    9
    # [0, 6)   .06 1.06 2.06 2.06 1.06  .06
    # [3, 9)                  .06 1.06 2.06 2.06 1.06  .06
    # [6, 10)                                .04 1.04 1.04  .04
    first, second, third = find_max_context([(0, 6), (3, 9), (6, 10)])
    assert first.tolist() == [True] * 5 + [False]  # piece 4: equal, the first window has it
    assert second.tolist() == [False, False, True, True, True, False]  # 7: longer by two pieces
    assert third.tolist() == [False, False, True, True]
    # Piece 3 has 2 + 0.06 and 1 + 0.06, piece 4 has 1 + 0.06 and 2 + 0.06.
    first, second = find_max_context([(0, 6), (2, 8)])
    assert first.tolist() == [True] * 4 + [False] * 2
    assert second.tolist() == [False] * 2 + [True] * 4


def test_of_windows_over_100_pieces_apart_in_length_the_longer_may_have_less_context():
    # Piece 214 has 85 + 3.00 and 86 + 1.82, piece 215 has 84 + 3.00 and 87 + 1.82.
    first, second = find_max_context([(0, 300), (128, 310)])
    assert first.tolist() == [True] * 215 + [False] * 85
    assert second.tolist() == [False] * (215 - 128) + [True] * 95


def test_windows_of_a_question_and_answers_in_and_out_of_them(tokenizer):
    # [CLS] the mill [SEP], six pieces of the context, [SEP].
    question = ask("a b c d e f g h i j", "d e f")
    features = make_features(question, tokenizer, 11, doc_stride=3, max_query_length=7)
    rows = [" ".join(pieces(feature, tokenizer)[4:-1]) for feature in features]
    assert rows == ["a b c d e f", "d e f g h i", "g h i j"]
    assert [f.window for f in features] == [0, 1, 2]
    assert [(f.start_position, f.end_position) for f in features] == [(7, 9), (4, 6), (0, 0)]
    assert [answer_of(f, question) for f in features[:2]] == ["d e f"] * 2
    assert features[1].starts.tolist() == [6, 8, 10, 12, 14, 16]
    assert features[1].is_max_context.tolist() == [False, False, True, True, True, False]
    cut = make_features(ask(question.context, "f g"), tokenizer, 11, 3, 7)
    assert [(f.start_position, f.end_position) for f in cut] == [(0, 0), (6, 7), (0, 0)]
    too_long = make_features(ask(question.context, "b c d e f g h"), tokenizer, 11, 3, 7)
    assert [(f.start_position, f.end_position) for f in too_long] == [(0, 0)] * 3


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("The king (1895-1943).", "1895", "1895"),
        ("The (king", "king", "king"),
        ("The kings of stone", "king", "king"),  # "king ##s"
        ("The rivers of stone", "ver", "rivers"),  # "river ##s" has no run "v ##e ##r"
        ("The mill stood", "ill ", "mill"),
        ("a\u202frivers\u00a0king of", "ver", "rivers\u00a0king"),  # U+00A0 parts no words here
        ("it stopped, it stopped.", "stopped", "stopped"),
        ("a\u202fking\u00a0of\tit", "king\u00a0of", "king\u00a0of"),
        ("Le cafe\u0301, ici", "cafe\u0301", "cafe\u0301"),
        ("Le CAF\u00c9, ici", "CAF\u00c9", "CAF\u00c9"),
        ("in \u6771\u4eac\u90fd now", "\u4eac", "\u6771"),  # all are [UNK]: the first of them
        ("so \u200bking\u200b!", "king\u200b!", "king\u200b!"),
        (" \n the mill ", "the mill", "the mill"),
        (" \n the mill ", " \n the mill ", "the mill"),
    ],
)
def test_answers_within_words(tokenizer, context, answer, expected):
    question = ask(context, answer)
    (feature,) = make_features(question, tokenizer)
    assert answer_of(feature, question) == expected


def test_the_first_run_within_the_words_of_the_answer(tokenizer):
    question = ask("it is 1-1 now", "1", start=8)
    (feature,) = make_features(question, tokenizer)
    assert feature.starts[feature.start_position - feature.context_start] == 6  # not 8


def test_an_impossible_question_and_an_answer_without_pieces_are_at_cls(tokenizer):
    for question in (ask("a mill"), ask("a mill \u200b", "\u200b")):
        (feature,) = make_features(question, tokenizer)
        assert (feature.start_position, feature.end_position) == (0, 0)


def test_long_question_and_empty_context(tokenizer):
    question = ask("a mill", "mill", question="the king of the river walks in the garden")
    (feature,) = make_features(question, tokenizer, 20, max_query_length=6)
    # [SEP] a mill [SEP] follow "walk" of "walk ##s".
    assert " ".join(pieces(feature, tokenizer)) == (
        "[CLS] the king of the river walk [SEP] a mill [SEP]"
    )
    assert feature.start_position == feature.end_position == 9
    assert make_features(ask(" \u200b"), tokenizer) == []


def test_lengths_without_room(tokenizer):
    assert make_features(ask("a b"), tokenizer, 12, 1, 8)
    with pytest.raises(ValueError, match="max_seq_length .*11.* max_query_length .*11"):
        make_features(ask("a b"), tokenizer, 11, 1, 8)
    with pytest.raises(ValueError, match="doc_stride .*0,"):
        make_features(ask("a b"), tokenizer, doc_stride=0)
    with pytest.raises(ValueError, match="question q: .* 7 .*max_seq_length, 6"):
        pad_features(make_features(ask("a b"), tokenizer), 6)


def test_reads_for_training_and_for_prediction(tmp_path):
    two = [{"text": "mill", "answer_start": 4}, {"text": "The mill", "answer_start": 0}]
    path = write(tmp_path / "a.json", [qa(answers=two), qa("r", is_impossible=True)])
    first, second = read_squad(path, is_training=True, version_2=False)
    answers = (SquadAnswer("mill", 4), SquadAnswer("The mill", 0))
    assert first == SquadQuestion("q", "what?", "The mill stood.", answers[0], answers, False)
    assert second.answer == answers[0] and not second.is_impossible  # as the original, version 1
    first, second = read_squad(path, is_training=False, version_2=True)
    assert (first.answer, first.answers, first.is_impossible) == (answers[0], answers, False)
    assert second.is_impossible
    path = write(tmp_path / "n.json", [qa(7), qa("8")])
    assert [question.id for question in read_squad(path, True, False)] == ["7", "8"]
    path = write(tmp_path / "b.json", [{"id": "q", "question": "?"}])
    assert read_squad(path, False, True)[0].answers == ()
    path = write(tmp_path / "c.json", [qa(is_impossible=True, answers=[])])
    assert read_squad(path, True, True)[0].answer is None


def test_skips_and_counts_answers_that_are_elsewhere(tmp_path, caplog):
    questions = [
        qa("far", "mill", 11),  # within "stood."
        qa("near", "mill", 5),  # "ill " and the word after it: the words hold "mill"
        qa("spaces", "The  mill", 0),
    ]
    path = write(tmp_path / "a.json", questions)
    with caplog.at_level(logging.WARNING):
        kept = [question.id for question in read_squad(path, True, False)]
    assert kept == ["near", "spaces"]
    assert f"{path}: 1 of 3 " in caplog.text and " far" in caplog.text
    assert len(read_squad(path, False, False)) == 3


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([qa(), qa()], "a.json, question q: .* id"),
        ([qa(7), qa("7")], "question 7: .* id"),
        ([qa(True)], "'id' .*True.* str"),
        ([qa(start=11), qa()], "question q: .* id"),
        ([], "a.json: .*question.*SQuAD"),
        (["q"], r"data\[0\].paragraphs\[0\]: .*'q'.*'id'"),
        ([{"question": "?"}], r"data\[0\].paragraphs\[0\]: .*'id'.*str"),
        ([qa(question=3)], "question q: 'question' .*3,.* str"),
        ([qa(answers=None)], "question q: 'answers' .*None,.* list"),
        ([qa(answers=[])], "question q: .*answer.* --version_2_with_negative"),
        ([qa(answers=[{"text": "mill"}])], "question q: .*'answer_start'"),
        ([qa(text=" ")], "answer ' ' .* 4 .* 15;"),
        ([qa(start=12)], "answer 'mill' .* 12 .* 15;"),
        ([qa(start=-1)], "answer 'mill' .* -1 "),
    ],
)
def test_bad_questions(tmp_path, questions, message):
    path = write(tmp_path / "a.json", questions)
    with pytest.raises(ValueError, match=message):
        read_squad(path, is_training=True, version_2=False)


def test_bad_files(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="question q: .*'is_impossible'.*bool"):
        read_squad(write(path, [qa()]), is_training=True, version_2=True)
    with pytest.raises(ValueError, match="'context' .*None,.* str"):
        read_squad(write(path, [qa()], context=None), True, False)
    for text, message in (
        ("{", "a.json .*JSON: .*line 1 column 2"),
        ("{}", "a.json: .*'data'.*list.*SQuAD"),
        ('{"data": [3]}', r"data\[0\]: .*3,.* 'paragraphs'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_squad(path, True, False)


def features_of_file(
    tokenizer: WordPiece, name: str, version_2: bool, *lengths: int
) -> list[tuple[SquadQuestion, list[SquadFeature]]]:
    """Returns the questions of a real file, each with its windows."""
    questions = read_squad(shared_data("squad", name), True, version_2)
    return [(question, make_features(question, tokenizer, *lengths)) for question in questions]


def count_answers(pairs: list[tuple[SquadQuestion, list[SquadFeature]]]) -> dict[str, int]:
    """Counts what the spans give back; a text that is not the answer must at least hold it."""
    counts = dict.fromkeys(("recovered", "within a word", "in no window", "impossible"), 0)
    for question, features in pairs:
        texts = {answer_of(f, question) for f in features if f.start_position}
        assert len(texts) <= 1, question.id
        if question.answer is None:
            assert not texts
            counts["impossible"] += 1
        elif not texts:
            counts["in no window"] += 1
        else:
            text, wanted = texts.pop().lower().strip(), question.answer.text.lower().strip()
            assert wanted in text and len(text.split()) == len(wanted.split()), question.id
            counts["recovered" if text == wanted else "within a word"] += 1
    return counts


def check_windows(
    pairs: list[tuple[SquadQuestion, list[SquadFeature]]], tokenizer: WordPiece, doc_stride: int
) -> None:
    """Every piece of a context is in a window, and in exactly one with maximum context."""
    for question, features in pairs:
        ids = tokenizer.encode(question.context)
        times_seen, times_best = np.zeros((2, len(ids)), int)
        longest = max(len(feature.starts) for feature in features)
        for feature in features:
            start = feature.window * min(doc_stride, longest)
            window = slice(start, start + len(feature.starts))
            assert feature.ids[feature.context_start : -1].tolist() == ids[window], question.id
            times_seen[window] += 1
            times_best[window] += feature.is_max_context
        assert times_seen.all() and (times_best == 1).all(), question.id


@pytest.fixture
def uncased() -> WordPiece:
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    return WordPiece(vocab, do_lower_case=True)


@pytest.mark.slow
@pytest.mark.needs(data="squad")
def test_answers_of_version_2_that_windows_cut(uncased):
    # Windows side by side: the original's numbers for the same flags.
    pairs = features_of_file(uncased, "v2.0-train.json", True, 96, 200, 24)
    assert sum(len(features) for _, features in pairs) == 13243
    assert count_answers(pairs) == {
        "recovered": 2324,
        "within a word": 1,
        "in no window": 65,
        "impossible": 2545,
    }
    check_windows(pairs, uncased, 200)
