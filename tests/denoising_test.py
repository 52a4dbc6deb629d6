"""TSDAE as a user runs it: raw texts in, an embedder out; stopped, judged, converted, refused."""

import re
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from bert_tf.checkpoints.embedding import DECODER
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tf_bundle import bundle_names
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.tasks.base.programs import defaults
from bert_tf.tasks.embedding import tsdae_noise
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.program import DenoisingRetriever
from bert_tf.training.metrics_log import read_metrics
from tests.fine_tune import FLAGS, fine_tune, read_results, refuse, write_table
from tests.tiny_model import write_tiny_model

PROGRAM = "run_retriever"
ANIMALS = ("cat", "dog", "cow", "owl", "bee", "ant", "fox", "hen")
FOODS = ("grass", "mice", "honey", "seeds")
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("denoised"))


def write_files(path):
    """Writes a model, one without dropout, 33 texts, and scored pairs into a folder."""
    words = ("the", "eats", "in", "morning", *ANIMALS, *FOODS)
    write_tiny_model(path / "model", *words, num_hidden_layers=2)
    write_tiny_model(path / "still", *words, num_hidden_layers=2, **STILL)
    texts = [f"the {animal} eats {food} in the morning" for animal in ANIMALS for food in FOODS]
    (path / "texts.txt").write_text("\n".join([*texts, "", "owl"]) + "\n")
    draw = np.random.default_rng(1)
    rows = [
        {"sentence1": one, "sentence2": other, "score": round(float(draw.uniform()), 3)}
        for one, other in zip(texts, texts[::-1], strict=True)
    ]
    write_table(path / "scored.csv", rows)
    return path


def flags_of(folder, output_dir, **changed):
    return {
        **FLAGS,
        "do_train": "true",
        "init_checkpoint": folder / "model",
        "train_file": folder / "texts.txt",
        "retrieval_loss": "denoising",
        "embedding_pooling": "cls",
        "num_train_steps": 6,
        "output_dir": folder / output_dir,
        **changed,
    }


class Whole(NamedTuple):
    given: dict[str, Any]  # flags
    start: dict[str, np.ndarray]  # weights before the first step
    log: str
    predictions: list[int]  # that memory was estimated for


@pytest.fixture(scope="module")
def whole(folder):
    """A run of six steps, more than an epoch, evaluated at its end."""
    start, load, lines = {}, DenoisingRetriever.load_initial_weights, []

    def load_initial_weights(self, model, *arguments):
        load(self, model, *arguments)
        start.update({n: v.numpy() for n, v in checkpoint_variables(model).items()})

    given = flags_of(
        folder,
        "whole",
        do_eval="true",
        eval_file=folder / "scored.csv",
        save_checkpoints_steps=3,
        keep_checkpoint_max=9,
    )
    with (
        mock.patch.object(DenoisingRetriever, "load_initial_weights", load_initial_weights),
        mock.patch.object(tsdae_noise.logging, "info", lambda *a: lines.append(a)),
        mock.patch.object(
            defaults, "activation_bytes", wraps=defaults.activation_bytes
        ) as estimate,
    ):
        assert fine_tune(PROGRAM, **given) == 0
    log = "\n".join(line[0] % line[1:] for line in lines)
    return Whole(given, start, log, [call.args[2] for call in estimate.call_args_list])


@pytest.mark.slow
def test_the_folder_is_judged_and_converted_without_its_decoder(folder, whole, tmp_path):
    assert fine_tune(PROGRAM, **{**whole.given, "do_train": "false"}) == 0
    results = read_results(folder / "whole")
    elsewhere = {
        "do_eval": "true",
        "init_checkpoint": folder / "whole",
        "eval_file": folder / "scored.csv",
        "output_dir": tmp_path / "judged",
    }
    assert fine_tune(PROGRAM, "--jit_compile=false", **elsewhere) == 0
    found = read_results(tmp_path / "judged")
    assert found["spearman"] == pytest.approx(results["spearman"], abs=1e-6)
    checkpoint = read_checkpoint(folder / "whole")
    checkpoint.check()
    assert not checkpoint.heads and checkpoint.embedding.pooling == ("cls",)
    assert all(name.startswith("bert/") for name in checkpoint.weights)
    write_checkpoint(checkpoint, tmp_path / "ours", "bert_tf")
    assert not [n for n in bundle_names(str(tmp_path / "ours/bert_model.ckpt")) if DECODER in n]
    write_checkpoint(checkpoint, tmp_path / "theirs", "sentence_transformers")
    models = [BertEmbedder.from_pretrained(p) for p in (folder / "whole", tmp_path / "theirs")]
    vectors = [model.encode(["the owl eats mice"]) for model in models]
    np.testing.assert_array_equal(*vectors)


@pytest.mark.slow
def test_the_head_comes_from_the_checkpoint_and_the_decoder_is_new(folder, whole):
    values, start = whole.start, read_checkpoint(folder / "model").weights
    named = [name for name in start if name.startswith("cls/predictions/")]
    assert len(named) == 5
    for name in named:
        np.testing.assert_array_equal(values[name.replace("cls/", DECODER)], start[name])
    assert not [name for name in values if name.startswith("cls/")]
    kernel = values[f"{DECODER}cross_1/value/kernel"]
    assert 0.01 < kernel.std() < 0.03  # initializer_range is .02
    assert re.search(r"train: 33 texts \(1 ", whole.log)  # The text of one word.
    assert whole.predictions == [0, 15]  # The scores of the vocabulary are most of the memory.


def test_what_is_wrong_is_said_in_one_line(folder, tmp_path):
    def message(**changed):
        return refuse(PROGRAM, **flags_of(folder, "refused", **changed))

    assert re.search("denoising .*--embedding_type.*splade", message(embedding_type="splade"))
    assert re.search("denoising .*--matryoshka_dims=8", message(matryoshka_dims="8"))
    assert "--teacher" in message(teacher=folder / "model")
    found = message(train_file=folder / "scored.csv")
    assert re.search("scored.csv line 2 .*label .*--retrieval_loss=denoising", found)
    found = message(train_file="", data_dir=tmp_path)
    assert "corpus.jsonl" in found
    assert "--pack_rows" in message(pack_rows="true")
    scratch = {"init_checkpoint": "", "vocab_file": folder / "model/vocab.txt"}
    (tmp_path / "texts.txt").write_text("a text\n")
    scratch |= {"block_type": "pre_norm", "train_file": tmp_path / "texts.txt"}
    assert re.search("block_type .*pre_norm.* post_norm", message(**scratch))
    assert not list((folder).glob("refused/model*"))


def losses(folder, name, **changed):
    assert fine_tune(PROGRAM, **flags_of(folder, name, **changed)) == 0
    return [line["loss"] for line in read_metrics(folder / name / "metrics.jsonl")]


@pytest.mark.slow
def test_losses_do_not_change_with_memory_devices_or_compiler(folder):
    few = {"learning_rate": 1e-4, "num_train_steps": 4, "init_checkpoint": folder / "still"}
    expected = losses(folder, "one", gradient_accumulation_steps=1, **few)
    assert len(set(expected)) == 4
    changes = {
        "parts": {"gradient_accumulation_steps": 4},
        "two": {
            "distribution": "mirrored",
            "num_devices": 2,
            "gradient_accumulation_steps": 2,
        },
        "xla": {"jit_compile": "true"},
        "recompute": {"recompute": "true"},
    }
    for name, changed in changes.items():
        assert losses(folder, name, **few, **changed) == pytest.approx(expected, rel=1e-5), name
