"""What users of Keras are used to: callbacks that set the rate, a second fit, texts everywhere."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.base.models.graph_labels import LabelAccuracy
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.training.optimizers import AdamW
from bert_tf.training.schedules import LinearWarmupLinearDecay
from tests.float_bounds import assert_close
from tests.tiny_model import write_tiny_model

LABELS = ("bad", "good")
TEXTS = ["good a b", "bad c", "good d e f", "bad"] * 4
NAMES = ["good", "bad"] * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A pre-trained model without a classifier, and without dropout."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = tmp_path_factory.mktemp("start") / "model"
    return write_tiny_model(path, "good", "bad", num_hidden_layers=1, **no_dropout)


def start_model(folder: pathlib.Path, **options) -> BertClassifier:
    keras.utils.set_random_seed(3)
    return BertClassifier.from_pretrained(folder, **{"labels": LABELS, **options})


def weights_of(model: keras.Model) -> list[np.ndarray]:
    return [value.copy() for value in model.get_weights()]


@pytest.mark.slow
def test_callbacks_set_the_rate_of_a_model_that_was_not_compiled(folder):
    model = start_model(folder)
    halving = keras.callbacks.LearningRateScheduler(lambda _, rate: rate * 0.5)
    options = {"epochs": 3, "batch_size": 16, "learning_rate": 8e-3, "verbose": 0}
    history = model.fit(TEXTS, NAMES, callbacks=[halving], **options).history
    assert_close(history["learning_rate"], [4e-3, 2e-3, 1e-3])
    # The next fit starts from its own rate.
    reducing = keras.callbacks.ReduceLROnPlateau(patience=0, min_delta=10.0, monitor="loss")
    history = model.fit(TEXTS, NAMES, callbacks=reducing, **options).history
    assert_close(history["learning_rate"], [8e-3, 8e-3, 8e-4])
    assert float(model.optimizer.learning_rate) == pytest.approx(8e-5)


@pytest.mark.slow
@pytest.mark.parametrize("as_list", [True, False])
def test_callbacks_that_set_the_rate_of_a_schedule_are_refused_before_training(folder, as_list):
    model = start_model(folder)
    model.compile(AdamW(LinearWarmupLinearDecay(1e-3, 4)))
    callback = keras.callbacks.ReduceLROnPlateau(monitor="loss")
    before = weights_of(model)
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        model.fit(TEXTS, NAMES, callbacks=[callback] if as_list else callback, verbose=0)
    np.testing.assert_array_equal(weights_of(model)[0], before[0])
    model.compile(AdamW(1e-3))
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 / (epoch + 1))
    history = model.fit(TEXTS, NAMES, callbacks=[scheduler], epochs=2, verbose=0).history
    assert_close(history["learning_rate"], [1e-3, 5e-4])


def classifier(folder):
    return BertClassifier.from_pretrained(folder, labels=LABELS), TEXTS, NAMES


def tagger(folder):
    words = [text.split() for text in TEXTS]
    tags = [["X"] * len(row) for row in words]
    return BertTokenClassifier.from_pretrained(folder, labels=["X", "Y"]), words, tags


def span_labeler(folder):
    answers = [{"text": ["good"], "answer_start": [0]}] * 2
    x = (["good or bad"] * 2, ["good a b", "good c"])
    return BertSpanLabeler.from_pretrained(folder, new_head=True), x, answers


@pytest.mark.parametrize(
    "make",
    [
        classifier,
        pytest.param(tagger, marks=pytest.mark.slow),
        pytest.param(span_labeler, marks=pytest.mark.slow),
    ],
)
def test_the_first_fit_traces_its_step_once(folder, make, monkeypatch):
    model, x, y = make(folder)
    calls = []
    own = type(model).task_loss

    def task_loss(self, *arguments, **options):
        calls.append(1)
        return own(self, *arguments, **options)

    monkeypatch.setattr(type(model), "task_loss", task_loss)
    history = model.fit(x, y, epochs=2, batch_size=4, verbose=0).history
    assert len(calls) == 1
    assert any(name.endswith("accuracy") for name in history)


def test_accuracy_of_indices_and_of_one_hot_rows():
    scores = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [0.0, 3.0, 1.0]], np.float32)
    ids = np.array([0, 1, 2])
    for labels in (ids, ids[:, None], np.eye(3)[ids]):
        metric = LabelAccuracy("accuracy")
        metric.update_state(labels, scores, np.array([1.0, 1.0, 2.0]))
        assert float(metric.result()) == pytest.approx(2 / 4)


@pytest.mark.slow
def test_a_second_fit_is_not_traced_again_and_is_as_the_first(folder):
    model = start_model(folder)
    own, calls = model.task_loss, []

    def task_loss(*arguments, **options):
        calls.append(1)  # In the graph's making alone.
        return own(*arguments, **options)

    object.__setattr__(model, "task_loss", task_loss)
    start = [keras.ops.convert_to_numpy(variable) for variable in model.weights]
    dev = (TEXTS[:4], NAMES[:4])
    options = {"validation_data": dev, "batch_size": 8, "shuffle": False, "verbose": 0}
    losses, traces = [], []
    for _ in range(3):
        for variable, value in zip(model.weights, start, strict=True):
            variable.assign(value)
        losses.append(model.fit(TEXTS, NAMES, epochs=2, **options).history["loss"])
        traces.append(len(calls))
    assert traces[0] and traces[1:] == traces[:1] * 2
    assert losses[1] == losses[0] and losses[2] == losses[0]
    model.fit(TEXTS[:8], NAMES[:8], epochs=3, learning_rate=1e-4, **options)  # Another length.
    assert len(calls) == traces[0]
    assert model.optimizer.rate_factor.get_config()["num_train_steps"] == 3
    model.bert.trainable = False  # Other variables: another graph.
    model.fit(TEXTS, NAMES, **options)
    assert len(calls) > traces[0]


# Texts wherever Keras takes inputs -----------------------------------------------------------


def scores_of(model: BertClassifier, texts: list[str]) -> np.ndarray:
    return model.predict(texts, verbose=0)


def test_a_model_is_called_on_texts(folder):
    model = start_model(folder)
    expected = scores_of(model, TEXTS)
    for texts in (TEXTS, np.array(TEXTS), tf.constant(TEXTS)):
        assert_close(np.asarray(model(texts)), expected)
    pairs = model((TEXTS, NAMES))
    assert_close(pairs, model.predict((TEXTS, NAMES), verbose=0))

    @tf.function
    def in_graph(texts):
        return model(texts)

    np.testing.assert_allclose(in_graph(tf.constant(TEXTS)), expected, atol=1e-5)
    with pytest.raises(ValueError, match="a single text"):
        model("a single text")
    with pytest.raises(ValueError, match="BertEncoder.*input_word_ids"):
        model.bert(TEXTS)


def test_an_embedder_is_called_on_texts(folder):
    model = BertEmbedder.from_pretrained(folder)
    assert_close(model(TEXTS[:3]), model.encode(TEXTS[:3]))


@pytest.mark.slow
def test_batches_of_texts(folder):
    model = start_model(folder)
    model.compile(AdamW(1e-3), metrics=["accuracy"])
    scores = scores_of(model, TEXTS)
    assert_close(model.predict_on_batch(TEXTS), scores)
    loss, _ = model.test_on_batch(TEXTS, NAMES)
    ids = np.array([LABELS.index(name) for name in NAMES])
    logs = scores.astype(np.float64)
    by_hand = np.log(np.exp(logs).sum(-1)) - logs[np.arange(len(ids)), ids]
    assert float(loss) == pytest.approx(by_hand.mean(), abs=1e-5)
    first = model.train_on_batch(TEXTS, NAMES, return_dict=True)["loss"]
    assert float(first) == pytest.approx(by_hand.mean(), abs=1e-5)
    for _ in range(5):
        last = model.train_on_batch(TEXTS, NAMES, class_weight="balanced", return_dict=True)
    assert last["loss"] < first
    with pytest.raises(ValueError, match="labels"):
        model.train_on_batch(TEXTS)


class Batches(keras.utils.PyDataset):
    """Batches of texts and labels, as users write them."""

    def __init__(self, size: int = 4, **options) -> None:
        super().__init__(**options)
        self.size, self.epochs = size, 0

    def __len__(self) -> int:
        return len(TEXTS) // self.size

    def __getitem__(self, index: int):
        part = slice(index * self.size, (index + 1) * self.size)
        return TEXTS[part], NAMES[part]

    def on_epoch_end(self) -> None:
        self.epochs += 1


@pytest.mark.slow
def test_a_py_dataset_of_texts_trains_evaluates_and_predicts(folder):
    model, data = start_model(folder), Batches()
    expected = model.evaluate(TEXTS, NAMES, batch_size=4, verbose=0)
    assert_close(model.evaluate(data, verbose=0), expected)
    assert_close(model.predict(data, verbose=0), scores_of(model, TEXTS))
    start = model.get_weights()
    fitted = {}
    for name, arguments in {"lists": (TEXTS, NAMES), "batches": (data,)}.items():
        model.set_weights(start)
        options = {"shuffle": False, "epochs": 2, "learning_rate": 1e-3, "verbose": 0}
        held_out = data if name == "batches" else (TEXTS, NAMES)
        fitted[name] = model.fit(
            *arguments, batch_size=None if name == "batches" else 4, validation_data=held_out,
            validation_batch_size=4, **options,
        ).history  # fmt: skip
    for name in ("loss", "val_loss", "val_accuracy"):
        np.testing.assert_allclose(fitted["batches"][name], fitted["lists"][name], atol=1e-4)
    assert data.epochs >= 2


@pytest.mark.slow
def test_generators_of_texts_and_what_they_cannot(folder):
    model = start_model(folder)

    def endless():
        while True:
            for index in range(4):
                yield Batches()[index]

    history = model.fit(endless(), steps_per_epoch=4, epochs=2, verbose=0, learning_rate=1e-3)
    assert len(history.history["loss"]) == 2
    found = model.predict((text for text, _ in [Batches()[0], Batches()[1]]), verbose=0)
    assert_close(found, scores_of(model, TEXTS[:8]))
    weighted = {"good": 2.0, "bad": 1.0}
    model.fit(endless(), steps_per_epoch=1, verbose=0, class_weight=weighted)
    with pytest.raises(ValueError, match="balanced"):
        model.fit(Batches(), class_weight="balanced", verbose=0)
    with pytest.raises(ValueError, match="labels"):
        model.fit((texts for texts, _ in [Batches()[0]]), steps_per_epoch=1, verbose=0)
    with pytest.raises(ValueError, match="generator"):
        model.fit(iter(()), steps_per_epoch=1, verbose=0)
    with pytest.raises(ValueError, match="fair"):
        model.fit(iter([(["a"], ["fair"])]), steps_per_epoch=1, verbose=0)
    model.preprocessor = None
    with pytest.raises(ValueError, match="preprocessor"):
        model.fit(Batches(), verbose=0)


@pytest.mark.parametrize(
    ("model_class", "options", "batch"),
    [
        (BertTokenClassifier, {"labels": ["O", "B"]}, ([["a", "b"], ["c"]], [["O", "B"], ["O"]])),
        pytest.param(
            *(BertSpanLabeler, {"new_head": True}, ((["a?"], ["a b c"]), ["b c"])),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(BertMultipleChoice, {"new_head": True}, ((["a"], [["b", "c"]]), [1])),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_streams_of_other_tasks(folder, model_class, options, batch):
    model = model_class.from_pretrained(folder, max_seq_length=16, **options)
    history = model.fit(iter([batch, batch]), steps_per_epoch=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()


# Labels ----------------------------------------------------------------------------------------


ONE_HOT = np.eye(2)[[LABELS.index(name) for name in NAMES]]


@pytest.mark.parametrize(
    "labels",
    [
        ONE_HOT,
        ONE_HOT.astype(bool).tolist(),
        ONE_HOT.argmax(-1)[:, None],
        np.array(NAMES)[:, None],
    ],
    ids=["one-hot", "one-hot lists", "column", "column of names"],
)
def test_forms_of_one_label(folder, labels):
    model = start_model(folder)
    read = model.read_examples(TEXTS, labels).labels
    np.testing.assert_array_equal(read, ONE_HOT.argmax(-1))


def test_one_hot_labels_of_names_that_are_numbers_are_places(folder):
    model = start_model(folder, labels=["3", "1", "2"])
    read = model.read_examples(TEXTS[:3], np.eye(3)[[2, 0, 1]]).labels
    np.testing.assert_array_equal(read, [2, 0, 1])


def test_rows_that_are_not_one_hot_are_named(folder):
    model = start_model(folder)
    with pytest.raises(ValueError, match=r"y\[1\].*multi_label"):
        model.read_examples(TEXTS[:2], [[0, 1], [1, 1]])


def test_balanced_classes_have_equal_sums(folder):
    model = start_model(folder, labels=["bad", "good", "never"])
    names = ["good"] * 3 + ["bad"]
    weights = model.raw_input.weigh_classes(names, "balanced", None)
    assert_close(weights, [4 / 6] * 3 + [2.0])
    twice = model.raw_input.weigh_classes(names, "balanced", [2.0] * 4)
    assert_close(twice, 2 * weights)
    with pytest.raises(ValueError, match="class_weight .*'balance'; .*'balanced'"):
        model.fit(TEXTS, NAMES, class_weight="balance")


def test_the_threshold_of_several_labels(folder):
    model = start_model(folder, problem_type="multi_label")
    probabilities = model.probabilities(TEXTS[:1])[0]
    low, high = sorted(probabilities.values())
    middle = (low + high) / 2
    found = {
        threshold: len(model.classify(TEXTS[:1], threshold=threshold)[0]["labels"])
        for threshold in (0.0, middle, 1.0)
    }
    assert found == {0.0: 2, middle: 1, 1.0: 0}
    assert model.classify(TEXTS, threshold=0.5) == model.classify(TEXTS)
    with pytest.raises(ValueError, match="threshold .*2,.* 0 .* 1"):
        model.classify(TEXTS, threshold=2)
    with pytest.raises(ValueError, match="threshold=0.3"):
        start_model(folder).classify(TEXTS, threshold=0.3)


def test_no_texts_have_no_answers(folder):
    model = start_model(folder)
    assert model.classify([]) == [] and model.probabilities([]) == []
    assert model.classify(([], [])) == [] and model.classify(np.array([], str)) == []
    number = BertClassifier.from_pretrained(folder, num_labels=1)
    assert number.score([]) == []
    tagger = BertTokenClassifier.from_pretrained(folder, labels=["O", "B"])
    assert tagger.tag([]) == [] and tagger.find_entities([]) == []
    assert BertSpanLabeler.from_pretrained(folder, new_head=True).answer([], []) == []
    assert BertMultipleChoice.from_pretrained(folder, new_head=True).choose([], []) == []
    assert BertPretrainer.from_pretrained(folder).fill_mask([]) == []
    with pytest.raises(ValueError, match="^contexts .*empty"):
        BertSpanLabeler.from_pretrained(folder, new_head=True).answer(["a"], [])


@pytest.mark.slow
def test_pairs_are_known_to_a_trained_model(folder, tmp_path):
    model = start_model(folder)
    assert not model.pair
    model.fit((TEXTS, NAMES), NAMES, verbose=0)
    assert model.pair
    model.save(tmp_path / "mine.keras")
    assert keras.models.load_model(tmp_path / "mine.keras").pair


CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        ("sparse_categorical_crossentropy", NAMES),
        (keras.losses.sparse_categorical_crossentropy, NAMES),
        (CROSS_ENTROPY(from_logits=True), NAMES),
        ("categorical_crossentropy", ONE_HOT),
        (keras.losses.CategoricalCrossentropy(from_logits=True), NAMES),
    ],
)
def test_cross_entropies_of_compile_are_the_models_own_loss(folder, loss, labels):
    expected, model = start_model(folder), start_model(folder)
    expected.compile(weighted_metrics=["accuracy"])
    model.compile(loss=loss, weighted_metrics=["accuracy"])
    found = model.evaluate(TEXTS, labels, verbose=0)
    assert_close(found, expected.evaluate(TEXTS, NAMES, verbose=0))
    model.fit(TEXTS, labels, verbose=0)
    model.fit(tf.data.Dataset.from_tensor_slices((TEXTS, ONE_HOT)).batch(4), verbose=0)


def test_a_loss_of_probabilities_is_refused_before_training(folder):
    model = start_model(folder)
    model.compile("adam", CROSS_ENTROPY())
    before = weights_of(model)
    with pytest.raises(ValueError, match="from_logits=True"):
        model.fit(TEXTS, NAMES, verbose=0)
    with pytest.raises(ValueError, match="from_logits=True"):
        model.train_on_batch(TEXTS, NAMES)
    np.testing.assert_equal(weights_of(model), before)


def test_datasets_of_other_dicts_are_refused(folder):
    data = tf.data.Dataset.from_tensor_slices({"text": TEXTS, "label": NAMES}).batch(4)
    with pytest.raises(ValueError, match="input_word_ids"):
        start_model(folder).fit(data)
