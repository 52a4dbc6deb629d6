"""ONNX files of every family and head equal the Keras model, by ONNX Runtime and by OpenVINO."""

import dataclasses
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.inference import serving_models
from bert_tf.inference.serving_models import TrainedModel, make_serving
from bert_tf.system.files import read_json, write_json
from bert_tf.tasks.base.serving.model import IDS, Serving, function_of_ids
from bert_tf.tasks.base.serving.onnx_model import INPUT_NAMES, OnnxModel
from bert_tf.text.packing import INPUTS
from tests.checkpoints.made_checkpoint import make_vocab
from tests.export.made_models import TEXTS, write_model
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import ROOT, golden_file, shared_data
from tests.slow_variants import slow_unless

pytestmark = pytest.mark.needs("onnx", "onnxruntime")

FAMILIES = """
albert/masked_lm albert/sequence_classification camembert/masked_lm deberta_v2/masked_lm
deberta_v2/question_answering deberta_v2/sequence_classification deberta_v2/token_classification
distilbert/masked_lm electra/discriminator electra/generator electra/sequence_classification
mmbert/masked_lm modernbert/masked_lm modernbert/sequence_classification_cls
modernbert/sequence_classification_mean modernbert/token_classification
modular_cross_encoder/bert_cls modular_cross_encoder/modernbert_mean mpnet/masked_lm mpnet/sentence
mpnet/sequence_classification positions/roformer_masked_lm roberta/masked_lm
roberta/question_answering sentence_transformers/cls sentence_transformers/cross_encoder
sentence_transformers/mean_dense_tanh xlm_roberta/masked_lm xlnet/lm_head
xlnet/question_answering_simple xlnet/sequence_classification zero_shot/model
colbert/pylate colbert/st6
""".split()
KINDS = ("classifier", "tagger", "question_answering", "fill_mask", "next_sentence", "splade")
KINDS = (*KINDS, "embeddings", "encoder", "reranker", "regression", "multi_label")
POSITIONS = ("alibi", "sinusoidal", "relative", "rotary", "learned_disentangled")
# The sizes of outputs with an axis of the tokens' length, whose padding is undefined.
OF_TOKENS = ("last_hidden_state", "logits", "start_logits", "end_logits")


def make_model(serving: Serving) -> bytes:
    from bert_tf.inference.onnx.tracing import make_model

    return make_model(serving).SerializeToString()


def expected_outputs(serving: Serving, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from bert_tf.inference.onnx.tracing import find_outputs

    run = function_of_ids(lambda columns: find_outputs(serving)(serving, columns))
    outputs = run(*(tf.constant(batch[name]) for name in IDS))
    return {name: value.numpy() for name, value in outputs.items()}


def run_onnxruntime(content: bytes):
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda batch: dict(zip(names, session.run(names, batch), strict=True))


def run_openvino(content: bytes):
    import openvino

    core = openvino.Core()
    # OpenVINO computes in bfloat16 where the processor can.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = core.compile_model(core.read_model(content), "CPU", exact)

    names = {name for one in model.inputs for name in one.names}

    def run(batch):
        outputs = model({name: array for name, array in batch.items() if name in names})
        return {name: outputs[one] for one in model.outputs for name in one.names}

    return run


def runtimes() -> list:
    has_openvino = importlib.util.find_spec("openvino") is not None
    return [run_onnxruntime, *[run_openvino] * has_openvino]


def random_batch(serving: Serving, num_rows: int, length: int) -> dict[str, np.ndarray]:
    """Draws rows of up to `length` tokens, padded where the tokenizer of the model pads."""
    config = serving.model.config
    rng = np.random.default_rng(num_rows * 1000 + length)
    ids = rng.integers(0, config.vocab_size, (num_rows, length))
    ids[:, length // 2] = serving.vocab.mask_id
    mask = np.ones_like(ids)
    for row in range(1, num_rows):
        num_padded = length - int(rng.integers(1, length + 1))
        columns = slice(0, num_padded)
        if config.pooled_token == "first":
            columns = slice(length - num_padded, length)
        mask[row, columns] = 0
        ids[row, columns] = serving.vocab.pad_id
    types = rng.integers(0, max(1, min(2, config.type_vocab_size)), ids.shape)
    arrays = (ids, mask, types)
    return {name: one.astype(np.int32) for name, one in zip(INPUTS, arrays, strict=True)}


def check_runtimes(serving: Serving, sizes=((1, 3), (7, 17))) -> None:
    """Checks that all runtimes compute the outputs of the Keras model."""
    batches = [random_batch(serving, *size) for size in sizes]
    expected = [expected_outputs(serving, batch) for batch in batches]
    content = make_model(serving)
    for make in runtimes():
        run = make(content)
        for batch, outputs in zip(batches, expected, strict=True):
            given = {}
            for name, column in zip(INPUT_NAMES, INPUTS, strict=True):
                given[name] = batch[column].astype(np.int64)
            found = run(given)
            assert found.keys() >= outputs.keys()  # OpenVINO adds names of inner results.
            is_real = batch["input_mask"] == 1
            if serving.kind == "fill_mask" and serving.model.config.query_vector:
                # Its logits are those of masked tokens.
                is_real = batch["input_word_ids"] == serving.vocab.mask_id
            for name, values in outputs.items():
                assert found[name].shape == values.shape and found[name].dtype == values.dtype
                is_padded = name in OF_TOKENS and values.shape[:2] == is_real.shape
                kept = is_real if is_padded else ...
                assert_close(found[name][kept], values[kept], OTHER_FRAMEWORK, err_msg=name)


def family_serving(name: str) -> Serving:
    """Returns the serving functions of a golden; with a made vocabulary if it has none."""
    find = functools.partial(golden_file, "families")
    if name.split("/")[0] in ("colbert", "modular_cross_encoder"):
        find = functools.partial(shared_data, "fixtures", "families")
    folder = find(*name.split("/"))
    side = {"side": "query"} if name == "colbert/st6" else {}
    try:
        return serving_models.load(str(folder), unpad=False, **side)
    except ValueError:
        network = "generator" if name == "electra/generator" else ""
        made = read_checkpoint(folder, electra_network=network)
    vocab = make_vocab(made.config.vocab_size, True)
    made = dataclasses.replace(made, vocab=vocab)
    kind = serving_models.find_kind(made, str(folder))
    return make_serving(TrainedModel(made, kind, str(folder)), unpad=False)


@pytest.mark.parametrize("name", slow_unless("modernbert/sequence_classification_mean", FAMILIES))
def test_families(name):
    serving = family_serving(name)
    longest = min(serving.model.config.longest_row, 600)
    check_runtimes(serving, [(1, 3), (7, 1), (7, min(128, longest)), (1, longest)])


@pytest.mark.parametrize("kind", slow_unless("question_answering", KINDS))
def test_kinds(tmp_path, kind):
    folder = write_model(tmp_path / "model", kind)
    check_runtimes(serving_models.load(str(folder), kind, unpad=False))


@pytest.mark.slow
@pytest.mark.parametrize("position_type", POSITIONS)
def test_positions(tmp_path, position_type):
    changes = {"position_type": position_type, "num_hidden_layers": 2, "local_attention": 4}
    if "disentangled" in position_type:
        changes = {"position_type": position_type, "biases": "all"}
    folder = write_model(tmp_path / "model", "encoder", **changes)
    check_runtimes(serving_models.load(str(folder), "encoder", unpad=False), [(1, 3), (7, 40)])


@pytest.mark.slow
@pytest.mark.parametrize("act", ["gelu_tanh", "relu", "silu", "linear"])
def test_activations(tmp_path, act):
    folder = write_model(tmp_path / "model", "encoder", hidden_act=act)
    check_runtimes(serving_models.load(str(folder), "encoder", unpad=False))


@pytest.mark.slow
def test_sparse_vectors_are_those_of_the_search(tmp_path):
    from bert_tf.search.splade import SparseEncoder

    folder = write_model(tmp_path / "model", "splade")
    serving = serving_models.load(str(folder), "splade", unpad=False)
    texts = ["the river a b c", "w40 w41", ""]
    vectors = SparseEncoder.from_pretrained(folder).encode(texts)
    batch = {name: value.numpy() for name, value in serving.pack(tf.constant(texts)).items()}
    given = zip(INPUT_NAMES, INPUTS, strict=True)
    inputs = {name: batch[column].astype(np.int64) for name, column in given}
    found = run_onnxruntime(make_model(serving))(inputs)["sentence_embedding"]
    for index, row in enumerate(found):
        token_ids, weights = vectors.row(index)
        expected = np.zeros_like(row)
        expected[token_ids] = weights
        assert_close(row, expected, OTHER_FRAMEWORK)
    assert np.count_nonzero(found) > 10


# Operations --------------------------------------------------------------------------------------

CUTS = [
    lambda x, n: x[:, 1],
    lambda x, n: x[..., -1],
    lambda x, n: x[:, tf.newaxis, 1:-1, ..., tf.newaxis],
    lambda x, n: x[::-1, ::2],
    lambda x, n: x[..., n, :],
    lambda x, n: x[:n, :, n:],
    lambda x, n: x[1:, n : n + 1, ..., tf.newaxis, 0],
    lambda x, n: tf.pad(x, [[0, 0], [n, 1], [2, 0]], constant_values=3.0),
    lambda x, n: tf.stack(tf.unstack(x, axis=2, num=4), axis=1),
    lambda x, n: tf.one_hot(tf.cast(x, tf.int32) - 3, 4),
    lambda x, n: tf.gather(x, tf.argmax(x, axis=1), axis=1, batch_dims=1),
    lambda x, n: tf.cast(tf.reduce_any(x > 2.0, axis=[0, 2]), tf.int32),
    lambda x, n: tf.where(tf.where(x > 2.0, x > 3.0, x < 1.0), x, 0.0),
    lambda x, n: tf.matmul(x, x, transpose_b=True) + tf.reduce_sum(x),
    lambda x, n: tf.fill([n, 2], 1.5) * tf.cast(tf.size(x), tf.float32),
    lambda x, n: tf.cumsum(x, axis=1, exclusive=True, reverse=True),
]


def test_operations():
    from bert_tf.inference.onnx.graph import Input
    from bert_tf.inference.onnx.tracing import convert_trace

    def compute(x, n):
        return {f"y{index}": cut(x, n) for index, cut in enumerate(CUTS)}

    specs = [tf.TensorSpec([None, 3, 4], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")]
    traced = tf.function(compute, input_signature=specs, autograph=False).get_concrete_function()
    inputs = [Input("x", "float32", ["batch", 3, 4]), Input("n", "int32", [])]
    content = convert_trace(traced, inputs, {"x": "x", "n": "n"}).SerializeToString()
    x = np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32) / 4
    n = np.array(1, np.int32)
    expected = compute(tf.constant(x), tf.constant(n))
    for make in runtimes():
        found = make(content)({"x": x, "n": n})
        for name, values in expected.items():
            assert found[name].shape == values.shape, name
            assert_close(found[name], values.numpy(), err_msg=name)


def test_unknown_operations_are_named():
    from bert_tf.inference.onnx.graph import Input
    from bert_tf.inference.onnx.tracing import convert_trace

    specs = [tf.TensorSpec([None], tf.float32, "x")]
    traced = tf.function(
        lambda x: {"y": tf.sort(x)}, input_signature=specs, autograph=False
    ).get_concrete_function()
    with pytest.raises(ValueError, match="TopKV2.*saved_model"):
        convert_trace(traced, [Input("x", "float32", ["n"])], {"x": "x"})


# Folders -----------------------------------------------------------------------------------------


@functools.cache
def exported_folder() -> pathlib.Path:
    import tempfile

    folder = pathlib.Path(tempfile.mkdtemp())
    model = bert_tf.BertClassifier.from_pretrained(write_model(folder / "model", "classifier"))
    file = model.export(folder / "out", format="onnx")
    assert file == folder / "out" / "onnx" / "model.onnx"
    return folder


def test_a_folder_answers_as_its_model():
    folder = exported_folder()
    model = bert_tf.BertClassifier.from_pretrained(folder / "model")
    for path in (folder / "out", folder / "out" / "onnx" / "model.onnx"):
        predictor = bert_tf.load(path)
        assert_close(predictor.probabilities(TEXTS), model.probabilities(TEXTS), OTHER_FRAMEWORK)
    files = {path.name for path in (folder / "out").iterdir()}
    assert {"config.json", "tokenizer.json", "vocab.txt", "onnx"} <= files
    assert "model.safetensors" not in files
    import onnx

    stored = onnx.load(folder / "out" / "onnx" / "model.onnx")
    assert stored.ir_version == 8 and [one.version for one in stored.opset_import] == [17]
    assert [one.name for one in stored.graph.input] == list(INPUT_NAMES)


@pytest.mark.slow
def test_the_first_answer_loads_little():
    """Of 1.1 s of imports, two thirds were the readers of examples and of checkpoints."""
    program = f"""
import sys, bert_tf
bert_tf.load({str(exported_folder() / "out")!r}).classify(["the river"])
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert "onnxruntime" in loaded
    assert not loaded & {"tensorflow", "keras", "h5py", "tqdm", "huggingface_hub"}
    others = {"bert_tf.tasks.tagging.answers", "bert_tf.tasks.question_answering.answers"}
    assert not loaded & {*others, "bert_tf.checkpoints.formats", "bert_tf.inference.output_answers"}


def copied(tmp_path: pathlib.Path) -> pathlib.Path:
    import shutil

    shutil.copytree(exported_folder() / "out", tmp_path / "out")
    return tmp_path / "out"


def test_what_cannot_be_loaded(tmp_path):
    folder = copied(tmp_path)
    file = folder / "onnx" / "model.onnx"
    with pytest.raises(ValueError, match="device is 'gpu'"):
        bert_tf.load(folder, device="gpu")
    weights = folder / "model.safetensors"
    weights.write_bytes(b"newer")
    stamp = file.stat().st_mtime + 10
    os.utime(weights, (stamp, stamp))
    with pytest.raises(ValueError, match="model.onnx is older .*model.safetensors"):
        bert_tf.load(folder)
    # The same weights with a new time are a copy.
    from bert_tf.system.checksums import file_crc

    card = read_json(file.parent / "bert_tf.json")
    write_json(file.parent / "bert_tf.json", {**card, "weights": {weights.name: file_crc(weights)}})
    assert bert_tf.load(folder).kind == "classifier"
    vocab = file.with_name("vocab.txt")
    words = vocab.read_bytes()
    vocab.write_bytes(words.replace(b"the", b"teh"))
    with pytest.raises(ValueError, match="onnx/vocab.txt"):
        bert_tf.load(folder)
    vocab.write_bytes(words)
    data = file.with_name("model.onnx_data")
    weights_content = bytearray(data.read_bytes())
    weights_content[-1] ^= 1
    data.write_bytes(weights_content)
    with pytest.raises(ValueError, match="model.onnx_data"):
        OnnxModel(file)
    data.unlink()
    with pytest.raises(ValueError, match="model.onnx_data"):
        OnnxModel(file)
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    with pytest.raises(ValueError, match="model.onnx "):
        OnnxModel(file)
    write_json(file.parent / "bert_tf.json", {**card, "checksums": [file.name]})
    with pytest.raises(ValueError, match="bert_tf.json: checksums"):
        OnnxModel(file)
    write_json(file.parent / "bert_tf.json", {**card, "checksums": {file.name: file_crc(file)}})
    weights.unlink()
    with pytest.raises(ValueError, match="model.onnx cannot be loaded"):
        OnnxModel(file)
    (file.parent / "bert_tf.json").unlink()
    with pytest.raises(ValueError, match="not written by export.onnx"):
        bert_tf.load(file)


def test_what_has_no_onnx_form(tmp_path):
    from bert_tf.inference.onnx.tracing import find_outputs

    serving = serving_models.load(str(exported_folder() / "model"), "classifier", unpad=False)
    serving.kind = "search"
    with pytest.raises(ValueError, match="search .*classifier.*export.saved_model"):
        find_outputs(serving)
