"""Writes a LiteRT file of a trained model: converts it, scores it, and only then publishes it."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from bert_tf.examples.rows import TokenizedDataset
from bert_tf.files import atomic_write, read_lines
from bert_tf.inference.serving_models import load
from bert_tf.serving.lite_model import LiteModel
from bert_tf.serving.model import Serving
from bert_tf.text.packing import pack
from bert_tf.text.tokenization import make_tokenizer
from export.lite.accuracy_gate import MAX_LOSS, Verdict, batches, check_parity, judge
from export.lite.conversion import check_kind, convert
from export.lite.judges import make_judge
from export.lite.text_input import check_text_input

NUM_CALIBRATION_ROWS, CALIBRATION_BATCH = 256, 8
SAMPLE_TEXTS = (
    ("A short text.", "And a second one."),
    ("It was one of the best films of the year, and I have seen many.", "Was it good?"),
    ("word " * 50, "piece " * 20),
    ("Prices rose by 3.5 % in Berlin, Paris and New York (2019).", "Inflation fell."),
)


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked for; see the flags of `export.tflite`."""

    model_dir: str
    output_file: str
    quantize: str = "dynamic"
    kind: str = ""
    max_seq_length: int = 0
    eval_file: str = ""
    calibration_file: str = ""
    max_loss: float | None = None
    no_gate: bool = False
    text_input: bool = False


def write(request: Request) -> Verdict:
    """Writes the file and returns how it did.

    Raises:
      ValueError: if the file exists, the model has no LiteRT form, there is nothing to judge by, or
        the file does not pass; then there is none.
    """
    output = pathlib.Path(request.output_file).expanduser()
    if output.exists():
        raise ValueError(f"{output} exists already; delete it, or give another --output_file.")
    for name in ("eval_file", "max_loss"):
        if request.no_gate and getattr(request, name) not in ("", None):
            raise ValueError(f"--no_gate scores nothing; leave it or --{name} out.")
    served = load(request.model_dir, request.kind, request.max_seq_length, unpad=False)
    check_kind(served)
    if request.text_input:
        check_text_input(served, request.quantize)
    check = make_check(served, request)
    calibration = calibration_batches(served, request) if request.quantize == "int8" else []
    logging.info("Converting ...")
    before = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells of every file that it writes.
    try:
        model = convert(served, request.quantize, calibration, request.text_input)
    finally:
        logging.set_verbosity(before)
    with atomic_write(output, "wb") as file:
        file.write(model)
        file.flush()
        verdict = check(pathlib.Path(file.name))
        if request.text_input:
            check_same_pieces(pathlib.Path(file.name))
    logging.info("Wrote %s: %s, %.1f MB.", output, served.kind, len(model) / 1e6)
    return verdict


def check_same_pieces(path: pathlib.Path) -> None:
    """Raises ValueError if a file answers sample texts otherwise than their rows of ids."""
    lite = LiteModel(path)
    texts = [text for pair in SAMPLE_TEXTS for text in pair]
    found, expected = lite.from_texts(texts), lite(texts)
    for name, values in expected.items():
        difference = float(np.abs(found[name] - values).max())
        if not difference <= 1e-5 * float(np.abs(values).max()):
            raise ValueError(
                f"The tokenizer in the file changes {name} of sample texts by {difference:.2g}; "
                f"--text_input does not work with this vocabulary. No file was written."
            )


def make_check(served: Serving, request: Request) -> Callable[[pathlib.Path], Verdict]:
    """Returns what is to be done with a file before it gets its name.

    Raises:
      ValueError: if there is nothing to judge it by, and --no_gate is not given.
    """
    form = request.quantize
    if request.no_gate:
        rows = text_rows(served, SAMPLE_TEXTS)
        return lambda path: check_parity(path, served, form, rows)
    judged_by = make_judge(served, request.model_dir, file=request.eval_file)
    if judged_by is None:
        raise ValueError(
            f"{request.model_dir} ({served.kind}) names no dev set to score the file on; give "
            f"--eval_file, or --no_gate to compare its outputs on sample texts only."
        )
    logging.info("Scoring on %d rows of %s.", len(judged_by.rows), judged_by.source)
    max_loss = MAX_LOSS[form] if request.max_loss is None else request.max_loss
    return lambda path: judge(path, served, form, judged_by, max_loss)


def calibration_batches(served: Serving, request: Request) -> list[dict[str, np.ndarray]]:
    """Returns batches of rows of all lengths: of --calibration_file, or what the run names.

    Raises:
      ValueError: if there are none.
    """
    file = request.calibration_file
    if file and served.kind in ("embeddings", "encoder"):
        rows = text_rows(served, [(line, "") for line in read_lines(file)])
    else:
        found = make_judge(served, request.model_dir, "train", file)
        if found is None:
            raise ValueError(
                f"int8 needs texts to measure ranges on, and {request.model_dir} names no training "
                f"set; give --calibration_file."
            )
        rows = found.rows
    order = np.random.default_rng(0).permutation(len(rows))[:NUM_CALIBRATION_ROWS]
    logging.info("Measuring ranges on %d rows.", len(order))
    return batches(rows, CALIBRATION_BATCH, order.tolist())


def text_rows(served: Serving, texts: Sequence[tuple[str, str]]) -> TokenizedDataset:
    """Packs texts, or pairs if the model takes pairs."""
    tokenizer = make_tokenizer(served.vocab, served.do_lower_case)
    is_pair = len(served.texts) == 2
    encoded = [
        (tokenizer.encode(first), tokenizer.encode(second) if is_pair else [])
        for first, second in texts
    ]
    length = served.max_seq_length
    keep_tail = served.long_texts == "tail"
    packed = [pack(served.vocab, *both, length, keep_tail) for both in encoded]
    return TokenizedDataset(packed, pad_id=served.vocab.pad_id)
