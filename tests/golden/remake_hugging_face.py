"""Computes the golden files of Hugging Face's families again with transformers.

    pip install torch==2.13.0 transformers==4.57.6 sentencepiece
    python tests/golden/remake_hugging_face.py

For each folder below `families` with a model of transformers: hidden states, logits, loss and
gradients. For each recorded tokenizer: the ids of its texts and pairs. Prints the largest
difference of each file, relative to the largest value, and exits with status 1 if one is above
1e-5 (1e-4 for gradients). `--write` replaces the outputs; the weights and inputs stay.
"""

import argparse
import json
import pathlib
import sys
from typing import Any

import numpy as np
import torch
import transformers
from archives import SUFFIX, edited

FAMILIES = pathlib.Path(__file__).resolve().parent / "families"
TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
# What a model takes; the files also hold inputs of other runs of the same model.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LABELS = ("labels", "start_positions", "end_positions", "sentence_order_label")
# Names of outputs that differ from those of transformers.
LOGITS = ("logits", "start_logits", "end_logits", "prediction_logits", "sop_logits")
# transformers pads the softmax of these with positions of the padding, as their goldens do.
NOT_ZEROED = ("start_logits", "end_logits")


def compute_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns outputs and gradients by the names of the golden file."""
    golden = dict(np.load(folder / "golden.npz"))
    config = transformers.AutoConfig.from_pretrained(folder)
    model_class = getattr(transformers, config.architectures[0])
    model = model_class.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = {}
    for name in (*INPUTS, *LABELS):
        if f"in_{name}" in golden:
            inputs[name] = torch.from_numpy(golden[f"in_{name}"]).long()
    outputs = model(**inputs, output_hidden_states=True)
    outputs.loss.backward()

    mask = golden["in_attention_mask"]
    states = []
    for state in outputs.hidden_states:
        states.append(state.detach().numpy() * mask[..., None])
    computed = {"out_loss": outputs.loss.detach().numpy(), "out_hidden_states": np.stack(states)}
    for name in LOGITS:
        if f"out_{name}" in golden:
            logits = getattr(outputs, name).detach().numpy()
            if name not in NOT_ZEROED and logits.shape[:2] == mask.shape:
                logits = logits * mask.reshape(mask.shape + (1,) * (logits.ndim - 2))
            computed[f"out_{name}"] = logits
    for name, parameter in model.named_parameters():
        if f"grad_{name}" in golden:
            computed[f"grad_{name}"] = parameter.grad.numpy()
    return computed


def largest_difference(
    golden: dict[str, np.ndarray], computed: dict[str, np.ndarray], prefix: str
) -> float:
    """Returns the largest difference relative to each array's largest value."""
    largest = 0.0
    for name, value in computed.items():
        if name.startswith(prefix):
            expected = golden[name]
            scale = max(float(np.abs(expected).max()), 1e-6)
            largest = max(largest, float(np.abs(value - expected).max()) / scale)
    return largest


def count_wrong_rows(folder: pathlib.Path) -> tuple[int, int]:
    """Returns the number of rows that the fast tokenizer encodes otherwise, and of all rows."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True)
    rows = json.loads((folder / "tokenizer_golden.json").read_text(encoding="utf8"))
    wrong = 0
    for row in rows:
        limits: dict[str, Any] = {}
        if "max_length" in row:
            limits = {"truncation": row["truncation"], "max_length": row["max_length"]}
        expected = row["input_ids"] if "pair" in row else row["ids"]
        wrong += tokenizer(row["text"], row.get("pair"), **limits)["input_ids"] != expected
    return wrong, len(rows)


def is_model_of_transformers(folder: pathlib.Path) -> bool:
    """True for folders whose golden file holds a labelled batch of a class of transformers."""
    config = json.loads((folder / "config.json").read_text(encoding="utf8"))
    architecture = (config.get("architectures") or [""])[0]
    names = np.load(folder / "golden.npz").files
    return hasattr(transformers, architecture) and {"out_loss", "out_hidden_states"} <= set(names)


def compare_family(family: pathlib.Path, write: bool) -> bool:
    """Prints the differences in the folders of a family; returns True if all are small."""
    is_close = True
    for path in sorted(family.rglob("config.json")):
        folder = path.parent
        name = folder.relative_to(family.parent)
        if (folder / "golden.npz").exists() and is_model_of_transformers(folder):
            golden = dict(np.load(folder / "golden.npz"))
            computed = compute_model(folder)
            outputs = largest_difference(golden, computed, "out_")
            gradients = largest_difference(golden, computed, "grad_")
            print(f"{name}: outputs {outputs:.1e}, gradients {gradients:.1e}", flush=True)
            is_close &= outputs <= TOLERANCE and gradients <= GRADIENT_TOLERANCE
            if write:
                np.savez_compressed(folder / "golden.npz", **{**golden, **computed})
    for path in sorted(family.rglob("tokenizer_golden.json")):
        wrong, total = count_wrong_rows(path.parent)
        name = path.parent.relative_to(family.parent)
        print(f"{name}: {wrong} of {total} texts differ", flush=True)
        is_close &= wrong == 0
    return is_close


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the outputs")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    failed = False
    for archive in sorted(FAMILIES.glob(f"*{SUFFIX}")):
        with edited(archive, arguments.write) as family:
            failed |= not compare_family(family, arguments.write)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
