"""The retriever on several data sets, and its evaluation on several collections."""

import json
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.tasks.embedding.model import BertEmbedder
from tests.fine_tune import fine_tune, read_results, refuse
from tests.run_retriever_test import PROGRAM, flags_of, plain_ndcg, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("data_sets"))


def weights_of(run):
    return read_checkpoint(run).weights


def test_a_run_on_several_sets_resumes_to_the_same_bits(folder):
    files = f"{folder / 'triplets.csv'},{folder / 'scored.csv'}"
    given = {"train_file": files, "retrieval_loss": "triplet,cosent", "train_batch_size": 4}
    given |= {"num_train_steps": 6, "save_checkpoints_steps": 3, "mixing": "in_turn"}
    assert fine_tune(PROGRAM, **flags_of(folder, "whole", **given)) == 0
    part = flags_of(folder, "parts", **given)
    assert fine_tune(PROGRAM, **part) == 0
    run = folder / "parts"
    for file in run.glob("model.ckpt-6*"):
        file.unlink()
    assert (run / "model.ckpt-3.index").exists()
    (run / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    assert fine_tune(PROGRAM, **part) == 0
    assert (run / "model.ckpt-6.index").exists()
    whole = weights_of(folder / "whole")
    for name, values in weights_of(run).items():
        np.testing.assert_array_equal(values, whole[name], name)


def test_several_collections_have_results_and_a_mean(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder / "beir", other)
    rows = [json.loads(line) for line in (other / "corpus.jsonl").read_text().splitlines()]
    for row in rows:
        row["text"] = row["text"].removeprefix("the ")
    (other / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
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
