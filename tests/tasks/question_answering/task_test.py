"""SQuAD as a task: rows, losses by hand, and the judgement against a search of all thresholds."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.metrics.squad import evaluate_v2
from bert_tf.tasks.question_answering.answers import choose_answers
from bert_tf.tasks.question_answering.features import SquadExamples, make_examples
from bert_tf.tasks.question_answering.questions import read_squad
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.float_bounds import assert_close, close_to
from tests.tasks.padded_features import pad_features

LENGTH = 12
SIZES = {"doc_stride": 3, "max_query_length": 4}
ROWS = [  # The answer of the last is longer than a window.
    ("q0", "the mill?", "a boat was in the water by the stone mill of the king", "stone mill"),
    ("q1", "the king", "he read", "read"),
    ("q2", "a house", "the water was in the garden at night", None),
    (
        "q3",
        "rain",
        "it was rain on the stone house at night",
        "was rain on the stone house at night",
    ),
]


def write(path: pathlib.Path, version_2: bool) -> dict:
    """Writes ROWS, those without an answer for version 2 only; returns the content."""
    paragraphs = []
    for name, question, context, answer in ROWS:
        if not answer and not version_2:
            continue
        answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        qa = {"id": name, "question": question, "answers": answers}
        if version_2:
            qa["is_impossible"] = not answer
        paragraphs.append({"context": context, "qas": [qa]})
    content = {"data": [{"paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))
    return content


def make_task(version_2: bool = False, **options) -> SquadTask:
    config = SquadConfig(version_2_with_negative=version_2, **SIZES, **options)
    return SquadTask(None, None, None, [LENGTH], 0, config=config)


def examples_of(path: pathlib.Path, vocab: Vocab, version_2: bool, is_training=False):
    questions = read_squad(path, is_training, version_2)
    config = make_task(version_2).config
    return make_examples(questions, WordPiece(vocab, True), LENGTH, config)


def outputs_of(examples: SquadExamples, seed: int) -> dict[str, list[np.ndarray]]:
    """Returns random scores, a row of each window's own length; those of [CLS] are often high."""
    draw = np.random.default_rng(seed)
    lengths = [len(feature.ids) for feature in examples.features]
    outputs = {
        name: [draw.normal(0, 3, length).astype(np.float32) for length in lengths]
        for name in ("start_logits", "end_logits")
    }
    is_likely = {question.id: draw.random() < 0.5 for question in examples.questions}
    for row, feature in zip(outputs["start_logits"], examples.features, strict=True):
        row[0] += 12 * is_likely[feature.question_id]
    return outputs | {"loss": [np.float32(index) for index in range(len(lengths))]}


@pytest.mark.parametrize("is_training", [True, False])
def test_rows_are_the_windows(tmp_path, tiny_vocab, is_training):
    write(tmp_path / "a.json", True)
    examples = examples_of(tmp_path / "a.json", tiny_vocab, True, is_training)
    assert examples.is_labelled
    assert [question.id for question in examples.questions] == ["q0", "q1", "q2", "q3"]
    expected = pad_features(examples.features, LENGTH)
    count = len(examples.features)
    made = examples.rows.batch(np.arange(count), count, LENGTH)
    for name, values in expected.items():
        np.testing.assert_array_equal(made[name], values, err_msg=name)
    places = {
        f.question_id: (f.start_position, f.end_position)
        for f in examples.features
        if f.start_position
    }
    # [CLS] the king [SEP] he read. No window holds all of q3's answer.
    assert set(places) == {"q0", "q1"} and places["q1"] == (5, 5)


def test_an_evaluation_has_a_loss_also_where_answers_are_elsewhere(tmp_path, tiny_vocab):
    content = write(tmp_path / "a.json", False)
    first, second, third = (p["qas"][0]["answers"][0] for p in content["data"][0]["paragraphs"])
    first["answer_start"], second["answer_start"], third["text"] = 0, 90, " "
    (tmp_path / "a.json").write_text(json.dumps(content))
    examples = examples_of(tmp_path / "a.json", tiny_vocab, False)
    assert [question.answer for question in examples.questions] == [None] * 3
    assert [len(question.answers) for question in examples.questions] == [1] * 3
    assert all(f.start_position == f.end_position == 0 for f in examples.features)


def test_loss_by_hand():
    batch = {
        "input_mask": tf.constant([[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]]),
        "start_positions": tf.constant([1, 0, 0]),
        "end_positions": tf.constant([2, 3, 0]),
        "example_weights": tf.constant([1.0, 1.0, 0.0]),
    }
    starts = np.array([[0, 2, 1, 9], [1, 0, 0, 0], [5, 5, 5, 5]], np.float32)
    ends = np.array([[1, 0, 3, 9], [0, 1, 0, 2], [5, 5, 5, 5]], np.float32)
    outputs = {"start_logits": tf.constant(starts), "end_logits": tf.constant(ends)}

    def loss(scores: list[float], place: int) -> float:  # Padding has no part in it.
        return float(np.log(np.sum(np.exp(scores))) - scores[place])

    first = (loss([0, 2, 1], 1) + loss([1, 0, 3], 2)) / 2
    second = (loss([1, 0, 0, 0], 0) + loss([0, 1, 0, 2], 3)) / 2
    task = make_task()
    total, weight = task.loss_and_metric_sums(batch, outputs)["loss"]
    assert (float(total), float(weight)) == close_to((first + second, 2.0))
    assert float(task.loss_weights(batch)["loss"]) == 2.0
    found = task.predictions(batch, outputs)
    assert_close(found["loss"][:2], [first, second])
    np.testing.assert_array_equal(found["start_logits"], starts)
    np.testing.assert_array_equal(found["end_logits"], ends)


def test_scores_at_the_marked_places_answer_everything_that_fits(tmp_path, tiny_vocab):
    write(tmp_path / "a.json", True)
    examples = examples_of(tmp_path / "a.json", tiny_vocab, True)
    outputs = outputs_of(examples, 0)
    for name, place in (("start_logits", "start_position"), ("end_logits", "end_position")):
        for row, feature in zip(outputs[name], examples.features, strict=True):
            row[:] = 0
            row[getattr(feature, place)] = 9
    task = make_task(True, n_best_size=2)  # Padding, if it had scores, would take both places.
    found = task.answers(examples, outputs)
    assert found.predictions == {"q0": "stone mill", "q1": "read", "q2": "", "q3": ""}
    results = task.metrics(examples, outputs)
    assert results["loss"] == np.mean(range(len(examples.features)))
    assert (results["exact"], results["NoAns_exact"]) == (75.0, 100.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_threshold_is_that_of_a_search_of_all(tmp_path, tiny_vocab, seed):
    content = write(tmp_path / "a.json", True)
    examples = examples_of(tmp_path / "a.json", tiny_vocab, True)
    task, outputs = make_task(True, null_score_diff_threshold=1.5), outputs_of(examples, seed)
    found = task.answers(examples, outputs)
    results = task.metrics(examples, outputs)
    official = evaluate_v2(content, found.predictions)
    assert {name: results[name] for name in official} == official
    assert task.best_metric == "best_f1" and task.score(results) == results["best_f1"]
    assert found.predictions == choose_answers(found.nbest, found.null_odds, 1.5)
    for name in ("exact", "f1"):
        scores = {}
        for threshold in [-1e9, *found.null_odds.values()]:
            chosen = choose_answers(found.nbest, found.null_odds, threshold)
            scores[threshold] = evaluate_v2(content, chosen)[name]
        assert results[f"best_{name}"] == pytest.approx(max(scores.values()))
        best = results[f"best_{name}_thresh"]
        if best in found.null_odds.values():  # Else it is the script's 0, for no answer at all.
            chosen = choose_answers(found.nbest, found.null_odds, best)
            assert evaluate_v2(content, chosen)[name] == pytest.approx(max(scores.values()))
