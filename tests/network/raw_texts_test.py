"""A classifier that carries its preprocessor and labels: fit, evaluate, predict, save, refuse."""

import math
import pathlib
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.config import OptimizerConfig
from bert_tf.config.fine_tuning_defaults import default_learning_rate
from bert_tf.tasks.base.models.fit_input import count_steps, split_off
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.programs.program import DEFAULT_OPTIMIZER
from bert_tf.tasks.classification.model import BertClassifier
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.float_bounds import assert_close, close_to
from tests.tiny_model import write_tiny_model

WORDS = ("good", "fine", "bad", "dull")
LABELS = ("bad", "good")
# Texts of 1 to 12 pieces; the first word decides.
TEXTS = [f"{WORDS[i % 4]} " + "a b c d e f g h i j k"[: 2 * (i % 12)] for i in range(48)]
NAMES = [LABELS[i % 4 < 2] for i in range(48)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A pre-trained model without a classifier, and without dropout."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = tmp_path_factory.mktemp("start") / "model"
    return write_tiny_model(path, *WORDS, num_hidden_layers=1, **no_dropout)


def start_model(folder: pathlib.Path, **options) -> BertClassifier:
    keras.utils.set_random_seed(3)
    return BertClassifier.from_pretrained(folder, **{"labels": LABELS, **options})


def by_hand(model: BertClassifier, texts: list[str]) -> np.ndarray:
    """Computes each text alone, without padding, by the graph's tokenizer: float32 [N, C]."""
    return np.concatenate([model(model.preprocessor([text])) for text in texts])


def cross_entropy(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(ids)), ids]


@pytest.mark.slow
def test_raw_texts_from_the_checkpoint_to_the_saved_file(folder, tmp_path):
    model = start_model(folder)
    assert bert_tf.BertClassifier is BertClassifier
    assert model.num_labels == 2 and model.labels == LABELS and model.problem_type == "single_label"
    assert model.preprocessor.max_seq_length == 64  # All positions that there are.
    assert model.bert.unpad and not model.compiled
    ids = np.array([LABELS.index(name) for name in NAMES])
    expected = by_hand(model, TEXTS)
    assert_close(model.predict(TEXTS, batch_size=7, verbose=0), expected)
    loss, accuracy = model.evaluate(np.array(TEXTS), NAMES, batch_size=7, verbose=0)
    # Of equal batches but the last; Keras weighs them by their rows.
    assert loss == pytest.approx(cross_entropy(expected, ids).mean(), abs=1e-5)
    assert accuracy == pytest.approx((expected.argmax(-1) == ids).mean(), abs=1e-6)
    dev = (tuple(TEXTS[:12]), ids[:12])
    options = {"epochs": 12, "learning_rate": 5e-3, "batch_size": 8, "verbose": 0}
    history = model.fit(TEXTS, NAMES, validation_data=dev, **options).history
    assert history["val_accuracy"][-1] == 1.0 and history["loss"][-1] < 0.3 * history["loss"][0]
    assert model.optimizer.iterations == 12 * 6
    assert float(model.optimizer.learning_rate) == np.float32(5e-3)
    schedule = model.optimizer.rate_factor.get_config()
    assert schedule == {"num_train_steps": 72, "num_warmup_steps": 7}
    answers = model.classify(["good a b", "dull"])
    assert [answer["label"] for answer in answers] == ["good", "bad"]
    model.save(tmp_path / "mine.keras")
    assert model.optimizer is not None
    loaded = keras.models.load_model(tmp_path / "mine.keras")
    assert loaded.labels == LABELS and loaded.preprocessor.vocab == model.preprocessor.vocab
    assert loaded.classify(["good a b", "dull"]) == answers
    # The rate of the fit before has come to an end: another begins anew.
    assert not loaded.compiled
    with zipfile.ZipFile(tmp_path / "mine.keras") as archive:
        archive.extract("model.weights.h5", tmp_path)
    found: list[str] = []
    with h5py.File(tmp_path / "model.weights.h5") as file:
        file.visit(found.append)
    assert found and not [name for name in found if "optimizer" in name]


def test_the_optimizer_is_that_of_the_programs(folder):
    model = start_model(folder)
    model.compile_for(100)
    assert OptimizerConfig("adamw").optimizer == DEFAULT_OPTIMIZER == "adamw"
    config, defaults = model.optimizer.get_config(), OptimizerConfig("adamw")
    names = {"beta_1": "adam_beta_1", "beta_2": "adam_beta_2", "epsilon": "adam_epsilon"}
    for name in ("beta_1", "beta_2", "epsilon", "weight_decay_rate", "clip_norm"):
        assert config[name] == getattr(defaults, names.get(name, name))
    assert type(model.optimizer).__name__ == "AdamW"
    rate = default_learning_rate(model.config.hidden_size)
    assert float(model.optimizer.learning_rate) == np.float32(rate)
    schedule = model.optimizer.rate_factor.get_config()
    assert schedule["num_warmup_steps"] == 100 * OptimizerConfig().warmup_proportion


@pytest.mark.slow
def test_compile_overrides(folder, tmp_path):
    model = start_model(folder)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy"])
    with pytest.raises(ValueError, match="learning_rate=1.0 .*compile"):
        model.fit(TEXTS, NAMES, learning_rate=1.0)
    before = model.predict(TEXTS, verbose=0)
    history = model.fit(TEXTS, NAMES, verbose=0).history
    np.testing.assert_array_equal(model.predict(TEXTS, verbose=0), before)
    ids = np.array([LABELS.index(name) for name in NAMES])
    assert history["loss"][0] == pytest.approx(cross_entropy(before, ids).mean(), abs=1e-5)
    model.save(tmp_path / "mine.keras")
    loaded = keras.models.load_model(tmp_path / "mine.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.SGD)
    again = loaded.fit(TEXTS, NAMES, verbose=0).history
    assert again["loss"] == pytest.approx(history["loss"], abs=1e-5)


@pytest.mark.slow
def test_xla_compiles_rows_of_a_few_lengths(folder):
    model = start_model(folder)
    model.compile(keras.optimizers.SGD(0.0), jit_compile=True)
    assert not model.bert.unpad
    loss = model.fit(TEXTS, NAMES, batch_size=16, verbose=0).history["loss"][0]
    ids = np.array([LABELS.index(name) for name in NAMES])
    assert loss == pytest.approx(cross_entropy(by_hand(model, TEXTS), ids).mean(), abs=1e-5)


@pytest.mark.parametrize("pad_to_max_length", [False, True])
def test_batches_are_as_long_as_their_texts_or_all_alike(folder, pad_to_max_length):
    """The longest come first: batches of at most 14, 10 and 6 pieces; lengths go by eights."""
    own = BertPreprocessor(folder / "vocab.txt", True, 24, pad_to_max_length)
    model = start_model(folder, preprocessor=own)
    data = model.raw_input.evaluation_data((TEXTS[:12], NAMES[:12]), batch_size=4)
    widths = [inputs["input_word_ids"].shape[1] for inputs, *_ in data]
    assert widths == ([24] * 3 if pad_to_max_length else [14, 14, 8])


def losses(model, *data, **options):
    options = {"verbose": 0, "batch_size": 48, **options}
    return model.fit(*data, epochs=1, learning_rate=0.0, **options).history["loss"][0]


@pytest.mark.slow
def test_weights_of_rows_and_classes(folder):
    model, ids = start_model(folder), np.array([LABELS.index(name) for name in NAMES])
    model.head.output_weights.assign(np.random.default_rng(0).normal(0, 1, (2, 32)))
    costs = cross_entropy(by_hand(model, TEXTS), ids)
    by_row = np.random.default_rng(1).uniform(0, 2, 48)
    for given, weights in (
        ({"sample_weight": by_row}, by_row),
        ({"class_weight": {"bad": 3.0, "good": 0.5}}, np.where(ids, 0.5, 3.0)),
        ({"class_weight": {0: 3.0, 1: 0.5}, "sample_weight": by_row}, 0),
    ):
        weights = weights if np.ndim(weights) else np.where(ids, 0.5, 3.0) * by_row
        expected = np.average(costs, weights=weights)
        assert losses(model, TEXTS, NAMES, **given) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_pairs_and_the_last_part_held_out(folder):
    model = start_model(folder)
    seconds = TEXTS[::-1]
    expected = np.concatenate(
        [model(model.preprocessor([a], [b])) for a, b in zip(TEXTS, seconds, strict=True)]
    )
    for pairs in ((TEXTS, np.array(seconds)), list(zip(TEXTS, seconds, strict=True))):
        assert_close(model.predict(pairs, verbose=0), expected)
    ids = np.array([LABELS.index(name) for name in NAMES])
    options = {"learning_rate": 0.0, "validation_split": 0.25, "verbose": 0, "batch_size": 36}
    history = model.fit((TEXTS, seconds), NAMES, **options).history
    costs = cross_entropy(expected, ids)
    assert history["loss"][0] == pytest.approx(costs[:36].mean(), abs=1e-5)
    assert history["val_loss"][0] == pytest.approx(costs[36:].mean(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("is_pair", [False, True])
def test_datasets_of_texts(folder, is_pair):
    model, ids = start_model(folder), [LABELS.index(name) for name in NAMES]
    x = (TEXTS, TEXTS[::-1]) if is_pair else TEXTS
    for labels in (NAMES, ids):
        data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(20)
        expected = losses(model, x, labels, batch_size=20, shuffle=False)
        assert losses(model, data, batch_size=None) == pytest.approx(expected, abs=1e-5)
        evaluated = model.evaluate(data, verbose=0)[0]
        assert evaluated == pytest.approx(expected, abs=1e-5)
    endless = data.repeat()
    assert model.fit(endless, steps_per_epoch=2, verbose=0, validation_data=data)
    assert model.optimizer.rate_factor.get_config()["num_train_steps"] == 2
    uncounted = data.filter(lambda *_: True)
    model.fit(uncounted, epochs=2, verbose=0)
    assert model.optimizer.rate_factor.get_config()["num_train_steps"] == 6
    texts = tf.data.Dataset.from_tensor_slices((x,) if is_pair else x).batch(20)
    found = model.predict(texts, verbose=0)
    assert_close(found, model.predict(x, verbose=0))


@pytest.mark.slow
def test_numbers_start_at_their_mean(folder):
    model = start_model(folder, labels=None, num_labels=1)
    values = np.array([float("good" in text) + 3.0 for text in TEXTS])
    logits = model.predict(TEXTS, verbose=0)[:, 0] + values.mean()
    loss = losses(model, TEXTS, values)
    assert loss == pytest.approx(np.mean((logits - values) ** 2), abs=1e-5)
    assert model.head.output_bias.numpy() == close_to([values.mean()])
    losses(model, TEXTS, values + 1)  # Once it has learned, it goes on from there.
    assert model.head.output_bias.numpy() == close_to([values.mean()])


@pytest.mark.slow
def test_several_labels_a_text(folder):
    model = start_model(folder, labels=["sad", "odd", "new"], problem_type="multi_label")
    rows = np.random.default_rng(0).integers(0, 2, (48, 3))
    sets = [[("sad", "odd", "new")[i] for i in np.flatnonzero(row)] for row in rows]
    logits = model.predict(TEXTS, verbose=0).astype(np.float64)
    expected = np.mean(np.log1p(np.exp(logits)) - logits * rows)
    for labels in (sets, rows):
        assert losses(model, TEXTS, labels) == pytest.approx(expected, abs=1e-5)
    loss, accuracy = model.evaluate(TEXTS, sets, verbose=0)
    assert accuracy == pytest.approx(((logits > 0) == rows).mean(), abs=1e-6)


def test_decisions_stay_decisions_where_a_part_is_held_out():
    rows = np.random.default_rng(0).integers(0, 2, (10, 3))
    x, y, weights, (x_later, y_later) = split_off(list("abcdefghij"), rows, None, 0.2)
    np.testing.assert_array_equal(y, rows[:8])
    np.testing.assert_array_equal(y_later, rows[8:])
    assert (x, x_later, weights) == (list("abcdefgh"), ["i", "j"], None)
    *_, later = split_off(list("abcd"), [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], 0.5)
    assert later[2] == [3.0, 4.0]


def test_nothing_is_given_beside_a_dataset(folder):
    model = start_model(folder)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, NAMES)).batch(4)
    for argument in ({"y": NAMES}, {"sample_weight": np.ones(48)}, {"validation_split": 0.1}):
        with pytest.raises(ValueError, match=f"fit: .*{next(iter(argument))}"):
            model.fit(data, **argument)
    assert not model.compiled


@pytest.mark.slow
def test_steps_are_those_that_are_left(folder):
    """The schedule ends with the last of them."""
    assert count_steps({"ids": np.zeros(10)}, 4) == 3
    assert count_steps({"ids": np.zeros(10)}, 4, validation_split=0.5) == 2
    model = start_model(folder)
    seen = []
    model.compile_for = lambda steps, rate: (
        seen.append(steps) or type(model).compile_for(model, steps)
    )
    model.fit(TEXTS, NAMES, batch_size=8, epochs=3, initial_epoch=2, verbose=0)
    assert seen == [len(TEXTS) // 8]


@pytest.mark.slow
def test_numbers_that_are_names_are_names_in_datasets_too(folder):
    model = start_model(folder, labels=[3, 1, 2])
    for values in ([1, 2, 3], [1.0, 2.0, 3.0]):
        data = tf.data.Dataset.from_tensor_slices((list(TEXTS[:3]), values)).batch(3)
        ((_, places),) = model.raw_input.with_inputs(data)
        assert places.numpy().tolist() == [1, 2, 0]
    swapped = start_model(folder, labels=[1.0, 0.0])
    data = tf.data.Dataset.from_tensor_slices((list(TEXTS[:2]), [True, False])).batch(2)
    ((_, places),) = swapped.raw_input.with_inputs(data)
    assert places.numpy().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "values", "expected"),
    [
        (["0", "1"], ["1.0", "0", " 1"], [1, 0, 1]),
        pytest.param(["0.0", "1.0"], ["1", "0.0", "0"], [1, 0, 0], marks=pytest.mark.slow),
        pytest.param(
            ["False", "True"], ["true", "FALSE", "True"], [1, 0, 1], marks=pytest.mark.slow
        ),
    ],
)
def test_spellings_of_a_label_in_datasets(folder, labels, values, expected):
    model = start_model(folder, labels=labels)
    data = tf.data.Dataset.from_tensor_slices((list(TEXTS[:3]), values)).batch(3)
    ((_, places),) = model.raw_input.with_inputs(data)
    assert places.numpy().tolist() == expected


LOGITS = np.array([[0.5, 1.0], [2.0, 0.0], [-1.0, 1.0]], np.float32)


@pytest.mark.slow
def test_labels_outside_the_classes_are_named_where_they_count(folder):
    model = start_model(folder)
    loss = tf.function(lambda y, weights: model.task_loss({}, y, LOGITS, weights).mean())
    for labels, shown in (([0, -1, 1], r"\[-1\] \[1\] \[1\]"), ([5, 0, 1], r"\[0\] \[5\] \[1\]")):
        message = "labels.*" + shown.replace(" ", ".*")
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            loss(tf.constant(labels), None)
    # Rows that weigh nothing may have any label.
    expected = cross_entropy(LOGITS, np.array([0, 0, 1]))[[0, 2]].mean()
    assert float(loss(tf.constant([0, -1, 1]), tf.ones(3) * [1, 0, 1])) == close_to(expected)
    data = tf.data.Dataset.from_tensor_slices((TEXTS[:4], [0, 1, -1, 1])).batch(2)
    assert model.predict(data, verbose=0).shape == (4, 2)  # A test set without labels.
    model.compile(run_eagerly=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="-1"):
        model.evaluate(data, verbose=0)


@pytest.mark.slow
def test_a_column_of_labels_is_one_of_places(folder):
    model, ids = start_model(folder), np.array([0, 1, 1])
    expected = cross_entropy(LOGITS, ids).mean()
    for labels in (ids, ids[:, None], np.eye(2)[ids]):
        loss = model.task_loss({}, labels, LOGITS, None).mean()
        assert float(loss) == close_to(expected)
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        model.task_loss({}, np.eye(3)[ids], LOGITS, None)
    names = [[LABELS[place]] for place in ids]
    ((_, places),) = model.raw_input.with_inputs(tf.data.Dataset.from_tensors((TEXTS[:3], names)))
    assert places.numpy().tolist() == ids.tolist()


def test_weights_and_numbers_that_do_not_fit(folder):
    model = start_model(folder)
    with pytest.raises(ValueError, match="1 .*sample_weight .*48 texts"):
        model.fit(TEXTS, NAMES, class_weight={NAMES[0]: 2.0}, sample_weight=[3.0])
    with pytest.raises(ValueError, match="problem_type='regression' .*num_labels=1, .*3"):
        BertClassifier(model.config, num_labels=3, problem_type="regression")


# Heads --------------------------------------------------------------------------------------------


def test_a_head_of_one_number_is_made_where_there_is_none(folder, tmp_path):
    model = start_model(folder, labels=None, num_labels=1)
    assert model.problem_type == "regression" and len(model.score(["good a b"])) == 1
    write_checkpoint(make_checkpoint("classifier"), tmp_path / "m", "huggingface")
    with pytest.raises(ValueError, match=r"output_bias \[3\] .*\[1\]"):
        BertClassifier.from_pretrained(tmp_path / "m", num_labels=1)


def test_a_head_of_other_labels_is_refused_or_made_anew(tmp_path):
    made = make_checkpoint("classifier")
    write_checkpoint(made, tmp_path / "m", "huggingface")
    kept = BertClassifier.from_pretrained(tmp_path / "m")
    assert kept.labels == made.labels and kept.num_labels == 3
    weights = made.weights["cls/classifier/output_weights"]
    same = BertClassifier.from_pretrained(tmp_path / "m", labels=list(made.labels))
    np.testing.assert_array_equal(same.head.output_weights, weights)
    with pytest.raises(ValueError, match="3 labels .'no', 'yes', .*new_head=True"):
        BertClassifier.from_pretrained(tmp_path / "m", labels=["no", "yes"])
    first, second, *others = made.labels
    moved = BertClassifier.from_pretrained(tmp_path / "m", labels=[second, first, *others])
    np.testing.assert_array_equal(moved.head.output_weights, weights[[1, 0, 2]])
    new = BertClassifier.from_pretrained(tmp_path / "m", labels=["bad", "good"], new_head=True)
    assert new.labels == LABELS and new.num_labels == 2
    np.testing.assert_array_equal(
        new.bert.pooler.dense.kernel, made.weights["bert/pooler/dense/kernel"]
    )


def test_names_for_a_head_without_them(tmp_path):
    import dataclasses

    made = dataclasses.replace(make_checkpoint("classifier"), labels=())
    write_checkpoint(made, tmp_path / "m", "huggingface")
    assert BertClassifier.from_pretrained(tmp_path / "m").labels is None
    named = BertClassifier.from_pretrained(tmp_path / "m", labels=["a", "b", "c"])
    assert named.labels == ("a", "b", "c")
    np.testing.assert_array_equal(
        named.head.output_weights, made.weights["cls/classifier/output_weights"]
    )
    answers = BertClassifier.from_pretrained(tmp_path / "m").classify(["the"])
    assert answers[0]["label"] in ("0", "1", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"num_labels .*labels=\[...\]"),
        ({"labels": "good"}, "labels .*'good', .*'bad', 'good'"),
        ({"labels": ["a", "a"]}, "labels .*'a' 2 "),
        ({"labels": ["a", ""]}, r"labels .*\['a', ''\]"),
        ({"labels": []}, r"labels .*\[\],"),
        ({"labels": LABELS, "num_labels": 3}, "num_labels .*3, .*2 labels"),
        ({"labels": LABELS, "problem_type": "many"}, "problem_type .*'many', .*single_label"),
        ({"labels": LABELS, "long_texts": "body"}, "long_texts .*'body', .*head, tail"),
        ({"labels": LABELS, "max_seq_length": 65}, "max_seq_length .*65, .*64 positions"),
        ({"labels": LABELS, "preprocessor": "bert"}, "preprocessor .*'bert', .*BertPreprocessor"),
        (
            {"labels": LABELS, "preprocessor": None, "max_seq_length": 9},
            "max_seq_length=9 .*preprocessor",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, message, folder):
    with pytest.raises(ValueError, match=message):
        BertClassifier.from_pretrained(folder, **arguments)


def test_a_folder_that_is_no_model_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(ValueError, match=f"{tmp_path} .*'notes.txt'"):
        BertClassifier.from_pretrained(tmp_path, labels=LABELS)
    with pytest.raises(ValueError, match="/absent "):
        BertClassifier.from_pretrained(tmp_path / "absent", labels=LABELS)


def test_a_preprocessor_of_another_model_is_refused(folder):
    other = BertPreprocessor(make_checkpoint("encoder").vocab, True, max_seq_length=8)
    with pytest.raises(ValueError, match="vocabulary .* 79 .* vocab_size .*95"):
        start_model(folder, preprocessor=other)
    model = start_model(folder)
    with pytest.raises(ValueError, match="vocabulary .* 79 .* vocab_size .*95"):
        model.preprocessor = other


# Input --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(folder):
    return start_model(folder)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["a", "b"], ["good", "god"], r"y\[1\] .*'god', .*labels 'bad', 'good'"),
        (["a", None], ["good", "bad"], r"texts\[1\] .*None, .*1 of 2 "),
        (["a", math.nan], ["good", "bad"], r"texts\[1\] .*nan,"),
        (["a", "b"], ["good", math.nan], r"y\[1\] .*nan, .*'bad', 'good'"),
        ((["a", "b"], ["c"]), ["good", "bad"], "2 first .* 1 second"),
        (["a", "b"], ["good"], "1 .* y .* 2 texts"),
        (["a", "b"], None, r"fit: .*labels.*fit\(texts, labels\)"),
        (np.zeros((2, 8), np.int32), [0, 1], r"texts\[0\] .*\[0, 0.*preprocessor=None"),
        ([[2, 5, 3]], [0], r"texts\[0\] .*\[2, 5, 3\].*preprocessor=None"),
        (
            {"input_word_ids": np.zeros((1, 8))},
            [0],
            "'input_word_ids' .* input_mask, input_type_ids;",
        ),
        ("a text", ["good"], "^texts .*'a text'"),
    ],
)
def test_bad_input_is_named_before_anything_is_traced(x, y, message, model):
    with pytest.raises(ValueError, match=message):
        model.fit(x, y)
    if y is not None:
        with pytest.raises(ValueError, match=message):
            model.fit(["a"], ["good"], validation_data=(x, y))
    assert model.train_function is None


def test_datasets_of_another_form_are_named(model):
    make = tf.data.Dataset.from_tensor_slices
    for data, message in (
        (make((TEXTS, NAMES)), r"TensorSpec.*shape=\(\).*data.batch\(32\)"),
        (
            make(((TEXTS, TEXTS, TEXTS), NAMES)).batch(4),
            r"TensorSpec.*shape=\(None.*data.batch\(32\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(data)
    nameless = BertClassifier(model.config, 2, preprocessor=model.preprocessor)
    with pytest.raises(ValueError, match=r"dataset .*labels=\[...\]"):
        nameless.fit(make((TEXTS, NAMES)).batch(4))


def test_a_model_of_ids_takes_no_texts(folder):
    model = start_model(folder, preprocessor=None)
    assert model.preprocessor is None and not model.bert.unpad
    for texts in (TEXTS, np.array(TEXTS), (TEXTS, TEXTS)):
        for call in (lambda texts: model.fit(texts, NAMES), model.classify):
            with pytest.raises(ValueError, match="model.preprocessor = "):
                call(texts)
    rows = start_model(folder).preprocessor(TEXTS)
    assert model.predict(rows, verbose=0).shape == (48, 2)


def test_ids_are_taken_beside_texts(model):
    rows = {name: value.numpy() for name, value in model.preprocessor(TEXTS).items()}
    assert_close(model.predict(rows, verbose=0), model.predict(TEXTS, verbose=0))


def test_summary_lists_the_layers_and_their_parameters(model):
    lines: list[str] = []
    model.summary(print_fn=lambda text, *_, **__: lines.append(text))
    text = "\n".join(lines)
    assert all(layer.name in text for layer in (model.bert, model.dropout, model.head))
    assert f"{model.head.count_params():,}" in text and "preprocessor" not in text
