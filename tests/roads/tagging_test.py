"""Taggers give the same tags and entities by every road, for texts and for lists of words."""

import json

import pytest

import bert_tf
from tests.export.made_models import ODD_TEXT, write_model
from tests.export.made_models import TEXTS as PLAIN_TEXTS
from tests.fine_tune import fine_tune, write_table
from tests.roads.roads import check_roads, largest_difference, load_all, rest_rows

LENGTH = 24
TEXTS = (*PLAIN_TEXTS, ODD_TEXT)
LABELS = ("O", "B-X", "I-X")
WORDS = [["the", "river", "don't"], ["w40"] * 60, ["Über", "中"], ["\u200b", "a"], ODD_TEXT.split()]


VOCABULARIES = ["wordpiece", "multilingual"]
ONE_FAST = pytest.mark.parametrize(
    "folder", [False, pytest.param(True, marks=pytest.mark.slow)], indirect=True, ids=VOCABULARIES
)


@pytest.fixture(scope="module", params=[False, True], ids=VOCABULARIES)
def folder(tmp_path_factory, request):
    path = write_model(
        tmp_path_factory.mktemp("tagger") / "run",
        "tagger",
        {"max_seq_length": str(LENGTH)},
        request.param,
        num_hidden_layers=1,
        intermediate_size=32,
    )
    (path / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    return path


@pytest.mark.slow
@ONE_FAST
def test_answers_are_the_same(tmp_path, record_property, folder):
    model = bert_tf.BertTokenClassifier.from_pretrained(folder)
    assert model.labels == LABELS

    def ask(answers):
        return [answers.tag(TEXTS), answers.tag(WORDS), answers.find_entities(TEXTS)]

    expected = ask(model)
    check_roads(expected, load_all(folder, model, tmp_path), ask, record_property)
    assert len({word["label"] for row in expected[0] for word in row}) > 1
    assert any(expected[2])

    # The REST form has the same words under the names of the signature's outputs.
    for row, words in zip(
        rest_rows(tmp_path / "saved" / "1", {"text": TEXTS}), expected[0], strict=True
    ):
        count = len(words)
        rest = []
        for index in range(count):
            word = {name: row[f"{name}s"][index] for name in ("word", "score", "start", "end")}
            rest.append({**word, "label": row["tags"][index]})
        assert largest_difference(words, rest) <= 1e-5
        assert set(row["tags"][count:]) <= {""}


@ONE_FAST
def test_the_program_predicts_the_same(tmp_path, folder):
    sentences = [*WORDS[:3], ["qa", "ba", "caa"], WORDS[4]]
    rows = [{"tokens": words, "tags": ["O"] * len(words)} for words in sentences]
    path = write_table(tmp_path / "words.jsonl", rows)
    flags = {
        "init_checkpoint": folder,
        "output_dir": tmp_path / "run",
        "predict_file": path,
        "do_predict": "true",
        "max_seq_length": LENGTH,
        "jit_compile": "false",
    }
    assert fine_tune("run_tagger", **flags) == 0
    expected = bert_tf.BertTokenClassifier.from_pretrained(folder).tag(sentences)
    (written,) = (tmp_path / "run").glob("predictions*")
    found = [json.loads(line) for line in written.read_text().splitlines()]
    for row, words in zip(found, expected, strict=True):
        names = [value for value in row.values() if isinstance(value, list)]
        assert [word["label"] for word in words] in names


def test_an_empty_word_is_refused_by_the_graph_alone(tmp_path, folder):
    model = bert_tf.BertTokenClassifier.from_pretrained(folder)
    assert [len(row) for row in model.tag([["a", ""], []])] == [2, 0]
    assert model.tag([[], []]) == [[], []]
    assert model.tag([" "]) == [[]]
