"""The retriever as a user runs it: texts and judgments in, embeddings and measures out."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.embedding import read_embedding
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.token_vectors import TokenVectors
from bert_tf.metrics import trec
from bert_tf.metrics.ranking import evaluate
from bert_tf.metrics.sparse import SparseIndex
from bert_tf.search.splade import SparseEncoder
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import FLAGS, fine_tune, read_results, refuse, write_table
from tests.search.splade_test import write_sparse_encoder
from tests.slow_variants import slow_unless
from tests.tiny_model import write_tiny_model

ANIMALS = ("cat", "dog", "cow", "owl", "bee", "ant", "fox", "hen")
WORDS = ("the", "what", "does", "eat", "eats", "grass", "mice", "honey", "seeds", "a", *ANIMALS)
FOODS = ("grass", "mice", "honey", "seeds")
PROGRAM = "run_retriever"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("retriever"))


def write_files(path):
    """Writes a model without dropout, one with it, a BEIR folder and tables into a folder."""
    write_tiny_model(path / "model", *WORDS)
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    write_tiny_model(path / "still", *WORDS, **none)
    documents = [f"the {animal} eats {food}" for animal in ANIMALS for food in FOODS]
    beir = path / "beir"
    (beir / "qrels").mkdir(parents=True)
    rows = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(documents)]
    write_table(beir / "corpus.jsonl", rows)
    queries = [f"what {food} does the {animal} eat" for animal in ANIMALS for food in FOODS]
    rows = [{"_id": f"q{i}", "text": text} for i, text in enumerate(queries)]
    write_table(beir / "queries.jsonl", rows)
    for split, places in (("train", range(24)), ("test", range(24, 32))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in places)]
        (beir / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    others = [documents[(i + 5) % 32] for i in range(24)]
    rows = zip(queries[:24], documents[:24], others, strict=True)
    triplets = [{"query": q, "positive": p, "negative": n} for q, p, n in rows]
    write_table(path / "triplets.csv", triplets)
    margins = [row | {"margin": i % 5} for i, row in enumerate(triplets)]
    write_table(path / "margins.csv", margins)
    draw = np.random.default_rng(1)
    scored = [
        {"sentence1": q, "sentence2": p, "score": round(float(draw.uniform()), 3)}
        for q, p in zip(queries, documents[::-1], strict=True)
    ]
    write_table(path / "scored.csv", scored)
    write_table(path / "texts.jsonl", [{"text": text} for text in documents])
    return path


def flags_of(folder, output_dir, **changed):
    return {
        **FLAGS,
        "do_train": "true",
        "init_checkpoint": folder / "still",
        "train_file": folder / "triplets.csv",
        "num_train_steps": 4,
        "output_dir": folder / output_dir,
        **changed,
    }


def plain_ndcg(model, beir, split):
    """Returns nDCG@10 with one relevant document a query, by NumPy."""
    documents = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    texts = {row["_id"]: row["text"] for row in queries}
    lines = (beir / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]
    pairs = [line.split("\t")[:2] for line in lines]
    vectors = [model.encode_document([row["text"] for row in documents])]
    vectors.append(model.encode_query([texts[query] for query, _ in pairs]))
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    scores = unit[1] @ unit[0].T
    names = [row["_id"] for row in documents]
    own = np.array([names.index(document) for _, document in pairs])
    ranks = (scores > scores[np.arange(len(own)), own][:, None]).sum(axis=1)
    return np.mean(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0))


def test_a_collection_is_judged_without_training(folder):
    given = {
        "do_eval": "true",
        "init_checkpoint": folder / "model",
        "data_dir": folder / "beir",
        "output_dir": folder / "judged",
    }
    assert fine_tune(PROGRAM, "--jit_compile=false", **given) == 0
    results = read_results(folder / "judged")
    names = {"ndcg@10", "recall@100", "mrr@10", "map@100"}
    assert names <= set(results)
    assert results["recall@100"] == 1.0  # of 32 documents all are found
    model = BertEmbedder.from_pretrained(folder / "model")
    expected = plain_ndcg(model, folder / "beir", "test")
    assert results["ndcg@10"] == pytest.approx(expected, abs=1e-6)
    run = trec.read_run(folder / "judged" / "run.trec")
    lines = (folder / "beir/qrels/test.tsv").read_text().splitlines()[1:]
    qrels = {line.split()[0]: {line.split()[1]: 1} for line in lines}
    found = evaluate(run, qrels, ["ndcg@10"])
    assert found["ndcg@10"] == pytest.approx(expected, abs=1e-6)


def evaluated(folder, output_dir, **given):
    """Returns the results of an evaluation of the run `titles`, and what was evaluated."""
    given = {"do_eval": "true", "init_checkpoint": folder / "titles", **given}
    assert fine_tune(PROGRAM, "--jit_compile=false", output_dir=output_dir, **given) == 0
    return (output_dir / "eval_results.txt").read_text().splitlines()[0], read_results(output_dir)


@pytest.mark.slow
def test_an_evaluation_of_other_data_has_nothing_of_the_runs_data(folder, tmp_path):
    """The run has columns, a split and an --eval_file of its own, which has other columns."""
    rows = [{"title": f"the {animal}", "text": "mice"} for animal in ANIMALS]
    given = {
        "train_file": write_table(tmp_path / "titles.jsonl", rows),
        "query_column": "title",
        "positive_column": "text",
        "do_eval": "true",
        "eval_file": folder / "scored.csv",
        "eval_split": "dev",
        "ignore_identical_ids": "true",
        "query_prompt": "what ",
        "num_train_steps": 1,
    }
    assert fine_tune(PROGRAM, **flags_of(folder, "titles", **given)) == 0
    assert "spearman" in read_results(folder / "titles")
    file, results = evaluated(folder, tmp_path / "beir", data_dir=folder / "beir")
    assert "test.tsv" in file
    model = BertEmbedder.from_pretrained(folder / "titles")
    assert model.embedding.prompts == {"query": "what "}  # This is the model's.
    expected = plain_ndcg(model, folder / "beir", "test")
    assert results["ndcg@10"] == pytest.approx(expected, abs=1e-6)
    file, results = evaluated(folder, tmp_path / "pairs", eval_file=folder / "scored.csv")
    assert "scored.csv" in file
    assert results["spearman"] == read_results(folder / "titles")["spearman"]
    again = evaluated(folder, tmp_path / "again")  # Without data: those of the run.
    assert again == (file, results)


@pytest.mark.slow
def test_single_texts_need_dropout(folder):
    given = flags_of(folder, "simcse", train_file=folder / "texts.jsonl", num_train_steps=1)
    message = refuse(PROGRAM, **given)
    assert "texts.jsonl line 1" in message
    assert "--hidden_dropout_prob=0.1" in message
    assert not (folder / "simcse" / "run.flags").exists()
    assert fine_tune(PROGRAM, **given, hidden_dropout_prob=0.1) == 0
    config = json.loads((folder / "simcse" / "bert_config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1
    taught = {"teacher": given["init_checkpoint"], "learn_labels": "false"}
    assert fine_tune(PROGRAM, **{**given, "output_dir": folder / "taught"}, **taught) == 0


@pytest.mark.slow
def test_training_finds_what_belongs_together(folder):
    given = flags_of(
        folder,
        "whole",
        init_checkpoint=folder / "model",
        train_file="",
        data_dir=folder / "beir",
        do_eval="true",
        num_train_steps=40,
        save_checkpoints_steps=15,
        keep_checkpoint_max=9,
        eval_steps=20,
    )
    assert fine_tune(PROGRAM, **given) == 0
    lines = read_metrics(folder / "whole/metrics.jsonl")
    assert lines[-1]["loss"] < lines[0]["loss"] / 4 and lines[-1]["accuracy"] > 0.8
    results = read_results(folder / "whole")
    before = plain_ndcg(BertEmbedder.from_pretrained(folder / "model"), folder / "beir", "test")
    assert results["ndcg@10"] > before + 0.2
    model = BertEmbedder.from_pretrained(folder / "whole")
    assert model.embedding.max_seq_length == 16
    assert plain_ndcg(model, folder / "beir", "test") == pytest.approx(results["ndcg@10"], abs=1e-6)
    assert fine_tune(PROGRAM, **{**given, "do_train": "false"}) == 0


def losses(folder, name, **changed):
    """Returns the losses of a run."""
    assert fine_tune(PROGRAM, **flags_of(folder, name, **changed)) == 0
    return [line["loss"] for line in read_metrics(folder / name / "metrics.jsonl")]


@pytest.mark.slow
def test_losses_do_not_change_with_memory_or_devices(folder):
    # With dropout. Adam's first steps make much of a last digit.
    small = {"learning_rate": 1e-4, "init_checkpoint": folder / "model"}
    expected = losses(folder, "one", gradient_accumulation_steps=1, **small)
    assert len(set(expected)) == 4
    parts = losses(folder, "parts", gradient_accumulation_steps=4, **small)
    assert parts == pytest.approx(expected, rel=1e-5)
    two = {"distribution": "mirrored", "num_devices": 2, "gradient_accumulation_steps": 2}
    assert losses(folder, "two", **two, **small) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_scored_pairs_are_judged_by_correlation(folder, tmp_path):
    stats = pytest.importorskip("scipy.stats")
    given = {
        "do_eval": "true",
        "init_checkpoint": folder / "model",
        "eval_file": folder / "scored.csv",
        "output_dir": tmp_path / "run",
    }
    assert fine_tune(PROGRAM, "--jit_compile=false", **given) == 0
    rows = [line.split(",") for line in (folder / "scored.csv").read_text().splitlines()[1:]]
    model = BertEmbedder.from_pretrained(folder / "model")
    first, second = (model.encode([row[side] for row in rows]) for side in (0, 1))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / norms
    expected = stats.spearmanr(cosines, [float(row[2]) for row in rows])[0]
    assert read_results(tmp_path / "run")["spearman"] == pytest.approx(expected, abs=1e-6)


def test_what_is_wrong_is_said_in_one_line(folder, tmp_path):
    def message(**changed):
        return refuse(PROGRAM, **flags_of(folder, "refused", **changed))

    assert re.search("--train_file.*--data_dir", message(train_file=""))
    assert "extract_features" in message(do_predict="true")
    assert re.search("triplets.csv line 2 .*score.* cosent ", message(retrieval_loss="cosent"))
    found = message(retrieval_loss="triplet", train_file=folder / "scored.csv")
    assert re.search("scored.csv line 2 .*negative.* triplet ", found)
    assert "--max_seq_length=99 " in message(max_seq_length=99)
    assert re.search("--matryoshka_dims: 64 .*32 ", message(matryoshka_dims="64"))
    shutil.copytree(folder / "beir", tmp_path / "beir")
    qrels = tmp_path / "beir" / "qrels" / "train.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nq0\td99\t1\n")
    found = message(train_file="", data_dir=tmp_path / "beir")
    assert "train.tsv line 2" in found and "'d99'" in found
    assert not (folder / "refused").exists() or not list((folder / "refused").glob("model*"))


@pytest.mark.slow
def test_a_run_on_several_sets_resumes_to_the_same_bits(folder):
    files = f"{folder / 'triplets.csv'},{folder / 'scored.csv'}"
    given = {"train_file": files, "retrieval_loss": "triplet,cosent", "train_batch_size": 4}
    given |= {"num_train_steps": 6, "save_checkpoints_steps": 3}
    given = flags_of(folder, "sets", **given)
    assert fine_tune(PROGRAM, **given) == 0
    run = folder / "sets"
    whole = read_checkpoint(run).weights
    for file in run.glob("model.ckpt-6*"):
        file.unlink()
    assert (run / "model.ckpt-3.index").exists()
    (run / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    assert fine_tune(PROGRAM, **given) == 0
    assert (run / "model.ckpt-6.index").exists()
    for name, values in read_checkpoint(run).weights.items():
        np.testing.assert_array_equal(values, whole[name], name)


def test_several_collections_have_results_and_a_mean(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder / "beir", other)
    corpus = other / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace('"the ', '"'))
    given = {
        "do_eval": "true",
        "init_checkpoint": folder / "model",
        "data_dir": f"{folder / 'beir'},{other}",
        "output_dir": tmp_path / "judged",
    }
    assert fine_tune(PROGRAM, "--jit_compile=false", **given) == 0
    results = read_results(tmp_path / "judged")
    model = BertEmbedder.from_pretrained(folder / "model")
    expected = [plain_ndcg(model, one, "test") for one in (folder / "beir", other)]
    assert results["beir_ndcg@10"] == pytest.approx(expected[0], abs=1e-6)
    assert results["other_ndcg@10"] == pytest.approx(expected[1], abs=1e-6)
    assert results["ndcg@10"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert (tmp_path / "judged" / "run.other.trec").exists()


def test_what_is_wrong_with_data_sets_is_said_in_one_line(folder):
    def message(**changed):
        return refuse(PROGRAM, **flags_of(folder, "refused", **changed))

    pairs = folder / "scored.csv"
    both = f"{folder / 'triplets.csv'},{pairs}"
    assert "scored.csv line 2" in message(train_file=both, retrieval_loss="in_batch,triplet")
    assert "--train_file" in message(retrieval_loss="in_batch,triplet")
    assert "--train_file" in message(train_file=both, retrieval_loss="in_batch,triplet,cosent")
    assert "wrong" in message(train_file=both, retrieval_loss="in_batch,wrong")
    assert "denoising" in message(train_file=both, retrieval_loss="in_batch,denoising")
    splade = {"embedding_type": "splade", "init_checkpoint": folder / "model"}
    assert "--mixing" in message(train_file=both, mixing="in_turn", **splade)
    collections = f"{folder / 'beir'},{folder / 'beir'}"
    assert "--data_dir" in message(train_file="", data_dir=collections)


@pytest.mark.slow
def test_sparse_vectors_are_trained_saved_and_searched(folder):
    given = flags_of(
        folder,
        "sparse",
        embedding_type="splade",
        train_file="",
        data_dir=folder / "beir",
        num_train_steps=60,
        train_batch_size=8,
        learning_rate=3e-3,
        query_regularizer=1e-3,
        document_regularizer=1e-3,
        do_eval="true",
    )
    assert fine_tune(PROGRAM, **given) == 0
    before = fine_tune(PROGRAM, **{**given, "do_train": "false", "output_dir": folder / "before"})
    assert before == 0
    results, untrained = read_results(folder / "sparse"), read_results(folder / "before")
    assert results["ndcg@10"] > untrained["ndcg@10"]
    # Another way to the same numbers: the run read as an encoder, dense products.
    encoder = SparseEncoder.from_pretrained(folder / "sparse")
    assert encoder.max_seq_length == int(FLAGS["max_seq_length"])
    # What is recorded is the factor that was used: a run that goes on by it has the same.
    assert "--loss_scale_factor=1.0\n" in (folder / "sparse/run.flags").read_text()
    rows = [json.loads(line) for line in (folder / "beir/corpus.jsonl").read_text().splitlines()]
    documents = encoder.encode([row["text"] for row in rows])
    assert results["pieces_per_document"] == pytest.approx(len(documents.token_ids) / 32, abs=1e-4)
    run = trec.read_run(folder / "sparse" / "run.trec")
    queries = [json.loads(li) for li in (folder / "beir/queries.jsonl").read_text().splitlines()]
    text = {row["_id"]: row["text"] for row in queries}
    for query, found in run.items():
        scores, places = SparseIndex(documents).search(encoder.encode([text[query]]), 32)
        expected = {
            rows[place]["_id"]: score for place, score in zip(*places, *scores, strict=True)
        }
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
def test_texts_are_as_long_as_a_folder_of_sparse_vectors_says(folder, tmp_path):
    """Without --max_seq_length; a second command of the run has the same."""
    given = {
        "init_checkpoint": write_sparse_encoder(tmp_path),
        "embedding_type": "splade",
        "do_train": "true",
        "train_file": folder / "triplets.csv",
        "num_train_steps": 1,
        "train_batch_size": 8,
        "output_dir": tmp_path / "run",
    }
    for _ in range(2):
        assert fine_tune(PROGRAM, "--jit_compile=false", **given) == 0
        assert SparseEncoder.from_pretrained(tmp_path / "run").max_seq_length == 30


def test_flags_of_dense_embeddings_are_refused_with_splade(folder):
    given = flags_of(folder, "refused", embedding_type="splade", query_prompt="query: ")
    assert re.search("splade .*--query_prompt", refuse(PROGRAM, **given))
    given |= {"query_prompt": "", "train_file": folder / "scored.csv"}
    assert "--retrieval_loss=cosent" in refuse(PROGRAM, **given)
    given |= {"train_file": folder / "triplets.csv", "new_head": "true"}
    assert "--new_head" in refuse(PROGRAM, **given)


COLBERT = {"embedding_type": "colbert", "token_dimension": 8, "query_length": 12}


def test_token_vectors_are_trained_saved_and_searched(folder):
    given = flags_of(
        folder,
        "tokens",
        train_file="",
        data_dir=folder / "beir",
        num_train_steps=30,
        train_batch_size=8,
        learning_rate=3e-3,
        do_eval="true",
        **COLBERT,
    )
    assert fine_tune(PROGRAM, **given) == 0
    lines = read_metrics(folder / "tokens/metrics.jsonl")
    assert lines[-1]["loss"] < lines[0]["loss"] / 2
    predictor = bert_tf.load(folder / "tokens")
    given_to_fit = {"token_dimension": 8, "max_seq_length": 16}
    model = bert_tf.BertLateInteraction.from_pretrained(folder / "still", **given_to_fit)
    embedding = dataclasses.replace(model.embedding, tokens=TokenVectors(12, 12))
    assert embedding == read_embedding(folder / "tokens")
    rows = [json.loads(line) for line in (folder / "beir/corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(li) for li in (folder / "beir/queries.jsonl").read_text().splitlines()]
    run = trec.read_run(folder / "tokens" / "run.trec")
    names = [row["_id"] for row in queries if row["_id"] in run]
    texts = [row["text"] for row in queries if row["_id"] in run]
    assert predictor.encode_queries(texts)[0].shape == (12, 8)
    scores = predictor.score(texts, [row["text"] for row in rows])
    for name, expected in zip(names, scores, strict=True):
        found = [run[name][row["_id"]] for row in rows]
        assert found == pytest.approx(expected.tolist(), abs=12 * 2e-3)  # by float16
    # A second training goes on with the layers of the first.
    again = {**given, "init_checkpoint": folder / "tokens", "output_dir": folder / "more"}
    again |= {"num_train_steps": 2, "token_dimension": 128}
    assert fine_tune(PROGRAM, **again) == 0
    assert bert_tf.load(folder / "more").encode_queries(["a"])[0].shape == (12, 8)


@pytest.mark.slow
def test_token_vectors_learn_from_a_teacher(folder):
    given = {"train_file": folder / "margins.csv", **COLBERT}
    # The cross-entropy of a distribution over two documents.
    found = losses(folder, "taught-tokens", retrieval_loss="divergence", **given)
    assert 0 < found[-1] < 3
    given |= {"embedding_type": "dense", "token_dimension": 128, "query_length": 32}
    assert losses(folder, "taught-dense", retrieval_loss="divergence", **given)[-1] < 9
    given = flags_of(folder, "refused", retrieval_loss="divergence", **COLBERT)
    assert re.search(r"triplets.csv line 2 .*divergence", refuse(PROGRAM, **given))
    given |= {"retrieval_loss": "triplet"}
    assert "--retrieval_loss=triplet" in refuse(PROGRAM, **given)
    given = flags_of(folder, "refused", teacher=folder / "model", **COLBERT)
    assert re.search("colbert .*--teacher", refuse(PROGRAM, **given))


@pytest.mark.slow
@pytest.mark.parametrize("unpad", slow_unless(True, [True, False]))
def test_losses_of_tokens_do_not_change_with_memory(folder, unpad):
    small = {"learning_rate": 1e-4, "init_checkpoint": folder / "model", **COLBERT}
    small |= {"jit_compile": str(not unpad).lower()}
    expected = losses(folder, f"tokens-one-{unpad}", gradient_accumulation_steps=1, **small)
    parts = losses(folder, f"tokens-parts-{unpad}", gradient_accumulation_steps=4, **small)
    assert parts == pytest.approx(expected, rel=1e-5) and len(set(expected)) == 4
