"""Reads the weights of a Hugging Face folder from any of its files, under PyTorch's names.

    model.safetensors    pytorch_model.bin    tf_model.h5    and the shards of each

Weights of transformers' TensorFlow classes are translated, see `tensorflow_names`; wrappers around
the model, which add a prefix to all names, are removed.
"""

import pathlib

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import Weights
from bert_tf.checkpoints.hdf5 import read_h5
from bert_tf.checkpoints.tensorflow_names import (
    TRANSLATED,
    is_tensorflow,
    pytorch_name,
    rename_tensorflow,
)
from bert_tf.checkpoints.torch_pickle import read_torch_weights
from bert_tf.system.bounded_files import check_regular
from bert_tf.system.files import read_json

# The first that a folder has is read.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    "tf_model.h5.index.json",
)
# Of a .safetensors file: about 30,000 names; each takes time in several places.
MAX_HEADER_BYTES = 4 << 20
# Prefixes of all names by the wrapper that adds them: parallel training, torch.compile, PEFT.
WRAPPER_PREFIXES = ("module.", "_orig_mod.", "base_model.model.")


def read_weights(folder: pathlib.Path) -> tuple[Weights, list[str]]:
    """Returns the float32 weights of a folder under PyTorch's current names, and notes."""
    path = next(folder / name for name in WEIGHT_FILES if (folder / name).exists())
    file_weights = _read_shards(path) if path.suffix == ".json" else read_weight_file(path)
    notes = []
    if is_tensorflow(list(file_weights)):
        file_weights = rename_tensorflow(file_weights)
        notes.append(TRANSLATED)
    file_weights, more_notes = modern_names(file_weights, folder)
    return file_weights, [*notes, *more_notes]


def _read_shards(path: pathlib.Path) -> Weights:
    """Reads all files that an index names."""
    shards = read_json(path).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise ValueError(f"{path}: it has no weight_map of names and files; the index is damaged.")
    weights: Weights = {}
    for name in sorted(set(shards.values())):
        # A name with ../ would read any file of the machine.
        if pathlib.PurePath(name).name != name:
            raise ValueError(f"{path}: the shard {name!r} is outside of its folder.")
        weights |= read_weight_file(path.parent / name)
    # In an index of TensorFlow's weights the names begin with that of the model.
    received = set(map(pytorch_name, weights))
    missing = [name for name in sorted(shards) if pytorch_name(name) not in received]
    if missing:
        raise ValueError(f"{path} names weights that are in no shard: {missing[:5]}.")
    return weights


def read_weight_file(path: pathlib.Path) -> Weights:
    """Reads a .safetensors, .bin or .h5 by the names in it."""
    if not path.exists():
        raise ValueError(f"{path} is missing; copy it to the other files of the model.")
    check_regular(path)
    if path.suffix == ".h5":
        return _read_keras_layers(path)
    if path.suffix == ".bin":
        weights = read_torch_weights(path)
        # A view may repeat one stored number without end; a file this dishonest is not widened.
        if sum(value.size for value in weights.values()) > 4 * path.stat().st_size:
            raise ValueError(f"{path} describes far more numbers than it holds; it is not read.")
        return weights
    check_header(path)
    try:
        return safetensors.numpy.load_file(path)
    except AttributeError as error:  # float8: of numpy, which has none
        raise ValueError(
            f"{path} has weights of a type other than float32, float16 or bfloat16 ({error}); save "
            "the model in one of these."
        ) from None
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}.") from None


def check_header(path: pathlib.Path) -> None:
    """Raises ValueError if a .safetensors file says that its names take more than some megabytes.

    A length beyond the file is left to the library.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if MAX_HEADER_BYTES < size < path.stat().st_size:
        raise ValueError(
            f"{path} has a header of {size} bytes, expected at most {MAX_HEADER_BYTES}; save the "
            "weights alone."
        )


def _read_keras_layers(path: pathlib.Path) -> Weights:
    """Reads a tf_model.h5 or a shard of one by the names of its variables.

    A whole file is divided into layers, whose arrays have the name of the model before their own:
    classifier/tf_bert_for_sequence_classification/classifier/kernel:0. A shard has only names. The
    layer of a masked language model's head repeats the embeddings.
    """
    weights: Weights = {}
    for array_path, value in read_h5(path).items():
        name = array_path
        if "-of-" not in path.name:
            name = "/".join(array_path.split("/")[2:])
        if not np.array_equal(weights.setdefault(name, value), value):
            raise ValueError(f"{path} holds two different arrays for {name}.")
    return weights


def modern_names(file_weights: Weights, folder: pathlib.Path) -> tuple[Weights, list[str]]:
    """Returns float32 weights with PyTorch's current names, without buffers, and notes.

    Prefixes that all names have from wrappers are dropped, and LayerNorm's legacy names replaced.
    Weights that are not floating-point numbers are an error.
    """
    file_weights, notes = _unwrapped(file_weights)
    weights = {}
    for name, value in file_weights.items():
        if name.endswith("embeddings.position_ids"):
            continue  # 0, 1, 2 .., in files of older releases
        if name.endswith(("LayerNorm.gamma", "LayerNorm.beta")):
            name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        weights[name] = value
    kinds = sorted({str(value.dtype) for value in weights.values()} - {"float32"})
    others = [kind for kind in kinds if kind not in ("float16", "bfloat16", "float64")]
    if others:
        raise ValueError(f"{folder}: weights of {', '.join(others)}; expected floating point.")
    if kinds:
        notes.append(f"Weights stored as {', '.join(kinds)} were converted to float32.")
    return {name: value.astype(np.float32, copy=False) for name, value in weights.items()}, notes


def _unwrapped(file_weights: Weights) -> tuple[Weights, list[str]]:
    """Returns the weights without the prefixes of wrappers, and notes about these."""
    dropped = ""
    while file_weights:
        first = next(iter(file_weights))
        prefix = next((p for p in WRAPPER_PREFIXES if first.startswith(p)), "")
        if not prefix or not all(name.startswith(prefix) for name in file_weights):
            break
        file_weights = {name.removeprefix(prefix): value for name, value in file_weights.items()}
        dropped += prefix
    notes = [f"The prefix {dropped} of all names was dropped."] if dropped else []
    return file_weights, notes
