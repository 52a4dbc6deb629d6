"""What a predictor makes of a model's outputs, and of what users give it; the model is made up."""

import inspect
import itertools

import numpy as np
import pytest

from bert_tf.inference.kinds import ANSWERING
from bert_tf.inference.output_answers import output_answers
from bert_tf.inference.predictor import Predictor
from bert_tf.tasks.base.examples import columns
from bert_tf.tasks.classification.model import BertClassifier


class MadeUpModel:
    """Answers what `answer` says of each row, and keeps what it was asked."""

    calls_at_once = 1

    def __init__(self, kind, answer, inputs=("text",), labels=(), **card):
        self.card = {"kind": kind, "inputs": inputs, "labels": labels, "max_seq_length": 9, **card}
        self.answer, self.asked = answer, []

    def rows(self, *columns):
        self.asked.append(columns)
        return [self.answer(*texts) for texts in zip(*columns, strict=True)]

    def word_rows(self, sentences):
        self.asked.append(sentences)
        return [self.answer(words) for words in sentences]


def predictor_of(model: MadeUpModel, batch_size: int = 32) -> Predictor:
    return Predictor(output_answers(model), model.card, batch_size)


def length(text: str, text_b: str = "") -> dict:
    return {"value": np.float32(len(text) - 10 * len(text_b))}


def good_or_bad(text: str) -> dict:
    good = np.float32(0.75 if "good" in text else 0.25)
    label, score = (b"good", good) if good > 0.5 else (b"bad", 1 - good)
    return {"label": label, "score": score, "probabilities": np.array([1 - good, good])}


def test_rows_of_like_length_are_computed_together_and_come_back_in_order():
    model = MadeUpModel("regression", length)
    texts = ["aaaa", "", "aaaaaaa", "aa", "aaaaa"]
    assert predictor_of(model, batch_size=2).score(texts) == [4.0, 0.0, 7.0, 2.0, 5.0]
    assert [columns[0] for columns in model.asked] == [["aaaaaaa", "aaaaa"], ["aaaa", "aa"], [""]]


def test_classes_come_with_names_in_plain_python():
    predictor = predictor_of(MadeUpModel("classifier", good_or_bad, labels=["bad", "good"]))
    texts = np.array(["so good", "no"])  # NumPy's own strings
    found = predictor.classify(texts)
    assert found == [{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.75}]
    assert type(found[0]["label"]) is str and type(found[0]["score"]) is float
    assert predictor.probabilities(texts)[1] == {"bad": 0.75, "good": 0.25}
    assert predictor.classify([]) == []
    assert "good" in repr(predictor) and "classify" in repr(predictor)


def test_of_several_labels_those_above_a_half_are_named():
    values = np.array([0.6, 0.25, 0.875])
    row = {"labels": np.array([b"c", b"a", b""]), "probabilities": values}
    predictor = predictor_of(MadeUpModel("multi_label", lambda text: row, labels=["a", "b", "c"]))
    assert predictor.classify(["x"]) == [{"labels": ["c", "a"], "scores": [0.875, 0.6]}]


def test_a_threshold_chooses_the_labels():
    row = {"labels": np.array([b"c"]), "probabilities": np.array([0.6, 0.25, 0.875])}
    predictor = predictor_of(MadeUpModel("multi_label", lambda text: row, labels=["a", "b", "c"]))
    assert predictor.classify(["x"], threshold=0.2)[0]["labels"] == ["c", "a", "b"]
    assert predictor.classify(["x"], threshold=0.7) == [{"labels": ["c"], "scores": [0.875]}]
    assert predictor.classify(["x"], threshold=1) == [{"labels": [], "scores": []}]
    with pytest.raises(ValueError, match="threshold .*-1,.* 0 .* 1"):
        predictor.classify(["x"], threshold=-1)
    one = predictor_of(MadeUpModel("classifier", good_or_bad, labels=["bad", "good"]))
    with pytest.raises(ValueError, match="threshold=0.3"):
        one.classify(["x"], threshold=0.3)


@pytest.mark.parametrize(
    ("kind", "model_class"),
    [
        ("classifier", "BertClassifier"),
        ("tagger", "BertTokenClassifier"),
        ("question_answering", "BertSpanLabeler"),
        ("embeddings", "BertEmbedder"),
    ],
)
def test_who_wants_to_train_a_predictor_learns_the_class(kind, model_class):
    predictor = predictor_of(MadeUpModel(kind, length))
    for name in ("fit", "compile", "save"):
        with pytest.raises(AttributeError, match=rf"bert_tf\.{model_class}\."):
            getattr(predictor, name)
    assert not hasattr(predictor, "fit") and not hasattr(predictor, "other")


def test_no_texts_have_no_answers():
    def never(*texts):
        raise AssertionError

    calls = {
        "multi_label": lambda one: [*one.classify([]), *one.probabilities([])],
        "regression": lambda one: one.score([]),
        "tagger": lambda one: [*one.tag([]), *one.find_entities([])],
        "question_answering": lambda one: one.answer([], []),
        "fill_mask": lambda one: one.fill_mask([]),
    }
    for kind, call in calls.items():
        assert call(predictor_of(MadeUpModel(kind, never))) == []


def test_pairs_and_choices():
    predictor = predictor_of(MadeUpModel("regression", length, inputs=("text", "text_b")))
    assert predictor.score([("aaa", "b"), ("", "")]) == [-7.0, 0.0]
    rows = [{"label": 1, "text_b": "b", "text": "aaa"}, ["", ""]]
    assert predictor.score(rows) == predictor.score((["aaa", ""], ["b", ""])) == [-7.0, 0.0]
    assert predictor.score(([], [])) == predictor.score([]) == []
    with pytest.raises(ValueError, match="2 first .* 1 second"):
        predictor.score((["a", "b"], ["c"]))
    contexts, choices = ["a", "aa"], [["bb", "b", "bbb"], ["b", "b"]]
    first, second = predictor.choose(contexts, choices)
    assert (first["choice"], first["index"]) == ("b", 1) and first["score"] > 0.999
    assert second == {"choice": "b", "index": 0, "score": 0.5}


def test_entities_and_words():
    def tag(text):
        return {
            "tags": np.array([b"B-PER", b"I-PER", b"O", b""]),
            "starts": np.array([0, 4, 13, -1]),
            "ends": np.array([3, 12, 17, -1]),
            "scores": np.array([0.5, 0.75, 1.0, 0.0]),
        }

    labels = ["O", "B-PER", "I-PER", "S-PER"]
    predictor = predictor_of(MadeUpModel("tagger", tag, labels=labels))
    expected = {"type": "PER", "start": 0, "end": 12, "text": "Ada Lovelace", "score": 0.5}
    assert predictor.find_entities(["Ada Lovelace went"]) == [[expected]]
    word = {"word": "Lovelace", "label": "I-PER", "score": 0.75, "start": 4, "end": 12}
    assert predictor.tag(["Ada Lovelace went"])[0][1] == word
    ada, lovelace, went = predictor.tag([["Ada", "Lovelace", "went"]])[0]
    assert lovelace == {"word": "Lovelace", "label": "I-PER", "score": 0.75}


def test_answers():
    row = {"answer": b"\xc3\xbcber", "start": np.int32(2), "end": np.int32(6)}
    scores = {"score": 1.5, "null_odds": -2.0, "probability": 0.5}
    row |= {name: np.float32(value) for name, value in scores.items()}
    inputs = ("question", "context")
    predictor = predictor_of(MadeUpModel("question_answering", lambda *_: row, inputs=inputs))
    assert predictor.answer(["Wie?", "Was?"], ["x " * 3, "y"]) == 2 * [
        {"answer": "über", "start": 2, "end": 6, **scores}
    ]
    with pytest.raises(ValueError, match="1 questions .* 2 contexts"):
        predictor.answer(["Wie?"], ["x", "y"])


def test_masks():
    def fill(text):
        count = text.count("[MASK]")
        pieces = [[b"cat", b"dog"]] * count + [[b"", b""]] * (3 - count)
        scores = [[0.5, 0.25]] * count + [[0.0, 0.0]] * (3 - count)
        return {"pieces": np.array(pieces), "probabilities": np.array(scores)}

    predictor = predictor_of(MadeUpModel("fill_mask", fill))
    (found,) = predictor.fill_mask(["A [MASK] and a [MASK]."], top_k=1)
    assert found == [[{"piece": "cat", "score": 0.5}]] * 2
    with pytest.raises(ValueError, match=r"texts\[1\] .* 0 \[MASK\]"):
        predictor.fill_mask(["A [MASK].", "None."], top_k=1)
    with pytest.raises(ValueError, match=r"top_k .*5, .*1 \.\. 2"):
        predictor.fill_mask(["A [MASK]."])
    with pytest.raises(ValueError, match=r"top_k .*3, .*1 \.\. 2"):
        predictor_of(MadeUpModel("fill_mask", fill, top_k=2)).fill_mask(["A [MASK]."], top_k=3)


def test_masks_by_the_vocabularys_own_name_count_too():
    row = {"pieces": np.array([[b"cat"]] * 2), "probabilities": np.array([[0.5]] * 2)}
    predictor = predictor_of(MadeUpModel("fill_mask", lambda text: row, mask="<mask>"))
    assert len(predictor.fill_mask(["A <mask> and a [MASK]."], top_k=1)[0]) == 2
    with pytest.raises(ValueError, match=r"texts\[0\] .* 3 \[MASK\], 2 .* 9 "):
        predictor.fill_mask(["A <mask> and a [MASK], so long that a <mask> is cut off."], top_k=1)


def test_embeddings_are_one_array():
    predictor = predictor_of(
        MadeUpModel("embeddings", lambda text: {"embedding": np.full(4, len(text), np.float32)})
    )
    vectors = predictor.encode(["ab", ""])
    assert vectors.dtype == np.float32 and vectors.tolist() == [[2.0] * 4, [0.0] * 4]
    assert predictor.encode([]).shape == (0, 4)


@pytest.mark.parametrize(
    ("kind", "method", "texts"),
    [
        ("classifier", "classify", ["so good", "no", "good"]),
        ("classifier", "probabilities", [("so good", "yes"), ("no", "no")]),
        ("multi_label", "classify", ["so good", "no"]),
        ("regression", "score", (["a", "bb"], ["c", "dd"])),
        ("tagger", "find_entities", ["good", "no"]),
    ],
)
def test_each_text_is_read_once(monkeypatch, kind, method, texts):
    read = []
    original = columns.check_text

    def check_text(text, where):
        read.append(text)
        return original(text, where)

    def answer(text, text_b=""):
        words = {"tags": [b"O"], "scores": [0.5], "starts": [0], "ends": [1]}
        return {**good_or_bad(text), "value": np.float32(1), **words}

    monkeypatch.setattr(columns, "check_text", check_text)
    is_pair = not isinstance(texts[0], str)
    inputs = ("text", "text_b") if is_pair else ("text",)
    model = MadeUpModel(kind, answer, inputs=inputs, labels=["bad", "good"])
    assert len(getattr(predictor_of(model), method)(texts)) == 2 + (len(texts) == 3)
    assert sorted(read) == sorted(itertools.chain.from_iterable(texts) if is_pair else texts)


def test_a_predictor_hands_on_signatures_and_docstrings():
    """Arguments are those of the Keras model, but for the batch size, which the predictor has."""
    declared = inspect.signature(BertClassifier.classify).parameters
    shown = inspect.signature(Predictor.classify).parameters
    assert list(shown) == [name for name in declared if name != "batch_size"]
    for method in {name for kind in ANSWERING.values() for name in kind.methods}:
        documented = inspect.getdoc(getattr(Predictor, method))
        assert "batch_size:" not in documented, method
    assert "candidates:" in inspect.getdoc(Predictor.classify)
    with pytest.raises(TypeError, match="wrong"):
        predictor_of(MadeUpModel("classifier", good_or_bad)).classify(["a"], wrong=1)
    with pytest.raises(TypeError, match="texts"):
        predictor_of(MadeUpModel("classifier", good_or_bad)).classify()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("A film.", r"texts .*'A film.'"),
        (["a", None], r"texts\[1\].*None"),
        ([("a", "b")], r"texts\[0\].*\('a', 'b'\)"),
        (["a", "\ud800"], r"texts\[1\]: .*surrogate"),
        ({"text": ["a"], "label": ["b"]}, r"texts .*dict"),
    ],
)
def test_what_is_no_text_is_named(texts, message):
    with pytest.raises(ValueError, match=message):
        predictor_of(MadeUpModel("regression", length)).score(texts)


@pytest.mark.parametrize(
    "texts",
    [
        *(["a"], [("a",)], [("a", "b", "c")], [("a", None)], [3]),
        # What has no order, or not the names of the texts.
        *([{"a", "b"}], [{"text": "a", "label": "b"}], [{"text": "a", "text_b": None}]),
    ],
)
def test_what_is_no_pair_is_named(texts):
    predictor = predictor_of(MadeUpModel("regression", length, inputs=("text", "text_b")))
    with pytest.raises(ValueError, match=r"texts\[0\] .*pair"):
        predictor.score(texts)


def test_methods_of_other_kinds_name_the_right_one():
    regression = predictor_of(MadeUpModel("regression", length))
    with pytest.raises(ValueError, match="^classify .* classifier .* regression: .*score"):
        regression.classify(["a"])
    with pytest.raises(ValueError, match="^choose .*pairs"):
        regression.choose(["a"], [["b"]])
    with pytest.raises(ValueError, match="kind encoder .*predictor.* reranker, classifier"):
        predictor_of(MadeUpModel("encoder", length))
    with pytest.raises(ValueError, match="batch_size .*0,"):
        predictor_of(MadeUpModel("regression", length), batch_size=0)
    with pytest.raises(ValueError, match=r"texts\[0\]\[1\] .*empty"):
        predictor_of(MadeUpModel("tagger", length)).tag([["a", ""]])
