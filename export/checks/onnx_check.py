"""The checks of a folder of `export.onnx`; see `export.check`."""

import pathlib
import time
from collections.abc import Iterator

import numpy as np
import onnx

from bert_tf.inference.serving_models import load
from bert_tf.system.printable import escaped
from bert_tf.tasks.base.serving.onnx_model import OnnxModel, num_bytes
from bert_tf.tasks.base.serving.row_model import Arrays
from export.checks.answer_check import ODD_TEXTS, TOLERANCE, check_equal
from export.checks.model_check import is_gone
from export.lite.accuracy_gate import BOUNDS
from export.onnx_files.writing import reference


def check(path: pathlib.Path, model_dir: str = "") -> Iterator[str]:
    """Checks an ONNX file; yields the result of each check as text.

    Args:
      model_dir: the model that was exported; "": the one that the export recorded, if it is there.

    Raises:
      ValueError: at the first check that fails.
    """
    start = time.perf_counter()
    model = OnnxModel(path)
    seconds = time.perf_counter() - start
    stored = onnx.load(path, load_external_data=False)
    opsets = {one.domain or "ai.onnx": one.version for one in stored.opset_import}
    versions = ", ".join(f"{name} {version}" for name, version in opsets.items())
    card = model.card
    labels = f" ({escaped(', '.join(card['labels']))})" if card["labels"] else ""
    yield (
        f"kind        {escaped(card['kind'])}{labels}\n"
        f"rows        at most {card['max_seq_length']} tokens, vocabulary of {len(model.vocab)}\n"
        f"weights     {escaped(card['quantize'])}, {num_bytes(path) / 1e6:.1f} MB\n"
        f"outputs     {', '.join(map(escaped, card['outputs']))}"
    )
    kinds = {node.op_type for node in stored.graph.node}
    foreign = {node.op_type for node in stored.graph.node if node.domain not in ("", "ai.onnx")}
    if foreign:
        raise ValueError(
            f"{path} has the operations {', '.join(sorted(foreign))}, which only some runtimes "
            "have; export the model again."
        )
    yield f"operations  {len(kinds)} kinds, all of ONNX itself: {versions}, IR {stored.ir_version}"
    seconds_of_texts = ODD_TEXTS[::-1] if len(card["inputs"]) == 2 else ()
    batch = model.pack(ODD_TEXTS, seconds_of_texts)
    outputs = model.from_ids(batch)
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{path}: {name} has numbers that are not finite for odd texts.")
    yield f"answers     loaded in {seconds:.2f} s; {len(ODD_TEXTS)} odd texts have finite numbers"
    yield _check_source(model, batch, outputs, model_dir)


def _check_source(model: OnnxModel, batch: Arrays, outputs: Arrays, model_dir: str) -> str:
    """Compares outputs with those of the model that was exported; returns the result as text."""
    source = model_dir or model.card.get("source", "")
    if not source:
        return "source      a model in Python, so not compared; --model_dir=... names a saved one"
    if not model_dir and is_gone(source):
        return f"source      {source} is not here, so not compared; --model_dir=... says where"
    card = model.card
    side = {"side": card["side"]} if "side" in card else {}
    serving = load(source, card["kind"], card["max_seq_length"], unpad=False, **side)
    expected = reference(serving)(batch)
    differences = []
    for name, values in expected.items():
        # Rounding is relative to the largest number.
        largest = max(1.0, float(np.abs(values).max()))
        tolerance = TOLERANCE if card["quantize"] == "none" else BOUNDS[card["quantize"]]
        label = f"{card['kind']}: {name}"
        difference = check_equal(label, values, outputs[name], source, tolerance * largest)
        differences.append(difference / largest)
    return (
        f"source      {len(ODD_TEXTS)} odd texts answered as {source} does; floats to "
        f"{max(differences):.1g}"
    )
