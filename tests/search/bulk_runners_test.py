"""Whole runs of embed_texts: one machine, Beam, Spark and killed ones write the same bytes."""

import functools
import importlib.util
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
import types

import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.search.bulk import Job, read_file
from bert_tf.search.index import Index
from bert_tf.search.runners import RUNNERS, run
from bert_tf.search.segments import Batch
from bert_tf.tasks.embedding.model import BertEmbedder
from tests.float_bounds import assert_close
from tests.programs import Done, fail, finish, start
from tests.programs import run as run_program
from tests.search.programs_test import write_corpus
from tests.tiny_model import write_tiny_model

NEEDS = {"local": (), "beam": ("apache_beam",), "spark": ("pyspark", "pandas", "pyarrow")}
# Of what they do themselves, and will be changed.
ENGINES_WARN = pytest.mark.filterwarnings("ignore")
EACH = [pytest.param(name, marks=pytest.mark.needs(*NEEDS[name])) for name in RUNNERS]


def need(runner: str) -> None:
    """Skips the calling test where an engine is missing."""
    missing = [name for name in NEEDS[runner] if importlib.util.find_spec(name) is None]
    if runner == "spark" and shutil.which("java") is None:
        missing.append("java")
    if missing:
        pytest.skip(f"--runner={runner} needs {', '.join(missing)}")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A model and 60 documents of 1 to 20 words in three files, as flags."""
    folder = tmp_path_factory.mktemp("given")
    write_tiny_model(folder / "model")
    draw = random.Random(1)
    for file in range(3):
        texts = {
            f"d{file}x{number}": " ".join(
                "".join(draw.choices("abcdefgh", k=draw.randrange(1, 6)))
                for _ in range(draw.randrange(1, 21))
            )
            for number in range(20)
        }
        write_corpus(folder / f"c{file}.jsonl", texts)
    return {
        "init_checkpoint": folder / "model",
        "input_file": f"{folder}/c*.jsonl",
        "shard_size": 4,
        "batch_size": 3,
        "num_workers": 1,
    }


@pytest.fixture(scope="module")
def whole(given: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What one process makes in one go."""
    folder = tmp_path_factory.mktemp("whole")
    finish(
        run_program(
            "embed_texts", **given, output_dir=folder / "out", index_dir=folder / "out.index"
        )
    )
    return folder


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".index-")  # They hold the index's path.
    }


@pytest.mark.slow
def test_vectors_are_those_that_a_model_gives_each_text_alone(
    given: dict[str, object], whole: pathlib.Path
) -> None:
    model = BertEmbedder.from_checkpoint(
        read_checkpoint(str(given["init_checkpoint"])), max_seq_length=64
    )
    index = Index(whole / "out.index")
    assert index.ids == [f"d{file}x{number}" for file in range(3) for number in range(20)]
    expected = np.concatenate([model.encode([index.text(row)]) for row in range(60)])
    raw = np.concatenate([np.load(path) for path in sorted(whole.glob("out/vectors-*.npy"))])
    assert_close(raw, expected)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    assert_close(index.vectors(np.arange(60)), expected / lengths)


@pytest.mark.slow
@pytest.mark.parametrize("runner", EACH)
def test_runners_write_the_same_bytes(
    given: dict[str, object], whole: pathlib.Path, tmp_path: pathlib.Path, runner: str
) -> None:
    need(runner)
    flags = {**given, "num_workers": 2, "runner": runner, "output_dir": tmp_path / "out"}
    finish(start("embed_texts", **flags))
    expected = contents(whole / "out")
    assert contents(tmp_path / "out") == expected and len(expected) == 70
    for lost in ("vectors-00001-00002.npy", "texts-00002-00000.jsonl"):
        (tmp_path / "out" / lost).unlink()
    printed = finish(start("embed_texts", **flags))
    assert re.search(" 60 documents .*3 files .*15 shards", printed) and " 4 documents" in printed
    assert contents(tmp_path / "out") == expected


@pytest.mark.slow
def test_killed_while_it_reads_embeds_and_merges(
    given: dict[str, object], whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    flags = {**given, "output_dir": tmp_path / "out", "index_dir": tmp_path / "out.index"}
    for pattern in ("out/texts-*", "out/vectors-*", ".out.index.building"):
        process = start("embed_texts", **flags)
        deadline = time.monotonic() + 600
        while not list(tmp_path.glob(pattern)) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL and not (tmp_path / "out.index").exists()
    finish(start("embed_texts", **flags))
    assert contents(tmp_path / "out") == contents(whole / "out")
    assert contents(tmp_path / "out.index") == contents(whole / "out.index")


@pytest.mark.slow
def test_bad_input_is_one_clear_line(
    given: dict[str, object], whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    def message(**flags: object) -> str:
        return fail(run_program("embed_texts", **{**given, "output_dir": tmp_path / "x", **flags}))

    (tmp_path / "empty.txt").write_text("\n")
    assert "--input_file=" in message(input_file=tmp_path / "empty.txt")
    path = write_corpus(tmp_path / "c.jsonl", {"a": "b"})
    path.write_text(path.read_text() * 2)
    assert "id 'a'" in message(input_file=path, output_dir=tmp_path / "y")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "x").touch()
    found = message(output_dir=tmp_path / "w", index_dir=tmp_path / "index")
    assert f"{tmp_path}/index " in found and not (tmp_path / "w").exists()
    # As many documents, the same model, other texts.
    others = {str(number): "walk" for number in range(60)}
    path = write_corpus(tmp_path / "others.jsonl", others)
    found = message(input_file=path, output_dir=tmp_path / "v", index_dir=whole / "out.index")
    assert f"{whole}/out.index " in found
    # The same documents, other flags.
    found = message(output_dir=whole / "out", index_dir=whole / "out.index", dtype="int8")
    assert f"{whole}/out.index " in found
    again = {**given, "output_dir": whole / "out"}
    finish(run_program("embed_texts", **again, index_dir=whole / "half.index", dtype="float16"))
    printed = finish(run_program("embed_texts", **again, index_dir=whole / "out.index"))
    assert "out.index:" in printed
    found = message(input_file="tfds:ag_news_subset", output_dir=tmp_path / "u")
    assert re.search(r"embed_texts.*tfds:ag_news_subset", found)
    found = message(output_dir=tmp_path / "long", max_seq_length=999)
    assert "--max_seq_length=999, " in found and not (tmp_path / "long").exists()


@pytest.mark.slow
@ENGINES_WARN
@pytest.mark.parametrize("runner", EACH)
def test_a_fault_that_a_worker_finds_is_one_clear_line(tmp_path: pathlib.Path, runner: str) -> None:
    need(runner)
    (tmp_path / "a.jsonl").write_text('{"txt": 1}\n')
    inputs = (("a.jsonl", 11, (tmp_path / "a.jsonl").stat().st_mtime_ns),)
    job = Job(str(tmp_path), str(tmp_path), "model", inputs, "m", "", 32, 4, shard_size=3)
    options = "--runner=FnApiRunner" if runner == "beam" else ""
    with pytest.raises(ValueError, match=r"^\S+a.jsonl line 1 [^\n]*`text`[^\n]*txt[^\n]*$"):
        list(run(runner, read_file, job, [0], 1, options))


def test_flags_without_effect_are_named(tmp_path: pathlib.Path) -> None:
    flags = {"init_checkpoint": "m", "output_dir": tmp_path / "x", "input_file": "a"}
    for more, named in (
        ({"init_checkpoint": ""}, "--init_checkpoint "),
        ({"dtype": "int8"}, "--dtype .*--index_dir"),
        ({"language": "de"}, "--language .*--index_dir"),
        ({"keep_texts": "false"}, "--keep_texts .*--index_dir .*--qdrant"),
        ({"beam_options": "x"}, "--beam_options .*--runner=beam"),
        ({"qdrant": "localhost:6333"}, "URL"),
    ):
        done: Done = run_program("embed_texts", **{**flags, **more})
        assert done.returncode == 1 and re.search(named, done.printed), done.printed


@pytest.mark.parametrize("runner", ["beam", "spark"])
def test_an_engine_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, runner: str) -> None:
    monkeypatch.setitem(sys.modules, NEEDS[runner][0], None)
    with pytest.raises(ValueError, match=rf"pip install '\.\[{runner}\]'"):
        list(run(runner, print, None, [1]))  # type: ignore[arg-type]


def test_qdrant_that_is_missing_is_named_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    flags = {"init_checkpoint": "m", "output_dir": tmp_path / "x", "input_file": "a"}
    assert "pip install '.[qdrant]'" in fail(run_program("embed_texts", **flags, qdrant="q"))


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("http://host:6333", {"url": "http://host:6333"}),
        ("vectors/qdrant", {"path": "vectors/qdrant"}),
    ],
)
def test_qdrant_is_a_server_or_a_folder(
    monkeypatch: pytest.MonkeyPatch, target: str, given: dict[str, str]
) -> None:
    from bert_tf.search import qdrant

    def client(check_compatibility: bool, **place: str) -> None:
        assert not check_compatibility
        raise ConnectionError(place)

    errors = types.SimpleNamespace(ApiException=ArithmeticError)
    http = types.SimpleNamespace(exceptions=errors)
    library = types.SimpleNamespace(QdrantClient=client, models=None, http=http)
    monkeypatch.setattr(qdrant, "qdrant_client", lambda: library)
    with pytest.raises(ValueError, match=f"{target}: ") as caught:
        qdrant.write_qdrant(target, "documents", "1", [])
    assert caught.value.__cause__.args == (given,)


def test_qdrant_that_goes_away_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from bert_tf.search import qdrant

    closed = []

    class Client:
        def collection_exists(self, name: str) -> bool:
            raise ConnectionError(f"{name}: connection reset")

        def close(self) -> None:
            closed.append(True)

    errors = types.SimpleNamespace(ApiException=ArithmeticError)
    library = types.SimpleNamespace(models=None, http=types.SimpleNamespace(exceptions=errors))
    monkeypatch.setattr(qdrant, "qdrant_client", lambda: library)
    monkeypatch.setattr(qdrant, "open_qdrant", lambda *_: Client())
    with pytest.raises(ValueError, match=r"http://host .*documents-1: connection reset"):
        qdrant.write_qdrant("http://host", "documents", "1", [None])  # type: ignore[list-item]
    assert closed


@pytest.fixture(scope="module")
def saved(
    given: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, np.ndarray]]:
    """A SavedModel, and texts with their vectors by the model that it was made of."""
    folder, model = tmp_path_factory.mktemp("saved"), given["init_checkpoint"]
    flags = {"model_dir": model, "output_dir": folder / "s", "kind": "embeddings"}
    finish(run_program("export.saved_model", **flags))
    texts = ["abc de", "f", "a b c d e f g h a b c"]
    vectors = BertEmbedder.from_checkpoint(read_checkpoint(str(model))).encode(texts)
    return str(folder / "s" / "1"), dict(zip(texts, vectors, strict=True))


def check(found: list, wanted: dict[str, np.ndarray]) -> None:
    assert sorted(text for text, _ in found) == sorted(wanted)
    for text, vector in found:
        assert_close(vector, wanted[text])


@pytest.mark.needs(*NEEDS["beam"])
@pytest.mark.slow
@ENGINES_WARN
def test_a_saved_model_embeds_in_beam(saved: tuple[str, dict[str, np.ndarray]]) -> None:
    need("beam")
    import apache_beam as beam
    from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference
    from apache_beam.testing.util import assert_that

    path, wanted = saved

    class Embeds(ModelHandler):
        def load_model(self):
            return bert_tf.load(path)

        def run_inference(self, batch, model, inference_args=None):
            return model.encode(batch)

    is_right = functools.partial(check, wanted=wanted)
    with beam.Pipeline("FnApiRunner") as pipeline:
        keyed = KeyedModelHandler(Embeds())
        found = pipeline | beam.Create([(text, text) for text in wanted]) | RunInference(keyed)
        assert_that(found, is_right)


@pytest.mark.needs(*NEEDS["spark"])
@pytest.mark.slow
@ENGINES_WARN
def test_a_saved_model_embeds_in_spark(saved: tuple[str, dict[str, np.ndarray]]) -> None:
    need("spark")
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import SparkSession
    from pyspark.sql.types import ArrayType, FloatType

    path, wanted = saved

    def make():
        import bert_tf

        return bert_tf.load(path).encode

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    embed = predict_batch_udf(make, return_type=ArrayType(FloatType()), batch_size=2)
    frame = spark.createDataFrame([(text,) for text in wanted], "text string")
    rows = frame.withColumn("vector", embed("text")).collect()
    spark.stop()
    check([(row["text"], row["vector"]) for row in rows], wanted)


@pytest.mark.slow
def test_qdrant_finds_what_exact_search_finds(tmp_path: pathlib.Path) -> None:
    qdrant_client = pytest.importorskip("qdrant_client")
    from bert_tf.search.qdrant import open_qdrant, write_qdrant

    with pytest.raises(ValueError, match="http://localhost:1: "):
        open_qdrant("http://localhost:1", "documents")

    vectors = np.random.default_rng(0).normal(size=[600, 8]).astype(np.float32)
    ids = [f"d{number}" for number in range(600)]
    made = [Batch(ids[:500], vectors[:500], ids[:500]), Batch(ids[500:], vectors[500:], ids[500:])]
    target = str(tmp_path / "qdrant")

    def broken():
        yield made[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_qdrant(target, "documents", "1", broken())
    assert write_qdrant(target, "documents", "1", made) == 600
    assert write_qdrant(target, "documents", "1", made) == 600
    query = np.random.default_rng(1).normal(size=8)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    best = np.argsort(-cosines)[:5]
    client = qdrant_client.QdrantClient(path=target)
    found = client.query_points("documents", query=query.tolist(), limit=5).points
    client.close()
    assert [point.payload for point in found] == [{"_id": ids[i], "text": ids[i]} for i in best]
    assert_close([point.score for point in found], cosines[best])
    with pytest.raises(KeyboardInterrupt):
        write_qdrant(target, "documents", "2", broken())
    assert write_qdrant(target, "documents", "3", made[1:]) == 100  # another stands behind the name
    client = qdrant_client.QdrantClient(path=target)
    assert client.count("documents").count == 100
    client.close()
    with pytest.raises(ValueError, match="'documents-1'"):
        write_qdrant(target, "documents-1", "2", made)
