"""Answers of the models to raw input equal those of what serves them, which is another program."""

import math

import keras
import numpy as np
import pytest

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.text.text_tokenizer import TextTokenizer
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import TEXTS, write_model
from tests.float_bounds import assert_close, close_to

LENGTH = 24
SECONDS = [text[:20] for text in TEXTS[::-1]]


SLOW = pytest.mark.slow


def test_predictions_are_logits(tmp_path):
    """The answers themselves are compared in `tests/roads`."""
    run = {"max_seq_length": str(LENGTH)}
    model = BertClassifier.from_pretrained(write_model(tmp_path / "m", "classifier", run))
    assert model.labels == ("no", "yes", "vielleicht ü") and model.max_seq_length == LENGTH
    logits = model.predict(list(TEXTS), batch_size=2, verbose=0)
    shares = model.probabilities(TEXTS, batch_size=3)
    assert [*shares[0]] == ["no", "yes", "vielleicht ü"] and type(shares[0]["no"]) is float
    powers = np.exp(logits)
    assert_close([list(row.values()) for row in shares], powers / powers.sum(-1, keepdims=True))
    with pytest.raises(ValueError, match=r"classify\(texts\)"):
        model.score(TEXTS[:1])
    number = BertClassifier(model.config, 1, preprocessor=model.preprocessor)
    logits = number.predict(TEXTS[:2], verbose=0)
    assert number.score(TEXTS[:2]) == [float(logits[0, 0]), float(logits[1, 0])]
    with pytest.raises(ValueError, match=r"score\(texts\)"):
        number.classify(TEXTS)


def test_numbers_that_are_given_as_text_are_named(tmp_path):
    model = BertClassifier.from_pretrained(write_model(tmp_path / "m", "classifier"))
    names = ("epochs", "steps_per_epoch", "validation_steps", "initial_epoch", "validation_split")
    for name in names:
        with pytest.raises(TypeError, match=f"^{name} is '1'"):
            model.fit(TEXTS, ["no"] * len(TEXTS), **{name: "1"})
        with pytest.raises(ValueError, match=f"^{name} is -2"):
            model.fit(TEXTS, ["no"] * len(TEXTS), **{name: -2})


def test_windows_of_a_long_text_are_averaged(tmp_path):
    run = {"max_seq_length": str(LENGTH), "long_texts": "windows"}
    model = BertClassifier.from_pretrained(write_model(tmp_path / "m", "classifier", run))
    words = [f"w{number}" for number in range(40, 70)]  # a piece each
    room = LENGTH - 2
    windows = [words[:room], words[room // 2 :]]
    parts = model.predict([" ".join(window) for window in windows], verbose=0)
    whole = model.predict([" ".join(words), "the river"], verbose=0)
    assert_close(whole[0], parts.mean(axis=0))
    # In an evaluation each text weighs as much, the first with two windows.
    logits, ids = np.concatenate([parts, whole[1:]]).astype(np.float64), np.array([0, 0, 1])
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(3), ids]
    loss, accuracy = model.evaluate([" ".join(words), "the river"], [0, 1], verbose=0)
    assert loss == close_to(np.average(losses, weights=[1, 1, 2]))
    assert accuracy == pytest.approx(np.average(logits.argmax(-1) == ids, weights=[1, 1, 2]))


def test_predictions_of_words_are_padded(tmp_path):
    folder = write_model(tmp_path / "m", "tagger")
    model = BertTokenClassifier.from_pretrained(folder, max_seq_length=LENGTH)
    words = [["the", "river", "w40"], ["w41"] * 50]
    logits = model.predict(words, verbose=0)
    assert logits.shape == (2, 50, 3) and not logits[0, 3:].any()
    labels = [model.labels[index] for index in logits[1].argmax(-1)]
    assert [word["label"] for word in model.tag(words)[1]] == labels


def test_choose(tmp_path):
    folder = write_model(tmp_path / "m", "encoder")
    keras.utils.set_random_seed(1)
    model = BertMultipleChoice.from_pretrained(folder, new_head=True, max_seq_length=LENGTH)
    contexts, choices = (
        ["the river", "a b"],
        [["w40", "w41 w42 w43", "c"], ["c", "w50", "w51 " * 40]],
    )
    found = model.choose(contexts, choices)
    tokenizer = TextTokenizer(model.preprocessor.vocab, True)
    for answer, context, texts in zip(found, contexts, choices, strict=True):
        inputs = tokenizer([context] * 3, texts, LENGTH)
        logits = model({name: value[None] for name, value in inputs.items()}).numpy()[0]
        best = int(logits.argmax())
        assert (answer["index"], answer["choice"]) == (best, texts[best])
        share = math.exp(logits[best]) / np.exp(logits).sum()
        assert answer["score"] == close_to(share)
    assert model.predict((contexts, choices), verbose=0).shape == (2, 3)


def cross_entropies(logits, ids):
    """Returns the loss of each row of logits, float64 [N]; ids int [N]."""
    logits = np.asarray(logits, np.float64)
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(ids)), ids]


def assert_learns(model, x, y, expected, learning_rate=5e-3):
    """The loss before is the expected one; training on raw input lowers it."""
    found = model.evaluate(x, y, verbose=0)
    assert np.ravel(found)[0] == pytest.approx(expected, abs=1e-4)
    model.fit(x, y, epochs=80, learning_rate=learning_rate, verbose=0)
    assert np.ravel(model.evaluate(x, y, verbose=0))[0] < 0.7 * expected


@SLOW
def test_a_tagger_learns_from_words(tmp_path):
    model = BertTokenClassifier.from_pretrained(write_model(tmp_path / "m", "tagger"))
    words = [["the", "river", "w40"], ["w41", "w42"], ["w43"] * 60]  # The last in two windows.
    tags = [["no", "yes", "no"], ["yes", "vielleicht ü"], ["no"] * 60]
    logits = model.predict(words, verbose=0)
    ids = [np.array([model.labels.index(tag) for tag in row]) for row in tags]
    costs = [cross_entropies(logits[i, : len(row)], row) for i, row in enumerate(ids)]
    # One batch of all rows: the mean is over words, whatever their rows.
    assert_learns(model, words, tags, np.concatenate(costs).mean())
    weights = np.array([1.0, 3.0, 0.0])
    expected = np.average(
        np.concatenate(costs), weights=np.repeat(weights, [len(row) for row in ids])
    )
    again = BertTokenClassifier.from_pretrained(tmp_path / "m")
    found = again.evaluate(words, tags, sample_weight=weights, verbose=0)[0]
    assert found == pytest.approx(expected, abs=1e-4)
    texts = [" ".join(row) for row in words]
    assert again.evaluate(texts, ids, verbose=0)[0] == pytest.approx(
        np.concatenate(costs).mean(), abs=1e-4
    )


def test_a_part_of_a_tuple_of_sentences_is_held_out(tmp_path, monkeypatch):
    model = BertTokenClassifier.from_pretrained(write_model(tmp_path / "m", "tagger"))
    rows = [(["a", "b"], ["no", "yes"]), (["c"], ["no"]), (["a"], ["no"]), (["b"], ["yes"])]
    seen = []
    read = BertTokenClassifier.read_examples
    monkeypatch.setattr(
        BertTokenClassifier,
        "read_examples",
        lambda self, x, *others: seen.append(list(x)) or read(self, x, *others),
    )
    monkeypatch.setattr(keras.Model, "fit", lambda *_, **__: None)
    model.fit(*zip(*rows, strict=True), validation_split=0.25)
    assert seen == [[["a", "b"], ["c"], ["a"]], [["b"]]]


@SLOW
def test_a_span_labeler_learns_from_answers(tmp_path):
    folder = write_model(tmp_path / "m", "encoder")
    keras.utils.set_random_seed(2)
    model = BertSpanLabeler.from_pretrained(folder, new_head=True, max_seq_length=LENGTH)
    questions, contexts = ["w40?", "w41 w42?"], ["the river w50", "w51 w52 w53 the"]
    answers = ["river", {"text": ["w52 w53"], "answer_start": [4]}]
    logits = model.predict((questions, contexts), verbose=0)
    costs = []
    tokenizer = TextTokenizer(model.preprocessor.vocab, True)
    lengths = tokenizer(questions, contexts)["input_mask"].sum(axis=1)
    places = []
    for question, context, answer in zip(questions, contexts, ("river", "w52 w53"), strict=True):
        before = len(tokenizer.tokenizer.encode(question)) + 2
        first = before + len(tokenizer.tokenizer.encode(context[: context.index(answer)]))
        places.append((first, first + len(tokenizer.tokenizer.encode(answer)) - 1))
    for name, which in (("start_logits", 0), ("end_logits", 1)):
        for row in range(2):
            real = logits[name][row : row + 1, : lengths[row]]
            costs.append(cross_entropies(real, [places[row][which]])[0])
    assert_learns(model, (questions, contexts), answers, np.mean(costs), 2e-2)
    found = model.answer(questions, contexts)
    assert [answer["answer"][:3] for answer in found] == ["riv", "w52"]


@SLOW
def test_choices_are_learned(tmp_path):
    folder = write_model(tmp_path / "m", "encoder")
    keras.utils.set_random_seed(1)
    model = BertMultipleChoice.from_pretrained(folder, new_head=True, max_seq_length=LENGTH)
    contexts = ["the river", "a b", "w60"]
    choices = [["w40", "w41 w42"], ["w41 w42", "w40"], ["w40", "w44"]]
    logits = model.predict((contexts, choices), verbose=0)
    costs, weights = cross_entropies(logits, [0, 1, 0]), np.array([1.0, 0.0, 2.0])
    found = model.evaluate((contexts, choices), [0, 1, 0], sample_weight=weights, verbose=0)[0]
    assert found == pytest.approx(np.average(costs, weights=weights), abs=1e-5)
    before = model.head.output_weights.numpy()
    model.fit((contexts, choices), [0, 1, 0], epochs=2, batch_size=2, verbose=0)
    assert (model.head.output_weights.numpy() != before).any() and model.optimizer.iterations == 4


def test_a_missing_head_is_named_with_the_remedy(tmp_path):
    folder = write_model(tmp_path / "m", "encoder")
    for kind in (BertSpanLabeler, BertMultipleChoice):
        with pytest.raises(ValueError, match="cls/.*output_bias;.* new_head=True "):
            kind.from_pretrained(folder)


def test_a_missing_pooler_is_named_with_the_remedy(tmp_path):
    folder = write_model(tmp_path / "m", "embeddings")  # An encoder alone.
    pooler = r'allow_missing=\["bert/pooler/"\] '
    for given in ({"labels": ["a", "b"]}, {"num_labels": 2, "new_head": True}):
        with pytest.raises(ValueError, match=rf"dense/bias;(?!.*new_head).* {pooler}"):
            BertClassifier.from_pretrained(folder, **given)
        BertClassifier.from_pretrained(folder, allow_missing=["bert/pooler/"], **given)
    with pytest.raises(ValueError, match=f"output_bias;.* new_head=True .*{pooler}"):
        BertMultipleChoice.from_pretrained(folder)


QUESTION, CONTEXT = ["Who?"], ["the river"]
TAGGER, ANSWERER, FILLER = "tagger", "question_answering", "fill_mask"
RIVER = {"text": "river", "answer_start": 3}


@pytest.mark.parametrize(
    ("kind", "method", "arguments", "message"),
    [
        (TAGGER, "fit", ([["a", "b"]], [["no"]]), r"y\[0\] .*1 labels .*2 words"),
        (TAGGER, "fit", (["a b"], [["no", "nö"]]), r"y\[0\]\[1\] .*'nö'"),
        (TAGGER, "fit", ([["a"], ["b"]], [["no"]]), "1 .* y .* 2 texts"),
        (TAGGER, "fit", ([["a"], []], [["no"], []]), r"texts\[1\] .*words"),
        (TAGGER, "fit", (["a", " "], [["no"], []]), r"texts\[1\] .*words"),
        (TAGGER, "fit", ([["a"], "b"], [["no"], ["no"]]), r"texts\[1\] .*'b', .*texts\[0\]"),
        (TAGGER, "fit", ([["a", None]], [["no", "no"]]), r"texts\[0\]\[1\] .*None"),
        (TAGGER, "tag", (["a", None],), r"texts\[1\] .*None"),
        (TAGGER, "tag", ("a text",), "^texts .*'a text'"),
        (TAGGER, "tag", ([None, "a"],), r"texts\[0\] .*None, .*words"),
        (TAGGER, "tag", ([["a"], math.nan],), r"texts\[1\] .*nan, .*texts\[0\]"),
        (TAGGER, "tag", ([["a"], [], ["b", None]],), r"texts\[2\]\[1\] .*None"),
        (ANSWERER, "fit", ((QUESTION, CONTEXT), ["sea"]), r"y\[0\]: 'sea' .*context"),
        (ANSWERER, "fit", ((QUESTION, CONTEXT), [RIVER]), r"y\[0\]: 'river' .* 3 "),
        (ANSWERER, "fit", ((QUESTION, CONTEXT), [None]), r"y\[0\] .*answer_start"),
        (ANSWERER, "answer", (QUESTION, []), "^contexts .*empty"),
        (ANSWERER, "answer", (QUESTION * 2, CONTEXT), "2 questions .* 1 contexts"),
        (ANSWERER, "fit", (["a", "b"], ["a", "b"]), r"\(questions, contexts\)"),
        (FILLER, "fill_mask", (["no mask"],), r"texts\[0\] .* 0 \[MASK\]"),
        (FILLER, "fill_mask", ([None],), r"texts\[0\] .*None"),
    ],
)
def test_bad_input_is_named(kind, method, arguments, message, models):
    with pytest.raises(ValueError, match=message):
        getattr(models[kind], method)(*arguments)
    assert not getattr(models[kind], "train_function", None)  # Nothing was traced.


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    classes = {
        "tagger": BertTokenClassifier,
        "question_answering": BertSpanLabeler,
        "fill_mask": BertPretrainer,
    }
    return {
        kind: made.from_pretrained(write_model(folder / kind, kind))
        for kind, made in classes.items()
    }


def test_data_that_cannot_be_trained_on_are_named(tmp_path):
    texts, labels = ["a", "b", "the river", "c"], ["no", "yes", "no", "no"]
    classifier = BertClassifier.from_pretrained(write_model(tmp_path / "c", "classifier"))
    embedder = BertEmbedder.from_pretrained(write_model(tmp_path / "e", "embeddings"))
    for model, data, options, message in (
        (classifier, (texts, labels), {"sample_weight": [1, 0, -0.5, 1]}, "sample_weight .*-0.5"),
        (classifier, (texts, labels), {"validation_data": texts}, "validation_data .*4 "),
        (embedder, ([],), {}, "x "),
        (embedder, ([{"query": "a", "positive": "b"}],), {}, "x .*'query'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(*data, **options)
        assert model.train_function is None


@pytest.mark.parametrize("value", [math.nan, None, ["b"]], ids=str)
def test_labels_are_names(tmp_path, value):
    folder = write_model(tmp_path / "m", "encoder")
    with pytest.raises(ValueError, match="labels is"):
        BertClassifier.from_pretrained(folder, labels=["a", value])


def test_tensors_of_texts_are_texts(tmp_path):
    model = BertClassifier.from_pretrained(write_model(tmp_path / "m", "classifier"))
    texts = keras.ops.convert_to_tensor(["a [SEP] b", "the river"])
    assert np.isfinite(model.fit(texts, ["no", "yes"], verbose=0).history["loss"]).all()


def test_choices_are_checked(tmp_path):
    write_checkpoint(make_checkpoint("encoder with pooler"), tmp_path / "m", "bert_tf")
    model = BertMultipleChoice.from_pretrained(tmp_path / "m", new_head=True)
    for choices, labels, message in (
        ([["a", "b"], ["a"]], [0, 1], r"choices\[1\] .* 1 .*choices\[0\] .* 2"),
        ([["a", "b"]], [0, 1], "2 contexts .* 1 .*choices"),
        ([["a", "b"], ["a", None]], [0, 1], r"choices\[1\]\[1\] .*None"),
        ([["a", "b"], ["c", "d"]], [0, 2], r"y\[1\] .*2, .*labels 0 .* 1"),
        (["ab", "cd"], [0, 1], r"choices\[0\] .*'ab'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit((["x", "y"], choices), labels)
