"""A classifier in ONNX Runtime, for the benchmarks that compare with it: exported by PyTorch."""

import pathlib
from collections.abc import Callable

import numpy as np

COLUMNS = ("input_ids", "attention_mask", "token_type_ids")


def write_onnx(huggingface: pathlib.Path, path: pathlib.Path) -> None:
    """Writes the classifier of a Hugging Face folder as an ONNX file, float32, any [B, T]."""
    import torch
    import transformers

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        huggingface, attn_implementation="eager"
    ).eval()
    torch.onnx.export(
        model,
        (),
        str(path),
        kwargs={name: torch.ones([2, 8], dtype=torch.int64) for name in COLUMNS},
        input_names=list(COLUMNS),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in COLUMNS},
        dynamo=False,
    )


def onnx_call(path: pathlib.Path, threads: int) -> Callable[..., np.ndarray]:
    """Returns a function of int [B, T] `COLUMNS` to probabilities, float32 [B, C]."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def call(*columns: np.ndarray) -> np.ndarray:
        fed = {name: np.asarray(c, np.int64) for name, c in zip(COLUMNS, columns, strict=True)}
        return softmax(session.run(["logits"], fed)[0])

    return call


def softmax(logits: np.ndarray) -> np.ndarray:
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)
