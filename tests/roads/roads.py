"""The roads from a trained model to an answer, for tests that compare them."""

import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.inference import graphs, serving_models
from bert_tf.inference.predictor import Predictor
from bert_tf.tasks.base.serving import model as serving_model
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.base.serving.saved_models import call_signature, load_signatures, read_card
from bert_tf.tasks.base.serving.saving import writing
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from export.lite.conversion import convert
from tests.shared_data import missing

TOLERANCE = 1e-5
LITE_TOLERANCE = 1e-4


def load_all(folder: pathlib.Path, model: Any, tmp_path: pathlib.Path) -> dict[str, Predictor]:
    """Returns `bert_tf.load` of every form of a model that has a LiteRT form.

    Args:
      folder: a run directory or checkpoint.
      model: the Keras model of the folder.
      tmp_path: new files are written here.
    """
    model.save(tmp_path / "model.keras")
    return {
        "run": bert_tf.load(folder),
        "keras": bert_tf.load(tmp_path / "model.keras"),
        "SavedModel": load_saved_model(saved_model(folder, tmp_path)),
        "LiteRT": bert_tf.load(lite_file(folder, tmp_path)),
        **load_onnx(folder, tmp_path),
    }


@contextlib.contextmanager
def shared_tokenizers() -> Iterator[None]:
    """Gives models with equal vocabularies the same tokenizer, which is traced once for all."""
    with mock.patch.object(serving_model, "make_graph_tokenizer", _graph_tokenizer):
        yield


_graph_tokenizer = functools.cache(make_graph_tokenizer)


def _write_texts(serving: Serving, folder: pathlib.Path, name: str, *others: Any) -> None:
    """Writes the model of texts as `writing._write` does, and no model of ids.

    No road leads through the model of ids, and tracing it takes as long as the other.
    """
    if not name.endswith("_ids"):
        _write(serving, folder, name, *others)


_write = writing._write


def saved_model(folder: pathlib.Path, tmp_path: pathlib.Path, kind: str = "") -> pathlib.Path:
    """Writes the SavedModel of a run or checkpoint, and returns the folder of its version."""
    target = tmp_path / "saved"
    if not target.exists():
        with shared_tokenizers(), mock.patch.object(writing, "_write", _write_texts):
            writing.save(serving_models.load(str(folder), kind), target, 1, str(folder))
    return target / "1"


@functools.lru_cache(maxsize=1)
def _signatures(version: pathlib.Path) -> dict[str, Any]:
    return load_signatures(version, read_card(version))


def load_saved_model(version: pathlib.Path, kind: str = "", **options: Any) -> Predictor:
    """Returns `bert_tf.load` of a version, with the functions that `rest_rows` calls as well."""
    with mock.patch.object(graphs, "load_signatures", lambda folder, card: _signatures(folder)):
        return bert_tf.load(version, kind, **options)


def lite_file(folder: pathlib.Path, tmp_path: pathlib.Path, kind: str = "") -> pathlib.Path:
    """Writes the LiteRT file, in float32, of a run or checkpoint."""
    path = tmp_path / "model.tflite"
    with shared_tokenizers():
        serving = serving_models.load(str(folder), kind, unpad=False)
    path.write_bytes(convert(serving, "none", []))
    return path


def load_onnx(folder: pathlib.Path, tmp_path: pathlib.Path, kind: str = "") -> dict[str, Predictor]:
    """Returns `bert_tf.load` of the ONNX folder of a model; nothing without the packages."""
    if missing("onnx", "onnxruntime"):
        return {}
    from bert_tf.inference.onnx.folder import write_folder

    target = tmp_path / "onnx"
    if not target.exists():
        trained = serving_models.read_model(str(folder), kind)
        with shared_tokenizers():
            serving = serving_models.make_serving(trained, unpad=False)
        write_folder(trained, serving, target)
    return {"ONNX": bert_tf.load(target)}


def rest_rows(version: pathlib.Path, columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Returns the predictions that a server's REST interface gives for instances in row form.

    Args:
      version: of `saved_model`.
      columns: the inputs of the text signature by name.
    """
    inputs = {name: tf.constant(list(values)) for name, values in columns.items()}
    outputs = call_signature(_signatures(version)["serving_default"], inputs)
    arrays = {name: value.numpy() for name, value in outputs.items()}
    rows = []
    for index in range(len(next(iter(columns.values())))):
        rows.append({name: _json_value(array[index]) for name, array in arrays.items()})
    return json.loads(json.dumps(rows))


def _json_value(value: Any) -> Any:
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [_json_value(part) for part in value]
    return value.decode("utf8") if isinstance(value, bytes) else value


def largest_difference(expected: Any, found: Any) -> float:
    """Returns the largest difference of numbers in two answers, relative to the largest number.

    Raises:
      AssertionError: if keys, lengths, texts or integers differ.
    """
    differences: list[float] = []
    sizes = [1e-30]

    def compare(one: Any, other: Any, where: str) -> None:
        if isinstance(one, dict):
            assert one.keys() == other.keys(), f"{where}: {one.keys()} and {other.keys()}"
            for key in one:
                compare(one[key], other[key], f"{where}.{key}")
        elif isinstance(one, list | tuple | np.ndarray):
            assert len(one) == len(other), f"{where}: {len(one)} and {len(other)} values"
            for index, pair in enumerate(zip(one, other, strict=True)):
                compare(*pair, f"{where}[{index}]")
        elif isinstance(one, float | np.floating):
            differences.append(abs(float(one) - float(other)))
            sizes.append(abs(float(one)))
        else:
            assert one == other, f"{where}: {one!r} and {other!r}"

    compare(expected, found, "answers")
    return max(differences, default=0.0) / max(sizes)


def check_roads(
    expected: Any,
    predictors: Mapping[str, Predictor],
    ask: Callable[[Predictor], Any],
    record: Callable[[str, Any], None],
) -> None:
    """Checks that all predictors give the expected answers.

    Args:
      expected: answers of the Keras model.
      predictors: of `load_all`.
      ask: gets the answers of a predictor.
      record: takes the name and the largest difference of each road: pytest's `record_property`.
    """
    for road, predictor in predictors.items():
        difference = largest_difference(expected, ask(predictor))
        record(road, difference)
        limit = LITE_TOLERANCE if road == "LiteRT" else TOLERANCE
        assert difference <= limit, f"{road}: {difference}"
