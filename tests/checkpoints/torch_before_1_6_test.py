"""Files of torch before 1.6, which are no zip files: read, or refused where they lie."""

import pickle
import struct

import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints.torch_pickle import read_torch_weights
from tests.checkpoints.made_pickle import (
    Hostile,
    name,
    number,
    state_dict,
    storage,
    tensor,
    text,
    tuple_of,
)
from tests.shared_data import golden_file


def old_file(**changes: bytes) -> bytes:
    """Returns a file as torch wrote it before 1.6: six floats under the key "7"."""
    described = tuple_of(
        text("storage"), name("torch.FloatStorage"), text("7"), text("cpu"), number(6), b"N"
    )
    parts = {
        "magic": pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        "protocol": pickle.dumps(1001, 2),
        "machine": pickle.dumps({"little_endian": True, "type_sizes": {"int": 4}}, 2),
        "state_dict": state_dict({"a": tensor(described + b"Q", (3, 2), (1, 3))}),
        "keys": pickle.dumps(["7"], 2),
        "storage": struct.pack("<q6f", 6, *range(6)),
    }
    return b"".join((parts | changes).values())


def test_files_of_torch_before_1_6_are_read(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(old_file())
    assert read_torch_weights(path)["a"].tolist() == [[0, 3], [1, 4], [2, 5]]

    folder = golden_file("families", "old_weights")
    expected = safetensors.numpy.load_file(folder / "safetensors" / "model.safetensors")
    for kind in ("legacy_bin", "legacy_bin_gamma_beta", "zip_bin"):
        weights = read_torch_weights(folder / kind / "pytorch_model.bin")
        renamed = {}
        for key, value in weights.items():
            key = key.replace("LayerNorm.gamma", "LayerNorm.weight")
            renamed[key.replace("LayerNorm.beta", "LayerNorm.bias")] = value
        assert expected.keys() <= renamed.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(renamed[key], value)


OLD_LIES = {
    "protocol": pickle.dumps(1002, 2),
    "machine": pickle.dumps({"little_endian": False}, 2),
    "keys": pickle.dumps(["8"], 2),
    "storage": struct.pack("<q7f", 7, *range(7)),
    "state_dict": state_dict({"a": tensor(storage(6, key="8"), (6,), (1,))}),
}


@pytest.mark.parametrize("part", OLD_LIES)
def test_old_files_that_contradict_themselves_are_refused(tmp_path, part):
    path = tmp_path / "f"
    path.write_bytes(old_file(**{part: OLD_LIES[part]}))
    with pytest.raises(ValueError, match=str(path)):
        read_torch_weights(path)


def test_cut_old_files_are_refused_wherever_they_are_cut(tmp_path):
    path = tmp_path / "f"
    content = old_file()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=str(path)):
            read_torch_weights(path)


def test_hostile_old_file_is_named_and_not_run(tmp_path):
    target = tmp_path / "made"
    for part in ("machine", "state_dict", "keys"):
        path = tmp_path / "f"
        path.write_bytes(old_file(**{part: pickle.dumps(Hostile(target), 2)}))
        with pytest.raises(ValueError, match=r"exec"):
            read_torch_weights(path)
        assert not target.exists()
