"""Embedders give the same vectors by every road: texts, queries and documents."""

import json

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.embedding import DenseStep, EmbeddingConfig
from bert_tf.checkpoints.formats import write_checkpoint
from tests.export.made_models import ODD_TEXT, make_model
from tests.export.made_models import TEXTS as PLAIN_TEXTS
from tests.fine_tune import fine_tune, write_table
from tests.float_bounds import assert_close
from tests.programs import run
from tests.roads.roads import check_roads, largest_difference, load_all, rest_rows

TEXTS = (*PLAIN_TEXTS, ODD_TEXT)
PROMPTS = {"query": "the query ", "document": "a b "}
CONFIGS = {
    "dense": EmbeddingConfig(
        ("cls", "max"), (DenseStep(64, 12, activation="tanh"),), normalize=True, max_seq_length=24
    ),
    "queries": EmbeddingConfig(prompts=PROMPTS, max_seq_length=24, normalize=True),
    "excluded prompts": EmbeddingConfig(
        prompts=PROMPTS,
        default_prompt="document",
        include_prompt=False,
        lower_case_texts=True,
        max_seq_length=24,
    ),
}


def make_folder(folder, name, is_multilingual=False):
    """Writes an embedder; returns the folder and the Keras model."""
    made = make_model("encoder", is_multilingual, num_hidden_layers=1)
    model = bert_tf.BertEmbedder.from_checkpoint(made, ["cls/"], embedding=CONFIGS[name])
    write_checkpoint(model.to_checkpoint(), folder, "bert_tf")
    return folder, bert_tf.BertEmbedder.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "is_multilingual"),
    [
        ("dense", False),
        pytest.param("excluded prompts", False, marks=pytest.mark.slow),
        pytest.param("excluded prompts", True, marks=pytest.mark.slow),
    ],
)
def test_vectors_are_the_same(tmp_path, record_property, name, is_multilingual):
    folder, model = make_folder(tmp_path / "run", name, is_multilingual)
    predictors = load_all(folder, model, tmp_path)
    check_roads(model.encode(TEXTS), predictors, lambda p: p.encode(TEXTS), record_property)
    rows = rest_rows(tmp_path / "saved" / "1", {"text": TEXTS})
    found = [row["embedding"] for row in rows]
    assert largest_difference(model.encode(TEXTS), np.array(found, np.float32)) < 1e-5
    assert predictors["run"].encode([]).shape == (0, model.dimension)
    for side in ("query", "document"):
        method = f"encode_{side}"
        expected = getattr(model, method)(TEXTS)
        for road, predictor in predictors.items():
            exported = CONFIGS[name].prompt(None)
            is_exported = road in ("SavedModel", "LiteRT", "ONNX")
            if is_exported and CONFIGS[name].side_prompt(side) != exported:
                with pytest.raises(ValueError, match=f"--side={side}"):
                    getattr(predictor, method)(TEXTS)
                continue
            found = getattr(predictor, method)(TEXTS)
            limit = 1e-4 if road == "LiteRT" else 1e-5
            assert largest_difference(expected, found) < limit, (road, side)


@pytest.mark.slow
def test_an_export_of_queries_embeds_queries(tmp_path):
    folder, model = make_folder(tmp_path / "run", "queries")
    given = {"model_dir": folder, "output_dir": tmp_path / "saved", "side": "query"}
    done = run("export.saved_model", **given)
    assert done.returncode == 0, done.printed
    predictor = bert_tf.load(tmp_path / "saved")
    expected = model.encode_query(TEXTS)
    assert largest_difference(expected, predictor.encode_query(TEXTS)) < 1e-5
    assert largest_difference(expected, predictor.encode(TEXTS)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("is_multilingual", [False, True])
def test_programs_write_the_same_vectors(tmp_path, is_multilingual):
    """The lines of extract_features, and the run that run_retriever finds with its vectors."""
    folder, model = make_folder(tmp_path / "run", "excluded prompts", is_multilingual)
    texts = [text.strip() for text in TEXTS if text.strip() and "\n" not in text]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf8")
    given = {"input_file": tmp_path / "texts.txt", "output_file": tmp_path / "vectors.jsonl"}
    done = run("extract_features", init_checkpoint=folder, pooling="own", **given)
    assert done.returncode == 0, done.printed
    lines = (tmp_path / "vectors.jsonl").read_text().splitlines()
    vectors = np.array([json.loads(line)["embedding"] for line in lines], np.float32)
    assert largest_difference(model.encode(texts), vectors) < 1e-5

    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    write_table(beir / "corpus.jsonl", documents)
    write_table(beir / "queries.jsonl", [{"_id": "q", "text": "river w40"}])
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    flags = {"do_eval": "true", "init_checkpoint": folder, "data_dir": beir, "max_seq_length": 24}
    out = tmp_path / "out"
    assert fine_tune("run_retriever", output_dir=out, **flags) == 0
    query = model.encode_query(["river w40"])[0]
    found = model.encode_document(texts)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(query)
    expected = found @ query / norms
    lines = (out / "run.trec").read_text().splitlines()
    scores = {line.split()[2]: float(line.split()[4]) for line in lines}
    assert len(scores) == len(texts)
    by_program = np.array([scores[f"d{i}"] for i in range(len(texts))])
    assert_close(by_program, expected)
