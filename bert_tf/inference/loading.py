"""Loads a trained model in any format: `bert_tf.load`.

a run directory or a checkpoint in it, or one of others with a head; see `formats`
hf://org/name, keras_hub://preset, kaggle://handle
mine.keras          a Keras model with its preprocessor
serving/mine        a SavedModel that export.saved_model wrote, its newest version or this one
mine.tflite         a file that export.tflite wrote; needs no TensorFlow
onnx/mine           a folder that export.onnx wrote, or its onnx/model.onnx; needs no TensorFlow
"""

import contextlib
import os
import pathlib
import typing

from bert_tf.inference.kinds import ANSWERING, KINDS, find
from bert_tf.inference.predictor import Predictor
from bert_tf.system.model_names import HUB_NAME, check_model
from bert_tf.system.number_arguments import check_numbers
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.base.serving.onnx_model import OnnxModel, find_onnx
from bert_tf.tasks.base.serving.saved_models import find_saved_model

if typing.TYPE_CHECKING:
    from bert_tf.tasks.base.serving.row_model import RowModel


# Arguments of `load` that an exported model fixes; "", 0 and None leave the choice to it.
Requested = dict[str, typing.Any]


def load(
    path: str | os.PathLike,
    kind: str = "",
    *,
    max_seq_length: int = 0,
    pair: bool | None = None,
    batch_size: int = 32,
    device: str = "",
    num_threads: int = 0,
) -> Predictor:
    """Loads a model that answers in plain Python, with the same answers from each format.

        predictor = bert_tf.load("runs/sst2")
        predictor.classify(["A fine film."])  # [{"label": "1", "score": 0.98}]

    Args:
      path: run directory, checkpoint, name on a hub, .keras file, SavedModel, LiteRT file or
        folder of `export.onnx`.
      kind: the purpose, if the model has several: classifier, multi_label, regression, zero_shot,
        tagger, question_answering, fill_mask, next_sentence, embeddings, late_interaction,
        reranker. "": the one that it was trained for; a pre-trained model fills masks, a model
        without heads embeds. An ELECTRA run embeds by its discriminator; with "fill_mask" its
        generator fills masks.
      max_seq_length: maximum length of a row; 0: as in training, or all positions.
      pair: whether rows hold two texts; None: as in training.
      batch_size: maximum number of rows per batch.
      device: "cpu", "gpu", "gpu:1"; "": the first GPU, if there is one.
      num_threads: number of threads; 0: all cores, for a LiteRT file one. TensorFlow uses the value
        of the first model for the whole process.

    Raises:
      ValueError: if there is no readable model, it does not have the kind, or there is no such
        device.
    """
    if kind and kind not in ANSWERING:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(ANSWERING)}.")
    check_numbers(0, or_none=True, max_seq_length=max_seq_length, num_threads=num_threads)
    check_numbers(1, batch_size=batch_size)
    path = os.fsdecode(path)
    check_model(path, has_weights=True)  # Before TensorFlow takes its seconds.
    local = _local_path(path)
    requested: Requested = {"kind": kind, "max_seq_length": max_seq_length, "pair": pair}
    if local.suffix == ".tflite" or find_onnx(local):
        from bert_tf.inference.rows.answers import row_answers

        rows = _load_rows(local, device, num_threads)
        check_as_exported(rows.card, local, requested)
        return Predictor(row_answers(rows), rows.card, batch_size)

    # Imported here, because it loads TensorFlow, which LiteRT and ONNX files do not need.
    from bert_tf.inference import graphs
    from bert_tf.inference.output_answers import output_answers

    if num_threads:
        graphs.set_threads(num_threads)
    device = graphs.find_device(device)
    if saved := find_saved_model(local):
        model = graphs.GraphModel.of_saved_model(saved, device)
        check_as_exported(model.card, saved, requested)
        return Predictor(output_answers(model), model.card, batch_size)
    return _load_trained(local, requested, batch_size, device)


def _local_path(path: str) -> pathlib.Path:
    """Returns `local_path`, which needs the code of hubs only for their names."""
    if not HUB_NAME.fullmatch(path):
        return pathlib.Path(path).expanduser()
    from bert_tf.checkpoints.hub import local_path

    return local_path(path)


def _load_rows(path: pathlib.Path, device: str, num_threads: int) -> "RowModel":
    from bert_tf.tasks.base.serving.lite_model import LiteModel

    onnx_file = find_onnx(path)
    name = "ONNX" if onnx_file else "LiteRT"
    if device not in ("", "cpu"):
        raise ValueError(f"device is {device!r}, but {name} files run only on the CPU.")
    if onnx_file:
        return OnnxModel(onnx_file, num_threads)
    if not path.is_file():
        raise ValueError(f"{path} does not exist; expected a file that export.tflite wrote.")
    return LiteModel(path, num_threads or 1)


def check_as_exported(metadata: Metadata, path: pathlib.Path, requested: Requested) -> None:
    """Raises ValueError if a model was not exported as requested."""
    exported = {**metadata, "pair": len(metadata["inputs"]) == 2}
    for name, value in requested.items():
        # False is a request for single texts; other values that are false are the defaults.
        is_given = value is not None if name == "pair" else bool(value)
        if is_given and value != exported[name]:
            raise ValueError(
                f"{path} was exported with {name} {exported[name]}, not {value}; export it again, "
                f"or load the original model."
            )


def _load_trained(
    path: pathlib.Path, requested: Requested, batch_size: int, device: str
) -> Predictor:
    """Loads a checkpoint or a .keras file."""
    from bert_tf.inference import graphs
    from bert_tf.inference.serving_models import make_keras_model, read_model

    def scope() -> contextlib.AbstractContextManager[None]:
        return graphs.on_device(device)

    kind = requested["kind"]
    pair = requested["pair"]
    # Multiple choice is no kind of exports. Its head is that of a regression of pairs: one score
    # for a context with a choice.
    trained = read_model(str(path), "regression" if kind == "multiple_choice" else kind)
    is_choice = trained.checkpoint.is_multiple_choice and not kind and pair is None
    if is_choice or kind == "multiple_choice":
        trained = trained._replace(kind="multiple_choice")
    if pair is not None and not find(trained.kind).takes_pairs:
        kinds = [other.name for other in KINDS.values() if other.takes_pairs]
        raise ValueError(
            f"pair is for {', '.join(kinds)}; the kind of this model is {trained.kind}."
        )
    with scope():
        model, metadata = make_keras_model(trained, requested["max_seq_length"], pair)
    return Predictor(model, metadata, batch_size, scope)
