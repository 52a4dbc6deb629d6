"""Modules of sentence-transformers: cross-encoders made of them, and unknown modules refused."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.sentence_modules import read_modules
from bert_tf.tasks.embedding.model import BertEmbedder
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.fine_tune import read_tsv
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import fail, finish, run
from tests.slow_variants import slow_unless

TYPES = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "Dense": "base.modules.dense",
    "LayerNorm": "sentence_transformer.modules.layer_norm",
    "Normalize": "base.modules.normalize",
    "Dropout": "sentence_transformer.modules.dropout",
}
ACTIVATIONS = {
    "linear.Identity": lambda x: x,
    "activation.GELU": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "activation.ReLU": lambda x: np.maximum(x, 0),
    "activation.Tanh": np.tanh,
    "activation.SiLU": lambda x: x / (1 + np.exp(-x)),
    "activation.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
PAIRS = [("a b the", "river don"), ("x", "y ##a river river"), ("river", "a " * 30)]
SHAPE = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 20,
    "do_lower_case": True,
    "type_vocab_size": 2,
    "hidden_act": "gelu_exact",
}
MODERN = {
    "type_vocab_size": 0,
    "position_type": "rotary",
    "block_type": "pre_norm",
    "gated_feed_forward": True,
    "biases": "none",
    "head_transform": True,
    "classifier_pooling": "cls",
}


def write_json(path: pathlib.Path, values: object) -> None:
    path.write_text(json.dumps(values))


def make_dense(folder, rng, size: int, is_last: bool, width, act, has_bias, adds_input=False):
    """Writes a Dense module; returns what it computes, and the size of its outputs."""
    kernel = rng.normal(0, 0.5, [width, size]).astype(np.float32)
    bias = rng.normal(0, 0.5, [width]).astype(np.float32) * has_bias
    weights = {"linear.weight": kernel, **({"linear.bias": bias} if has_bias else {})}
    config = {
        "in_features": size,
        "out_features": width,
        "bias": has_bias,
        "activation_function": f"torch.nn.modules.{act}",
        "module_input_name": "sentence_embedding",
        "module_output_name": "scores" if is_last else "sentence_embedding",
    }
    added = np.zeros([width, size], np.float32)
    if adds_input:
        config["use_residual"] = True
        added = np.eye(size, dtype=np.float32)
    if adds_input and width != size:
        added = rng.normal(0, 0.5, [width, size]).astype(np.float32)
        weights["residual.weight"] = added
    write_json(folder / "config.json", config)
    safetensors.numpy.save_file(weights, folder / "model.safetensors")

    def compute(x: np.ndarray) -> np.ndarray:
        return ACTIVATIONS[act](x.astype(float) @ kernel.T + bias) + x @ added.T

    return compute, width


def make_layer_norm(folder, rng, size: int):
    gamma, beta = rng.normal(0, 1, [2, size]).astype(np.float32)
    write_json(folder / "config.json", {"dimension": size})
    weights = {"norm.weight": gamma, "norm.bias": beta}
    safetensors.numpy.save_file(weights, folder / "model.safetensors")

    def compute(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gamma + beta

    return compute


def write_settings(folder: pathlib.Path, names: list[tuple[str, str]], activation: str) -> None:
    """Writes what stands beside the modules, whose classes and folders `names` has."""
    modules = []
    for index, (kind, path) in enumerate(names):
        module = f"sentence_transformers.{TYPES[kind]}.{kind}"
        modules.append({"idx": index, "name": str(index), "path": path, "type": module})
    write_json(folder / "modules.json", modules)
    values = {"model_type": "CrossEncoder", "activation_fn": f"torch.nn.modules.{activation}"}
    values |= {"prompts": {}, "default_prompt_name": None}
    write_json(folder / "config_sentence_transformers.json", values)
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    values = {"transformer_task": "feature-extraction", "modality_config": {"text": text}}
    values["module_output_name"] = "token_embeddings"
    write_json(folder / "sentence_bert_config.json", values)
    path = folder / "tokenizer_config.json"
    write_json(path, {**json.loads(path.read_text()), "model_max_length": 16})


def pool(encoder, row, poolings: list[str]) -> np.ndarray:
    """Returns the pooled vectors of a packed pair, one after the other: float64 [D]."""
    assert len(row.ids) <= 16
    inputs = {
        "input_word_ids": np.array([row.ids], np.int32),
        "input_mask": np.ones([1, len(row.ids)], np.int32),
        "input_type_ids": np.array([row.type_ids], np.int32),
    }
    tokens = np.asarray(encoder(inputs)["sequence_output"])[0].astype(float)
    vectors = {"cls": tokens[0], "mean": tokens.mean(0), "max": tokens.max(0)}
    vectors["lasttoken"] = tokens[-1]
    return np.concatenate([vectors[name] for name in poolings])


def make_folder(
    folder: pathlib.Path,
    poolings: list[str],
    layers: list[tuple],
    activation: str = "activation.Sigmoid",
    num_labels: int = 1,
    scores: str = "linear.Identity",
    **changes,
):
    """Writes a cross-encoder as release 6.2 does; returns what computes its logits in NumPy.

    A layer is ("Dense", size, activation, has bias, perhaps adds its input), ("LayerNorm",),
    ("Normalize",) or ("Dropout",); a Dense that makes the scores comes last.
    """
    rng = np.random.default_rng(7)
    made = make_checkpoint("encoder", 7, **{**SHAPE, **changes})
    embedder = EmbeddingConfig(max_seq_length=16)
    made_embedder = dataclasses.replace(made, embedding=embedder)
    write_checkpoint(made_embedder, folder, "sentence_transformers")
    names = [("Transformer", ""), ("Pooling", "1_Pooling")]
    size = 8
    pooling = {"embedding_dimension": size, "include_prompt": True}
    pooling["pooling_mode"] = poolings[0] if len(poolings) == 1 else poolings
    write_json(folder / "1_Pooling" / "config.json", pooling)
    size *= len(poolings)
    functions = []
    for kind, *fields in [*layers, ("Dense", num_labels, scores, True)]:
        is_last = len(names) == len(layers) + 2
        inner = folder / f"{len(names)}_{kind}"
        inner.mkdir()
        names.append((kind, inner.name))
        if kind == "Dense":
            function, size = make_dense(inner, rng, size, is_last, *fields)
            functions.append(function)
        elif kind == "LayerNorm":
            functions.append(make_layer_norm(inner, rng, size))
        else:
            write_json(inner / "config.json", {"dropout": 0.3} if kind == "Dropout" else {})
        if kind == "Normalize":
            functions.append(lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True))
    write_settings(folder, names, activation)
    encoder = BertEmbedder.from_checkpoint(made).bert

    def logits(pairs: list[tuple[str, str]], pack) -> np.ndarray:
        rows = []
        for query, document in pairs:
            vector = pool(encoder, pack(query, document), poolings)
            for function in functions:
                vector = function(vector)
            rows.append(vector)
        return np.array(rows)

    return logits


GELU = ("Dense", 8, "activation.GELU", False)
HEADS = [
    (["cls"], [GELU, ("LayerNorm",)], "activation.Sigmoid", {}),
    (["mean"], [], "linear.Identity", {}),
    (["mean"], [("Dense", 5, "activation.Tanh", True)], "activation.Sigmoid", {}),
    (["cls"], [("LayerNorm",), ("Dropout",)], "linear.Identity", {}),
    (["cls"], [GELU, ("LayerNorm",)], "linear.Identity", MODERN),
    (["mean"], [("Dense", 8, "activation.ReLU", True)], "activation.Sigmoid", MODERN),
    (
        ["cls", "mean"],
        [("Normalize",), ("Dense", 3, "activation.SiLU", True)],
        "linear.Identity",
        {},
    ),
    (
        ["cls"],
        [("Dense", 8, "activation.GELU", True, True), ("Dense", 5, "activation.Tanh", False, True)],
        "linear.Identity",
        {},
    ),
]

# BERT's and ModernBERT's blocks, and what adds its input, in the fast run.
FAST_HEADS = [
    head if index in (0, 4, 7) else pytest.param(*head, marks=pytest.mark.slow)
    for index, head in enumerate(HEADS)
]


@pytest.mark.parametrize(("poolings", "layers", "activation", "changes"), FAST_HEADS)
def test_cross_encoders_of_modules(tmp_path, poolings, layers, activation, changes):
    logits = make_folder(tmp_path / "ce", poolings, layers, activation, **changes)
    loaded = bert_tf.load(tmp_path / "ce")
    assert loaded.kind == "reranker"
    reranker = bert_tf.BertReranker.from_pretrained(tmp_path / "ce")
    expected = logits(PAIRS, reranker.pack)[:, 0]
    found = reranker.pair_logits(*zip(*PAIRS, strict=True), 32)
    assert_close(found, expected, OTHER_FRAMEWORK, scale=4)
    scores = expected if activation == "linear.Identity" else 1 / (1 + np.exp(-expected))
    assert_close(np.array(loaded.score(PAIRS)), scores, OTHER_FRAMEWORK, scale=4)
    reranker.save_pretrained(tmp_path / "again")
    kinds = [module.kind for module in read_modules(tmp_path / "again")]
    written = [layer[0] for layer in layers if layer[0] != "Dropout"]
    assert kinds == ["Transformer", "Pooling", *written, "Dense"]
    again = bert_tf.BertReranker.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(again.pair_logits(*zip(*PAIRS, strict=True), 32), found)
    assert (again.activation, again.max_seq_length) == (reranker.activation, 16)


def test_several_labels(tmp_path):
    logits = make_folder(tmp_path / "ce", ["lasttoken"], [], num_labels=3)
    model = bert_tf.BertClassifier.from_pretrained(tmp_path / "ce")
    assert model.problem_type == "multi_label" and model.pair
    scorer = bert_tf.BertReranker.from_pretrained(tmp_path / "ce", new_head=True)
    expected = logits(PAIRS, scorer.pack)
    found = model.predict(([a for a, _ in PAIRS], [b for _, b in PAIRS]))
    assert_close(np.asarray(found), expected, OTHER_FRAMEWORK, scale=4)


def run_program(folder: pathlib.Path, output: pathlib.Path, **values) -> tuple[list, list]:
    """Runs run_reranker from a folder; returns the pairs of its predictions and their scores."""
    rows = output.with_suffix(".jsonl")
    groups = [{"query": a, "positive": b, "negatives": ["river y"]} for a, b in PAIRS]
    rows.write_text("".join(json.dumps(group) + "\n" for group in groups))
    files = {"predict_file": rows, "output_dir": output, "init_checkpoint": folder}
    options = {"do_predict": "true", "jit_compile": "false", **files, **values}
    finish(run("run_reranker", **options))
    found = read_tsv(output / "predictions.tsv")
    return [(row["query"], row["document"]) for row in found], [float(r["score"]) for r in found]


@pytest.mark.parametrize("changes", slow_unless({}, [{}, MODERN]))
def test_the_program_scores_without_training(tmp_path, changes):
    """Pairs are cut where the folder states it: 16 tokens, of 20 positions."""
    logits = make_folder(tmp_path / "ce", ["cls"], [GELU, ("LayerNorm",)], **changes)
    pairs, scores = run_program(tmp_path / "ce", tmp_path / "run")
    assert {pair[0] for pair in pairs} == {pair[0] for pair in PAIRS}
    pack = bert_tf.BertReranker.from_pretrained(tmp_path / "ce").pack
    np.testing.assert_allclose(scores, logits(pairs, pack)[:, 0], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_litert_file_scores_as_the_model(tmp_path):
    make_folder(tmp_path / "ce", ["cls"], [GELU, ("LayerNorm",)])
    lite = {"output_file": tmp_path / "x.tflite", "no_gate": "true", "quantize": "none"}
    finish(run("export.tflite", model_dir=tmp_path / "ce", **lite))
    expected = bert_tf.BertReranker.from_pretrained(tmp_path / "ce").score(PAIRS)
    assert_close(bert_tf.load(tmp_path / "x.tflite").score(PAIRS), expected)


def test_the_program_refuses_several_labels(tmp_path):
    make_folder(tmp_path / "three", ["cls"], [], num_labels=3)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"query": "a", "positive": "b", "negatives": ["x"]}))
    files = {"init_checkpoint": tmp_path / "three", "output_dir": tmp_path / "run"}
    printed = fail(run("run_reranker", predict_file=rows, do_predict="true", **files))
    assert "3 labels" in printed and not (tmp_path / "run" / "predictions.tsv").exists()


@pytest.mark.parametrize("kind", ["LSTM", "Router", "WeightedLayerPooling"])
@pytest.mark.parametrize("place", [1, 3])
def test_unknown_modules_are_named(tmp_path, kind, place):
    make_folder(tmp_path / "ce", ["cls"], [])
    path = tmp_path / "ce" / "modules.json"
    modules = json.loads(path.read_text())
    modules.insert(place, {"path": "x", "type": f"sentence_transformers.models.{kind}"})
    write_json(path, [{**module, "idx": index} for index, module in enumerate(modules)])
    with pytest.raises(ValueError, match=f"modules.json .*{kind}"):
        read_checkpoint(tmp_path / "ce")


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("1_Pooling/config.json", {"attention_pooling": True}),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "middle"]}),
        ("1_Pooling/config.json", {"pooling_mode": "attention"}),
        ("2_Dense/config.json", {"use_residual": True}),
        ("2_Dense/config.json", {"gated": True}),
        ("2_Dense/config.json", {"module_output_name": "sentence_embedding"}),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Mish"}),
        ("sentence_bert_config.json", {"query_length": 4}),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 9}}}),
        ("sentence_bert_config.json", {"module_output_name": "sentence_embedding"}),
        ("config_sentence_transformers.json", {"truncate_dim": 4}),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}),
        ("config_sentence_transformers.json", {"model_type": "Reranker"}),
    ],
)
def test_unknown_settings_are_named(tmp_path, file, values):
    make_folder(tmp_path / "ce", ["cls"], [])
    path = tmp_path / "ce" / file
    write_json(path, {**json.loads(path.read_text()), **values})
    (key,) = values
    with pytest.raises(ValueError, match=f"{path.name}: .*{key}"):
        read_checkpoint(tmp_path / "ce")


def test_an_embedder_with_a_layer_norm(tmp_path):
    """LayerNorm and Normalize in the middle are layers; Normalize at the end is the embedder's."""
    layers = [("Normalize",), ("LayerNorm",)]
    logits = make_folder(tmp_path / "st", ["mean"], layers, num_labels=8)
    path = tmp_path / "st" / "4_Dense" / "config.json"
    write_json(path, {**json.loads(path.read_text()), "module_output_name": None})
    write_json(tmp_path / "st" / "config_sentence_transformers.json", {})
    model = BertEmbedder.from_pretrained(tmp_path / "st")
    texts = ["a b the river", "x"]
    expected = logits([(text, "") for text in texts], lambda text, _: model.pack(text))
    assert_close(model.encode(texts), expected, OTHER_FRAMEWORK)
    model.save_pretrained(tmp_path / "again")
    again = BertEmbedder.from_pretrained(tmp_path / "again")
    assert again.embedding == model.embedding
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))


@pytest.mark.needs("torch", "transformers", "sentence_transformers")
@pytest.mark.parametrize(("poolings", "layers", "activation", "changes"), HEADS)
def test_the_library_scores_the_same(tmp_path, poolings, layers, activation, changes):
    import sentence_transformers

    make_folder(tmp_path / "ce", poolings, layers, activation, **changes)
    model = bert_tf.BertReranker.from_pretrained(tmp_path / "ce")
    model.save_pretrained(tmp_path / "again")
    for folder in ("ce", "again"):
        library = sentence_transformers.CrossEncoder(str(tmp_path / folder), device="cpu")
        assert_close(np.array(model.score(PAIRS)), library.predict(PAIRS), OTHER_FRAMEWORK, scale=4)
