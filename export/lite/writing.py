"""Writes a LiteRT file of a trained model: converts it, scores it, and then renames it."""

import itertools
import math
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from bert_tf.inference import serving_models
from bert_tf.inference.loading import load
from bert_tf.inference.predictor import Predictor
from bert_tf.inference.rows.answers import row_answers
from bert_tf.system.files import atomic_write, read_lines
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.serving.lite_model import LiteModel
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.base.serving.row_model import Arrays, RowModel
from bert_tf.text.packing import pack
from bert_tf.text.tokenization import make_tokenizer
from export.lite.accuracy_gate import (
    MAX_LOSS,
    Verdict,
    batches,
    check_parity,
    compare_rows,
    reference,
    score,
)
from export.lite.conversion import check_kind, check_size, convert
from export.lite.labelled import read_labelled
from export.lite.text_input import check_text_input
from export.onnx import OnnxConfig
from export.tflite import LiteConfig

NUM_CALIBRATION_ROWS = 256
NUM_COMPARED_ROWS = 100
CALIBRATION_BATCH = 8
SAMPLE_TEXTS = (
    ("A short text.", "And a second one."),
    ("It was one of the best films of the year, and I have seen many.", "Was it good?"),
    ("word " * 50, "piece " * 20),
    ("Prices rose by 3.5 % in Berlin, Paris and New York (2019).", "Inflation fell."),
)


def write(request: LiteConfig) -> Verdict:
    """Writes the file and returns its scores.

    Raises:
      ValueError: if the model has no LiteRT form, there are no examples to score
        on, or the file does not pass; then no file is written.
    """
    side = {"side": request.side} if request.side else {}
    serving = serving_models.load(
        request.model_dir, request.kind, request.max_seq_length, unpad=False, **side
    )
    check_kind(serving)
    if request.text_input:
        check_text_input(serving, request.quantize)
    gate = make_check(serving, request, LiteModel, reference(serving))

    def check(path: pathlib.Path) -> Verdict:
        check_size(path, serving, request.quantize)
        return gate(path)

    calibration = calibration_batches(serving, request) if request.quantize == "int8" else []
    logging.info("Converting ...")
    model = convert(serving, request.quantize, calibration, request.text_input)
    # The file gets its name only after the checks have passed.
    output = pathlib.Path(request.output_file).expanduser()
    with atomic_write(output, "wb") as file:
        file.write(model)
        file.flush()  # The checks read it by its temporary name.
        verdict = check(pathlib.Path(file.name))
        if request.text_input:
            check_same_tokens(pathlib.Path(file.name))
    logging.info("Wrote %s: %s, %.1f MB.", output, serving.kind, len(model) / 1e6)
    return verdict


def check_same_tokens(path: pathlib.Path) -> None:
    """Raises ValueError if a file's outputs for sample texts differ from those for their ids."""
    lite = LiteModel(path)
    texts = list(itertools.chain.from_iterable(SAMPLE_TEXTS))
    from_texts = lite.from_texts(texts)
    for name, values in lite(texts).items():
        difference = float(np.abs(from_texts[name] - values).max())
        # Also true for NaN.
        if not difference <= 1e-5 * float(np.abs(values).max()):
            raise ValueError(
                f"The tokenizer in the file changes {name} of sample texts by {difference:.2g}; "
                f"--text_input does not work with this vocabulary. No file was written."
            )


def make_check(
    serving: Serving,
    request: LiteConfig | OnnxConfig,
    open_file: Callable[[pathlib.Path], RowModel],
    expect: Callable[[Arrays], Arrays],
) -> Callable[[pathlib.Path], Verdict]:
    """Returns the check of a file before it is renamed.

    Args:
      serving: the float32 model.
      request: the flags of the program.
      open_file: opens the file.
      expect: computes a batch by the float32 model.

    Raises:
      ValueError: if there are no examples to score on, and --no_gate is not given.
    """
    form = request.quantize
    examples = None
    texts: Sequence[tuple[str, str]] = SAMPLE_TEXTS
    if not request.no_gate:
        examples = read_labelled(serving, request.model_dir, file=request.eval_file)
        if examples is None:
            raise ValueError(
                f"{request.model_dir} ({serving.kind}) names no dev set to score the file on; give "
                f"--eval_file, or --no_gate to compare its outputs on sample texts only."
            )
        texts = examples.texts[:: math.ceil(len(examples.texts) / NUM_COMPARED_ROWS)]
        logging.info("Scoring on %d examples of %s.", len(examples.texts), examples.source)
    max_loss = MAX_LOSS[form] if request.max_loss == -1 else request.max_loss

    def check(path: pathlib.Path) -> Verdict:
        rows = open_file(path)
        verdict = compare_rows(path, rows.from_ids, expect, form, text_rows(serving, texts))
        if examples is None:
            check_parity(verdict)
            return verdict
        model = load(request.model_dir, serving.kind, max_seq_length=request.max_seq_length)
        file = Predictor(row_answers(rows), rows.card)
        return score(verdict, file, model, examples, max_loss)

    return check


def calibration_batches(serving: Serving, request: LiteConfig) -> list[dict[str, np.ndarray]]:
    """Returns batches of all lengths from --calibration_file, or from the run's training set.

    Raises:
      ValueError: if there are no examples.
    """
    file = request.calibration_file
    if file and serving.kind in ("embeddings", "encoder"):
        texts = [(line, "") for line in read_lines(file)]
    else:
        examples = read_labelled(serving, request.model_dir, "train", file)
        if examples is None:
            raise ValueError(
                f"int8 needs texts to measure ranges on, and {request.model_dir} names no training "
                f"set; give --calibration_file."
            )
        texts = examples.texts
    # A fixed seed, so that the same model and examples give the same file.
    order = np.random.default_rng(0).permutation(len(texts))[:NUM_CALIBRATION_ROWS]
    logging.info("Measuring ranges on %d examples.", len(order))
    rows = text_rows(serving, [texts[i] for i in order])
    return batches(rows, CALIBRATION_BATCH, range(len(rows)))


def text_rows(serving: Serving, texts: Sequence[tuple[str, str]]) -> TokenizedDataset:
    """Packs texts, or pairs if the model takes pairs."""
    tokenizer = make_tokenizer(serving.vocab, serving.do_lower_case)
    is_pair = len(serving.texts) == 2
    packed = []
    for first, second in texts:
        row = pack(
            serving.vocab,
            tokenizer.encode(first),
            tokenizer.encode(second) if is_pair else None,
            serving.max_seq_length,
            serving.long_texts == "tail",
        )
        packed.append(row)
    return TokenizedDataset(packed, pad_id=serving.vocab.pad_id)
