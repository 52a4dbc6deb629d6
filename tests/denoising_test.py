"""TSDAE as a user runs it: raw texts in, an embedder out; stopped, judged, converted, refused."""

import json
import os
import re
import subprocess
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.embedding import DECODER, EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.tf_bundle import bundle_names
from bert_tf.network.losses import class_losses
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.tasks.base.programs import sizes
from bert_tf.tasks.embedding import tsdae_noise
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser
from bert_tf.tasks.embedding.tsdae_noise import INPUTS, WHOLE
from bert_tf.tasks.embedding.tsdae_program import DenoisingRetriever
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
        mock.patch.object(sizes, "activation_bytes", wraps=sizes.activation_bytes) as estimate,
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
    assert re.search(r"train: 33 texts \(0 .* 16 tokens, 1 .*\)", whole.log)
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


@pytest.mark.slow
def test_it_learns(folder):
    found = losses(folder, "long", num_train_steps=200, log_steps=10, learning_rate=3e-3)
    assert found[-1] < found[0] / 2


ORACLE = """
import json, sys
import numpy as np, torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.models import Pooling, Transformer

folder, weights, texts, out = sys.argv[1:]
body = Transformer(folder, max_seq_length=16)
model = SentenceTransformer(modules=[body, Pooling(32, pooling_mode="cls")], device="cpu")
loss = DenoisingAutoEncoderLoss(model).eval()
weights = np.load(weights)
for index, layer in enumerate(loss.decoder.bert.encoder.layer):
    cross, start = layer.crossattention, f"cross_{index}/"
    linears = {"value": cross.self.value, "output/dense": cross.output.dense}
    with torch.no_grad():
        for name, linear in linears.items():
            linear.weight.copy_(torch.tensor(weights[f"{start}{name}/kernel"].T))
            linear.bias.copy_(torch.tensor(weights[f"{start}{name}/bias"]))
sides = []
for side in json.loads(texts):
    tokens = body.tokenizer(side, padding=True, return_tensors="pt")
    sides.append(dict(tokens))
value = loss(sides, None)
value.backward()
layers = model[0].model if hasattr(model[0], "model") else model[0].auto_model
tied = loss.decoder.bert.encoder.layer[1].intermediate.dense.weight
assert tied is layers.encoder.layer[1].intermediate.dense.weight
found = {
    "loss": value.detach(),
    "bert/embeddings/word_embeddings": layers.embeddings.word_embeddings.weight.grad,
    "bert/encoder/layer_0/attention/self/value/kernel": layers.encoder.layer[0].attention.self.value.weight.grad.T,
    "bert/encoder/layer_1/intermediate/dense/kernel": tied.grad.T,
    "denoiser/cross_1/value/kernel": loss.decoder.bert.encoder.layer[1].crossattention.self.value.weight.grad.T,
    "denoiser/predictions/transform/dense/kernel": loss.decoder.cls.predictions.transform.dense.weight.grad.T,
}
np.savez(out, **{name: np.asarray(value) for name, value in found.items()})
"""  # noqa: E501


@pytest.mark.slow
def test_loss_and_gradients_are_those_of_sentence_transformers(folder, tmp_path):
    """Runs where SENTENCE_TRANSFORMERS_PYTHON names a Python that has the library."""
    python = os.environ.get("SENTENCE_TRANSFORMERS_PYTHON")
    if not python:
        pytest.skip("set SENTENCE_TRANSFORMERS_PYTHON to a Python with sentence-transformers")
    checkpoint = read_checkpoint(folder / "still")
    write_checkpoint(checkpoint, tmp_path / "theirs", "huggingface")
    keras.utils.set_random_seed(3)
    embedding = EmbeddingConfig(("cls",), max_seq_length=16)
    model = BertDenoiser(checkpoint.config, embedding, vocab=checkpoint.vocab, unpad=True)
    variables = checkpoint_variables(model)
    for name, variable in variables.items():
        head = name.replace(DECODER, "cls/")
        if head in checkpoint.weights:
            variable.assign(checkpoint.weights[head])
    new = {n.removeprefix(DECODER): np.asarray(v) for n, v in variables.items() if "/cross_" in n}
    np.savez(tmp_path / "new.npz", **new)
    texts = (
        ["the owl mice", "in morning", "bee"],
        ["the owl eats mice in the morning", "in the morning", "the bee eats honey"],
    )
    (tmp_path / "oracle.py").write_text(ORACLE)
    command = [python, "oracle.py", "theirs", "new.npz", json.dumps(texts), "out.npz"]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})
    expected = np.load(tmp_path / "out.npz")
    batch = {}
    for start, side in zip(("", WHOLE), texts, strict=True):
        rows = [model.pack(text).ids for text in side]
        length = max(map(len, rows))
        ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int32)
        values = ids, (ids > 0).astype(np.int32), np.zeros_like(ids)
        batch |= {start + n: tf.constant(v) for n, v in zip(INPUTS, values, strict=True)}
    with tf.GradientTape() as tape:
        found = model(batch, training=True, dropout_seed=tf.constant(0))
        loss = tf.reduce_mean(class_losses(found["logits"], found["labels"]))
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-5)
    names = [name for name in expected.files if name != "loss"]
    slopes = tape.gradient(loss, [variables[name].value for name in names])
    for name, slope in zip(names, slopes, strict=True):
        largest = np.abs(expected[name]).max()
        own = tf.convert_to_tensor(slope).numpy()
        assert largest > 1e-6
        np.testing.assert_allclose(own, expected[name], atol=1e-4 * largest, err_msg=name)
