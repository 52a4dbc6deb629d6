"""Students of teachers as a user makes them: by command, in Python; stopped, resumed, refused."""

import dataclasses
import json
import re
import shutil
from unittest import mock

import keras
import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tf_bundle import bundle_names
from bert_tf.network.soft_losses import soft_class_losses, squared_distances
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.training.metrics_log import read_metrics
from tests import programs
from tests.fine_tune import (
    FLAGS,
    LABELS,
    fine_tune,
    log_of,
    read_results,
    refuse,
    texts,
    write_folder,
    write_table,
)
from tests.float_bounds import close_to
from tests.programs import FOUR_STEPS, fail, finish
from tests.tiny_model import tiny_words, write_tiny_model

READ = re.compile(r"teacher \w+ (\d+) texts")
WORDS = ("the", "cat", "dog", "owl", "eats", "mice", "grass")
RIVER = ("the", "river", "boat", "house", "of", "a")
TAUGHT = ("soft_labels_loss", "hidden_states_loss", "relations_loss")
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`fine_tune.write_folder`, a fine-tuned teacher, and one without dropout and training."""
    path = write_folder(tmp_path_factory.mktemp("distilled"), num_hidden_layers=2)
    assert fine_tune("run_classifier", **flags_of(path, "teacher", num_train_steps=60)) == 0
    return path


def flags_of(folder, output_dir, **changed):
    return {
        **FLAGS,
        "do_train": "true",
        "num_train_steps": 8,
        "init_checkpoint": folder / "model",
        "train_file": folder / "train.csv",
        "eval_file": folder / "dev.csv",
        "output_dir": folder / output_dir,
        **changed,
    }


def student(folder, output_dir, **changed):
    given = {"teacher": folder / "teacher", "keep_layers": "1", **changed}
    return flags_of(folder, output_dir, **given)


def weight_names(path):
    """Returns the names in a checkpoint, without the identity of its run."""
    return {name for name in bundle_names(path) if not name.startswith("run/")}


def is_same(folder, other, *names):
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.slow
def test_a_classifier_learns_of_another_and_resumes_to_the_bit(folder, caplog):
    given = {"save_checkpoints_steps": 5, "keep_checkpoint_max": 9, "do_eval": "true"}
    shown = log_of(caplog, "run_classifier", **student(folder, "whole", **given))
    assert READ.search(shown)[1] == "48" and "Layers 1 of 2 " in shown
    teacher = BertClassifier.from_pretrained(folder / "teacher")
    expected = teacher.predict([row["text"] for row in texts(48)], verbose=0)
    (kept,) = (folder / "bert_tf_cache").glob("teacher-*.npy")
    np.testing.assert_allclose(np.load(kept), expected, atol=1e-4)
    for line in read_metrics(folder / "whole/metrics.jsonl"):
        assert line["loss"] > line["teacher_loss"] > 0

    # The checkpoint is that of a run without a teacher.
    plain = student(folder, "plain", num_train_steps=5)
    assert fine_tune("run_classifier", **{**plain, "teacher": ""}) == 0
    names = [weight_names(folder / f"{n}/model.ckpt-5") for n in ("whole", "plain")]
    assert names[0] == names[1] and any("layer_0" in name for name in names[0])
    assert not any("layer_1" in name for name in names[0])

    # As if killed after step 5.
    shutil.copytree(folder / "whole", folder / "again")
    for path in (folder / "again").glob("model.ckpt-8*"):
        path.unlink()
    shown = log_of(caplog, "run_classifier", **student(folder, "again", **given))
    assert "teacher-" in shown and not READ.search(shown)
    data = "model.ckpt-8.data-00000-of-00001"
    names = ("metrics.jsonl", "eval_results.txt", data)
    assert is_same(folder / "again", folder / "whole", *names)
    # Outputs that are made again elsewhere may differ in the last bits: the run still goes on.
    np.save(kept, np.load(kept) * np.float32(1 + 1e-6))
    (folder / "again" / data).unlink()
    (folder / "again/model.ckpt-8.index").unlink()
    assert fine_tune("run_classifier", **student(folder, "again", **given)) == 0
    np.save(kept, expected)
    shutil.rmtree(folder / "again")
    shutil.copytree(folder / "whole", folder / "again")
    # Another teacher is another run; so is none.
    message = refuse("run_classifier", **student(folder, "again", teacher="", **given))
    assert re.search(f"--teacher .*{folder}/teacher", message)
    # What is judged later needs no teacher.
    judged = {"do_train": "false", "teacher": ""}
    assert fine_tune("run_classifier", **student(folder, "again", **given, **judged)) == 0
    assert is_same(folder / "again", folder / "whole", "eval_results.txt")


@pytest.mark.slow
def test_labels_may_be_left_out_and_stand_in_another_order(folder, tmp_path):
    """Wrong labels do no harm; the first batch's loss is the teacher's alone."""
    rows = [{**row, "label": "so-so"} for row in texts(48)]
    rows[0]["label"], rows[1]["label"] = "pos", "neg"
    table = write_table(tmp_path / "wrong.csv", rows)
    given = {"train_file": table, "learn_labels": "false", "num_train_steps": 60}
    given |= {"do_eval": "true", "teacher_weight": 0.5, "distillation_temperature": 1.0}
    assert fine_tune("run_classifier", **student(folder, tmp_path / "run", **given)) == 0
    lines = read_metrics(tmp_path / "run/metrics.jsonl")
    for line in lines:
        assert line["loss"] == pytest.approx(0.5 * line["teacher_loss"], rel=1e-5)
    orders = [read_checkpoint(path).labels for path in (folder / "teacher", tmp_path / "run")]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(LABELS.values())
    assert read_results(tmp_path / "run")["eval_accuracy"] > 0.8


@pytest.mark.slow
def test_teachers_that_do_not_fit_are_refused_in_one_line(folder, tmp_path):
    def message(**changed):
        return refuse("run_classifier", **student(folder, tmp_path / "run", **changed))

    assert " classifier, " in message(teacher=folder / "model")
    other = write_tiny_model(tmp_path / "other", "the", "film")
    made = flags_of(folder, tmp_path / "small", init_checkpoint=other, num_train_steps=1)
    assert fine_tune("run_classifier", **made) == 0
    assert re.search("/small/.* vocabulary .*--vocab_file", message(teacher=tmp_path / "small"))
    two = write_table(tmp_path / "two.csv", [r for r in texts(48) if r["label"] != "so-so"])
    assert "3 labels" in message(train_file=two)
    assert re.search(r"single_label,.*3", message(problem_type="multi_label"))
    assert re.search("--keep_layers=2.* 0 .* 1, ", message(keep_layers="2"))
    nothing = {"learn_labels": "false", "teacher_weight": 0}
    assert "learn_labels=false,teacher_weight=0" in message(**nothing)
    assert f"{tmp_path}/nowhere " in message(teacher=tmp_path / "nowhere")
    assert not list((tmp_path / "run").glob("model*"))


@pytest.mark.parametrize(
    ("program", "changed", "learned"),
    [
        ("run_retriever", {}, "embeddings"),
        ("run_classifier", {"problem_type": "regression"}, "numbers"),
        (
            "run_classifier",
            {"task_name": "sts-b", "data_dir": "sts", "train_file": ""},
            "numbers",
        ),
    ],
)
def test_a_temperature_without_scores_of_classes_is_refused(tmp_path, program, changed, learned):
    write_tiny_model(tmp_path / "model", "the", "film")
    table = write_table(tmp_path / "train.csv", texts(4))
    changed = {"train_file": table, **changed}
    given = flags_of(tmp_path, "run", teacher=tmp_path / "model", **changed)
    given = {name: value for name, value in given.items() if name != "eval_file"}
    message = refuse(program, **given, distillation_temperature=5)
    assert learned in message and "distillation_temperature=5" in message


def write_embedders(tmp_path):
    """Writes texts and their teacher; returns the texts, and the flags of its student's run."""
    write_tiny_model(tmp_path / "model", *WORDS, num_hidden_layers=3, **STILL)
    rows = [{"text": f"the {a} eats {b} {c}"} for a in WORDS for b in WORDS for c in WORDS[1:3]]
    write_table(tmp_path / "texts.jsonl", rows)
    return rows, {
        **FLAGS,
        "do_train": "true",
        "train_file": tmp_path / "texts.jsonl",
        "init_checkpoint": tmp_path / "model",
        "teacher": tmp_path / "model",
        "keep_layers": "0,2",
        "learn_labels": "false",
        "num_train_steps": 40,
        "save_checkpoints_steps": 30,
        "max_seq_length": 32,  # As wide as the embeddings, which are no pieces.
        "output_dir": tmp_path / "run",
    }


@pytest.mark.slow
def test_an_embedder_comes_near_to_another_and_resumes_to_the_bit(tmp_path):
    rows, given = write_embedders(tmp_path)
    assert fine_tune("run_retriever", **given) == 0
    lines = read_metrics(tmp_path / "run/metrics.jsonl")
    models = [BertEmbedder.from_pretrained(tmp_path / name) for name in ("run", "model")]
    assert len(models[0].bert.encoder_layers) == 2
    vectors = [model.encode([row["text"] for row in rows]) for model in models]
    found = np.mean(squared_distances(*vectors))
    assert found < lines[0]["teacher_loss"] / 2
    assert lines[0]["loss"] == close_to(lines[0]["teacher_loss"])
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    for path in (tmp_path / "again").glob("model.ckpt-40*"):
        path.unlink()
    assert fine_tune("run_retriever", **{**given, "output_dir": tmp_path / "again"}) == 0
    data = "model.ckpt-40.data-00000-of-00001"
    assert is_same(tmp_path / "again", tmp_path / "run", "metrics.jsonl", data)
    names = bundle_names(tmp_path / "run/model.ckpt-40")
    assert not any("layer_2" in name for name in names)


@pytest.mark.slow
def test_an_embedder_learns_from_another_beside_its_own_loss_in_parts_too(tmp_path):
    rows, given = write_embedders(tmp_path)
    both = {"learn_labels": "true", "teacher_distance": "cosine", "num_train_steps": 3}
    both |= {"learning_rate": 1e-4, "train_file": tmp_path / "pairs.jsonl"}
    pairs = zip(rows[::2], rows[1::2], strict=True)  # Single texts would need dropout.
    pairs = [{"query": one["text"], "positive": other["text"]} for one, other in pairs]
    write_table(tmp_path / "pairs.jsonl", pairs)
    losses = []
    for parts in (1, 4):
        path = tmp_path / f"parts{parts}"
        changed = {**both, "output_dir": path, "gradient_accumulation_steps": parts}
        assert fine_tune("run_retriever", **{**given, **changed}) == 0
        losses.append(read_metrics(path / "metrics.jsonl"))
    for one, other in zip(*losses, strict=True):
        assert one == pytest.approx(other, rel=1e-4)
        assert one["loss"] > one["teacher_loss"] > 0
    # Another size of embeddings.
    write_tiny_model(tmp_path / "wide", *WORDS, hidden_size=64)
    changed = {"teacher": tmp_path / "wide", "output_dir": tmp_path / "refused"}
    message = refuse("run_retriever", **{**given, **changed})
    assert re.search("teacher.* 64 .*student.* 32", message)


@pytest.fixture
def pretrain(tmp_path):
    """Returns what runs a pre-training of two of the three layers of its teacher, `model`."""
    write_tiny_model(tmp_path / "model", *RIVER, num_hidden_layers=3)
    flags = {
        **FOUR_STEPS,
        "init_checkpoint": tmp_path / "model",
        "keep_layers": "0,2",
        "teacher": tmp_path / "model",
        "hidden_weight": 0.5,
        "relation_weight": 1.0,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_train_steps": 12,
        "save_checkpoints_steps": 8,
        "keep_checkpoint_max": 9,
    }
    return lambda name, **changed: programs.pretrain(tmp_path / name, **{**flags, **changed})


def test_a_teacher_of_a_wrong_shape_is_refused_before_data_are_prepared(pretrain):
    for more, said in (
        ({"relation_heads": 5}, "relation_heads"),
        ({"teacher_layer": 4}, "teacher_layer=4"),
    ):
        with mock.patch(
            "bert_tf.pretraining.prepare.prepare_data", side_effect=AssertionError("prepared")
        ):
            assert said in fail(pretrain("wrong", **more))


@pytest.mark.slow
def test_pre_training_with_a_teacher(pretrain, tmp_path):
    """DistilBERT's three losses and MiniLMv2's; the checkpoint holds the student alone."""
    finish(pretrain("whole", do_eval="true"))
    lines = read_metrics(tmp_path / "whole/metrics.jsonl")
    parts = ("masked_lm_loss", "next_sentence_loss", *TAUGHT)
    assert lines[0]["loss"] == close_to(sum(lines[0][name] for name in parts))
    assert set(TAUGHT) <= set(read_results(tmp_path / "whole"))
    finish(pretrain("plain", teacher="", hidden_weight=0, relation_weight=0, num_train_steps=8))
    names = [weight_names(tmp_path / f"{n}/model.ckpt-8") for n in ("whole", "plain")]
    assert names[0] == names[1] and not any("layer_2" in name for name in names[0])
    # As if killed after step 8.
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for path in (tmp_path / "again").glob("model.ckpt-12*"):
        path.unlink()
    finish(pretrain("again", do_eval="true"))
    data = "model.ckpt-12.data-00000-of-00001"
    assert is_same(tmp_path / "again", tmp_path / "whole", "metrics.jsonl", data)


@pytest.mark.slow
def test_pre_training_of_the_teacher_alone(pretrain, tmp_path):
    """In packed rows; a run does not go on with other weights of its teacher."""
    alone = {"learn_labels": "false", "pack_rows": "true"}
    finish(pretrain("alone", **alone))
    lines = read_metrics(tmp_path / "alone/metrics.jsonl")
    assert lines[0]["loss"] == close_to(sum(lines[0][name] for name in TAUGHT))
    assert lines[0]["masked_lm_loss"] > 0
    for name in TAUGHT:
        assert lines[-1][name] < lines[0][name], name
    model = tmp_path / "model"
    record = json.loads((tmp_path / "alone/teacher.json").read_text())
    assert record["teacher"].startswith(str(model))
    for path in (tmp_path / "alone").glob("model.ckpt-12*"):
        path.unlink()
    made = read_checkpoint(model)
    weights = {name: 2 * weight for name, weight in made.weights.items()}
    shutil.rmtree(model)
    write_checkpoint(dataclasses.replace(made, weights=weights), model, "google")
    printed = fail(pretrain("alone", **alone))
    assert re.search(f"/alone .*weights .*{model}/", printed)


def test_pre_training_refuses_what_does_not_go_together(tmp_path):
    model = write_tiny_model(tmp_path / "model", "the")
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(tiny_words("a")) + "\n")
    flags = {"do_train": "true", "max_seq_length": 32, "teacher": model}

    def printed(**changed):
        return fail(programs.pretrain(tmp_path / "run", **{**flags, **changed}))

    size = len(tiny_words("a"))
    wrong = printed(vocab_file=vocab, vocab_size=size)
    assert re.search(f"--teacher={model}/.* vocabulary .*do_lower_case.*--vocab_file", wrong)
    assert re.search(f"--teacher={model}: .*--vocab_file.*--init_checkpoint", printed())
    wrong = printed(max_seq_length=128)
    assert re.search(f"--max_seq_length=128 .*64 positions .*--teacher={model}", wrong)
    electra = {"objective": "replaced_tokens", "use_next_sentence": "false"}
    assert re.search("--objective=replaced_tokens .*--teacher", printed(**electra))
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("model*"))


@pytest.mark.slow
def test_keras_fit_with_a_teacher(folder):
    """The teacher's weights stay as they are, and are none of the student's."""
    rows = texts(48)
    x, y = [row["text"] for row in rows], [row["label"] for row in rows]
    teacher = BertClassifier.from_pretrained(folder / "teacher")
    labels = list(teacher.labels)
    model = BertClassifier.from_pretrained(folder / "model", labels=labels)
    before = [weight.numpy() for weight in teacher.weights]
    count = len(model.weights)
    expected = np.mean(soft_class_losses(*(m.predict(x, verbose=0) for m in (model, teacher)), 3.0))
    own = model.evaluate(x, y, verbose=0)[0]
    model.learn_from(teacher, temperature=3.0, weight=0.5)
    assert model.evaluate(x, y, verbose=0)[0] == close_to(own)
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit(x, y, batch_size=48, verbose=0)
    # Dropout is on: near, not equal.
    assert history.history["loss"][0] == pytest.approx(own + 0.5 * expected, rel=0.3)
    model.learn_from(teacher, learn_labels=False)
    model.compile(keras.optimizers.Adam(3e-3))
    wrong = [labels[0]] * 48
    model.fit(x, wrong, batch_size=8, epochs=12, verbose=0)
    answers = [[row["label"] for row in m.classify(x)] for m in (model, teacher)]
    assert np.mean(np.array(answers[0]) == answers[1]) > 0.9
    assert len(model.weights) == count
    for weight, old in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), old)
    other = BertClassifier.from_pretrained(folder / "model", labels=["a", "b"])
    with pytest.raises(ValueError, match=r"\['neg', 'pos', 'so-so'\].*\['a', 'b'\]"):
        other.learn_from(teacher)
