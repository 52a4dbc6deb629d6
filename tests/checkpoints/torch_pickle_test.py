"""A pytorch_model.bin is read as torch reads it; nothing in a hostile or damaged one runs.

Most files here are assembled instruction by instruction, as torch.save writes them, so that no
torch is needed and that lies can be told. Where torch is there, it reads them too.
"""

import io
import pathlib
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest

from bert_tf.checkpoints.torch_pickle import MAX_PICKLE_BYTES, read_torch_weights
from tests.checkpoints.made_pickle import (
    EMPTY,
    FLOATS,
    REBUILD,
    SIX,
    Hostile,
    call,
    name,
    number,
    numbers,
    state_dict,
    storage,
    tensor,
    text,
    write,
)
from tests.slow_variants import slow_where


def assert_refused(path: pathlib.Path, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_torch_weights(path)
    assert str(path) in str(caught.value) and "safe_serialization=True" in str(caught.value)


DTYPES = {
    "Float": (struct.pack("<3f", 1.5, -2, 3e38), np.array([1.5, -2, 3e38], np.float32)),
    "Half": (b"\x00\x3c\x00\xc1\x01\x00", np.array([1, -2.5, 2**-24], np.float16)),
    "Double": (struct.pack("<d", 0.1), np.array([0.1], np.float64)),
    "Long": (struct.pack("<2q", -1, 2**62), np.array([-1, 2**62], np.int64)),
    "Int": (struct.pack("<2i", -1, 2**30), np.array([-1, 2**30], np.int32)),
    "Short": (b"\xff\xff\x00\x01", np.array([-1, 256], np.int16)),
    "Char": (b"\xff\x7f", np.array([-1, 127], np.int8)),
    "Byte": (b"\xff\x7f", np.array([255, 127], np.uint8)),
    "Bool": (b"\x00\x01", np.array([False, True])),
}


@pytest.mark.parametrize("kind", DTYPES)
def test_types_stay(tmp_path, kind):
    content, expected = DTYPES[kind]
    stored = storage(len(expected), f"torch.{kind}Storage")
    pickled = state_dict({"a": tensor(stored, (len(expected),), (1,))})
    (array,) = read_torch_weights(write(tmp_path / "f", pickled, {"0": content})).values()
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_bfloat16_becomes_float32_bit_for_bit(tmp_path):
    # one, -pi cut to 8 bits, the smallest subnormal, infinity, a NaN with a payload
    halves = [0x3F80, 0xC049, 0x0001, 0x7F80, 0x7FC1]
    pickled = state_dict({"a": tensor(storage(5, "torch.BFloat16Storage"), (5,), (1,))})
    path = write(tmp_path / "f", pickled, {"0": struct.pack("<5H", *halves)})
    array = read_torch_weights(path)["a"]
    assert array.dtype == np.float32 and array[:2].tolist() == [1.0, -3.140625]
    assert array.view(np.uint32).tolist() == [half * 65536 for half in halves]


def test_views_have_the_offset_and_strides_of_the_tensors(tmp_path):
    stored = storage(6)
    views = {
        "transposed": tensor(stored, (3, 2), (1, 3)),
        "second row": tensor(stored, (3,), (1,), offset=3),
        "every other": tensor(stored, (2,), (2,), offset=1),
        "expanded": tensor(stored, (2, 3), (0, 1)),
        "scalar": tensor(stored, (), (), offset=5),
        "empty": tensor(stored, (0, 4), (1, 4), offset=6),
    }
    weights = read_torch_weights(write(tmp_path / "f", state_dict(views)))
    assert {key: array.tolist() for key, array in weights.items()} == {
        "transposed": [[0, 3], [1, 4], [2, 5]],
        "second row": [3, 4, 5],
        "every other": [1, 3],
        "expanded": [[0, 1, 2], [0, 1, 2]],
        "scalar": 5,
        "empty": [],
    }
    assert weights["empty"].shape == (0, 4)
    assert list(weights) == list(views)


def test_tied_weights_share_memory_that_nobody_can_write_to(tmp_path):
    bfloats = storage(2, "torch.BFloat16Storage", "b")
    views = {
        "a": tensor(storage(6), (2, 3), (3, 1)),
        "tied": tensor(storage(6), (2, 3), (3, 1)),
        "b": tensor(bfloats, (2,), (1,)),
        "b tied": tensor(bfloats, (2,), (1,)),
    }
    path = write(tmp_path / "f", state_dict(views), FLOATS | {"b": b"\x80\x3f\x00\x40"})
    weights = read_torch_weights(path)
    assert np.shares_memory(weights["a"], weights["tied"])
    assert np.shares_memory(weights["b"], weights["b tied"])
    assert not any(array.flags.writeable for array in weights.values())


def test_parameters_metadata_and_newer_protocols_are_read(tmp_path):
    plain = tensor(storage(6), (6,), (1,))
    parameter = call("torch._utils._rebuild_parameter", plain, b"\x88", EMPTY)
    # OrderedDict._metadata, as torch sets it: the version of each layer.
    versions = b"}" + text("_metadata") + EMPTY + text("") + b"}" + text("version") + b"K\x01sssb"
    pickled = state_dict({"a": plain, "b": parameter})[:-1] + versions + b"."
    weights = read_torch_weights(write(tmp_path / "f", pickled))
    assert [array.tolist() for array in weights.values()] == [[0, 1, 2, 3, 4, 5]] * 2

    framed = b"\x80\x04\x95" + struct.pack("<Q", len(pickled)) + pickled[2:]
    stacked = b"\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x93"
    framed = framed.replace(name("collections.OrderedDict"), stacked)
    weights = read_torch_weights(write(tmp_path / "f", framed))
    assert [array.tolist() for array in weights.values()] == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("protocol", range(6))
def test_hostile_pickle_is_named_and_not_run(tmp_path, protocol):
    target = tmp_path / "made"
    pickled = pickle.dumps(Hostile(target), protocol)
    pickle.loads(pickled)
    target.unlink()  # so it would have worked
    assert_refused(write(tmp_path / "f", pickled), r"'_*builtins?_*\.exec'")
    assert not target.exists()


ODD = {
    "key of int": b"}K\x01Nsss.",
    "deep tuples as a key": b"})" + b"\x85" * 200_000 + b"Ns.",
    "deep tuples as a name": b")" + b"\x85" * 200_000 + b"\x8c\x01a\x93.",
    "wide tuples as a name": b")" + b"q\0h\0\x86" * 200 + b"\x8c\x01a\x93.",
    "call of a dict": b"})R.",
    "call of a storage class": call("torch.FloatStorage", number(9)) + b".",
    "dict of a list": call("collections.OrderedDict", b"]") + b".",
    "tensor of nothing": call(REBUILD) + b".",
    "dict of a tensor": (
        call("collections.OrderedDict", tensor(storage(6), (6,), (1,)), b"NN") + b"."
    ),
    "parameter of a storage": (
        call("torch._utils._rebuild_parameter", storage(6), b"K\0))NN") + b"."
    ),
    "state of a name": name(REBUILD) + b"}b.",
    "state of a tensor": state_dict(
        {"a": tensor(storage(6), (3,), (1,)) + b"}" + text("offset") + b"K\x02sb"}
    ),
    "slots of a tensor": state_dict(
        {"a": tensor(storage(6), (3,), (1,)) + b"N}" + text("offset") + b"K\x02s\x86b"}
    ),
    "item of a name": name(REBUILD) + text("a") + b"Ns.",
    "append to a dict": b"}Na.",
    "new object": name("collections.OrderedDict") + b")\x81.",
    "new object with keywords": b"\x80\x04" + name("collections.OrderedDict") + b")}\x92.",
    "instance": b"(icollections\nOrderedDict\n.",
    "object": b"(" + name("collections.OrderedDict") + b"o.",
    "dict of deep tuples": b"()" + b"\x85" * 200_000 + b"Nd.",
    "set of deep tuples": b"\x80\x04\x8f()" + b"\x85" * 200_000 + b"\x90.",
    "extension": b"\x82\x01.",
    "no dict": b"].",
    "inner state dict": state_dict({"model": SIX[2:-1]}),
    "number": state_dict({"epoch": number(3)}),
    "more than there is": b"\x86.",
    "no mark": b"t.",
    "odd items": b"}(" + text("a") + b"u.",
    "nothing remembered": b"h\x00.",
    "empty": b"",
    "no opcode": b"\xff.",
    "bad escape": b"S'\\z'\n.",
    "large": b"N" * MAX_PICKLE_BYTES + b".",
}


@pytest.mark.parametrize("case", slow_where(lambda case: case.startswith("deep tuples as"), ODD))
def test_other_pickles_are_refused(tmp_path, case):
    assert_refused(write(tmp_path / "f", ODD[case]), "/f ")


def test_large_memo_index_takes_no_memory(tmp_path):
    pickled = SIX[:-1] + b"r\xff\xff\xff\xff."
    assert read_torch_weights(write(tmp_path / "f", pickled))["a"].tolist() == [0, 1, 2, 3, 4, 5]


BAD_VIEWS = {
    "too long": ((7,), (1,), 0, r"\[7\] .*element 6 .*storage '0', .*6"),
    "offset": ((6,), (1,), 1, "element 6 .*storage '0', .*6"),
    "strides": ((2, 3), (4, 1), 0, "element 6 .*storage '0', .*6"),
    "scalar outside": ((), (), 6, "element 6 .*storage '0', .*6"),
    "negative offset": ((1,), (1,), -1, REBUILD),
    "negative stride": ((2,), (-1,), 1, REBUILD),
    "negative size": ((-1,), (1,), 0, REBUILD),
    "strides too few": ((2, 3), (1,), 0, REBUILD),
    "many dimensions": ((1,) * 33, (1,) * 33, 0, REBUILD),
    "beyond 64 bits": ((2**70,), (0,), 0, "dimension"),
    "more than an address": ((2**40, 2**40), (0, 0), 0, r"arr\.size \* arr\.dtype\.itemsize"),
}


@pytest.mark.parametrize("case", BAD_VIEWS)
def test_views_outside_their_storage_are_refused(tmp_path, case):
    shape, strides, offset, message = BAD_VIEWS[case]
    pickled = state_dict({"a": tensor(storage(6), shape, strides, offset)})
    assert_refused(write(tmp_path / "f", pickled), message)


BAD_TENSORS = {
    "too few": (tensor(storage(7), (1,), (1,)), "storage '0' .*6 .*torch.FloatStorage, .*7"),
    "too many": (tensor(storage(5), (1,), (1,)), "storage '0' .*6 .*torch.FloatStorage, .*5"),
    "half an element": (tensor(storage(1, key="h"), (1,), (1,)), "element size"),
    "no such entry": (tensor(storage(6, key="9"), (1,), (1,)), "'model/data/9'"),
    "unknown type": (tensor(storage(6, "torch.QInt8Storage"), (1,), (1,)), "'torch.QInt8Storage'"),
    "no storage": (tensor(b"N", (1,), (1,)), REBUILD),
    "no description": (tensor(b"NQ", (1,), (1,)), "pickle .*storage "),
    "no type": (tensor(storage(6, REBUILD), (1,), (1,)), "pickle .*storage "),
    "negated": (
        call(REBUILD, storage(6), number(0), numbers(6), numbers(1), b"\x89N}"),
        REBUILD,
    ),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_tensors_that_lie_about_their_storage_are_refused(tmp_path, case):
    pickled, message = BAD_TENSORS[case]
    path = write(tmp_path / "f", state_dict({"a": pickled}), FLOATS | {"h": b"123456"})
    assert_refused(path, message)


def test_one_storage_has_one_type(tmp_path):
    views = {
        "a": tensor(storage(6), (6,), (1,)),
        "b": tensor(storage(6, "torch.IntStorage"), (6,), (1,)),
    }
    assert_refused(write(tmp_path / "f", state_dict(views)), "FloatStorage.*IntStorage")


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "f"
    for content, message in {
        b"version https://git-lfs.github.com/spec/v1\noid": "git lfs pull",
        b"": "zip file: .*b''",
        pickle.dumps({}): "zip file: .*b'.x80.x04",
    }.items():
        path.write_bytes(content)
        assert_refused(path, message)
    with pytest.raises(FileNotFoundError):
        read_torch_weights(tmp_path / "missing")


def test_zip_files_that_torch_does_not_write_are_refused(tmp_path):
    path = tmp_path / "f"
    assert_refused(write(path, byteorder=b"big"), "b'big', .*b'little'")
    with zipfile.ZipFile(write(path), "a") as zipped:
        zipped.writestr("other/data.pkl", SIX)
    assert_refused(path, r"data.pkl .* 2\. ")
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("model/weights", b"")
    assert_refused(path, r"data.pkl .* 0\. ")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("model/data.pkl", SIX)
    assert_refused(path, "'model/data.pkl' .*compress")


def restate(content: bytes, stored: int, size: int, method: int = 0) -> bytes:
    """Returns a zip file whose table of contents states other sizes for the storage."""
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"model/data/0"))
    table = bytearray(content)
    struct.pack_into("<H", table, entry + 10, method)
    struct.pack_into("<2I", table, entry + 20, stored, size)
    return bytes(table)


def test_sizes_and_checksums_of_the_zip_are_compared(tmp_path):
    path = write(tmp_path / "f")
    content = path.read_bytes()
    assert restate(content, 24, 24) == content
    for stated, message in {
        (2**31, 2**31): f" bytes, .* {len(content)}",
        (28, 28): "CRC|Overlapped",  # newer versions of Python see that entries overlap
        (20, 20): "CRC",
        (24, 2**31): "'model/data/0' .*compress",
        (24, 24, zipfile.ZIP_DEFLATED): "'model/data/0' .*compress",
    }.items():
        path.write_bytes(restate(content, *stated))
        assert_refused(path, message)
    path.write_bytes(content.replace(FLOATS["0"], FLOATS["0"][::-1]))
    assert_refused(path, "CRC-32 .*'model/data/0'")


def test_cut_files_are_refused_wherever_they_are_cut(tmp_path):
    path = write(tmp_path / "f")
    content = path.read_bytes()
    for size in range(4, len(content)):
        path.write_bytes(content[:size])
        assert_refused(path, r"zip file, .*\(.*zip file\)")


def test_pickle_with_a_changed_byte_is_read_or_refused(tmp_path):
    path = tmp_path / "f"
    outcomes = set()
    for position in range(len(SIX)):
        for change in (1, 2, 128):
            pickled = bytearray(SIX)
            pickled[position] ^= change
            write(path, bytes(pickled))
            try:
                outcomes.add(type(read_torch_weights(path)))
            except ValueError as error:
                outcomes.add("refused" if str(path) in str(error) else "unexplained")
    assert outcomes == {dict, "refused"}


@pytest.fixture
def torch():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch")


@pytest.mark.needs("torch")
def test_torch_reads_the_files_of_these_tests(tmp_path, torch):
    views = {
        "a": tensor(storage(6), (3, 2), (1, 3)),
        "b": tensor(storage(2, "torch.BFloat16Storage", "b"), (2,), (1,)),
    }
    path = write(tmp_path / "f", state_dict(views), FLOATS | {"b": b"\x80\x3f\x00\x40"})
    loaded = torch.load(path, weights_only=True)
    weights = read_torch_weights(path)
    assert list(loaded) == list(weights)
    for key, expected in loaded.items():
        np.testing.assert_array_equal(weights[key], expected.float().numpy())


def bert_like(torch):
    """Returns a module with the parts of a BERT for pretraining, its decoder tied."""
    words, hidden = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 6)
    decoder = torch.nn.Linear(6, 11)
    decoder.weight = words.weight
    parts = {"words": words, "norm": torch.nn.LayerNorm(6), "dense": hidden, "decoder": decoder}
    module = torch.nn.ModuleDict(parts)
    module.register_buffer("position_ids", torch.arange(8).expand((1, -1)))
    return module


def same_bits(torch, array: np.ndarray, expected) -> bool:
    """Compares with the tensor's own bytes; NumPy has no bfloat16, whose widening is torch's."""
    widened = expected.float() if expected.dtype == torch.bfloat16 else expected
    own = widened.detach().numpy()
    return (array.dtype, array.shape) == (own.dtype, own.shape) and array.tobytes() == own.tobytes()


@pytest.mark.needs("torch")
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_equals_torch_bit_for_bit(tmp_path, torch, dtype, protocol):
    module = bert_like(torch).to(getattr(torch, dtype))
    saved = module.state_dict(keep_vars=True)  # so that some are Parameters
    saved |= {"view": module["dense"].weight.detach()[1:, ::2].t(), "none": torch.zeros(0, 3)}
    saved |= {"scalar": torch.tensor(True), "bytes": torch.arange(256).to(torch.uint8)}
    torch.save(saved, tmp_path / "f", pickle_protocol=protocol)

    weights = read_torch_weights(tmp_path / "f")
    assert list(weights) == list(saved)
    assert all(same_bits(torch, weights[key], saved[key]) for key in saved)
    assert np.shares_memory(weights["words.weight"], weights["decoder.weight"])
    assert weights["view"].strides[0] == 2 * weights["view"].itemsize

    torch.save(
        saved, tmp_path / "f", pickle_protocol=protocol, _use_new_zipfile_serialization=False
    )
    old = read_torch_weights(tmp_path / "f")
    assert list(old) == list(saved)
    assert all(same_bits(torch, old[key], saved[key]) for key in saved)


@pytest.mark.needs("torch")
def test_what_torch_saves_beside_tensors_is_refused(tmp_path, torch):
    ones = torch.ones(3)
    for saved, message in (
        ({"state_dict": {"a": ones}}, "'state_dict' .*dict"),
        ({"a": ones, "step": 3}, "'step' .*int, .*tensor"),
        ({"a": {0: ones}}, "key .*int, .*str"),
        (ones, r"dict .*tensors .* tensor\."),
        (torch.nn.Linear(2, 2), r"'torch\.nn\.modules\.linear\.Linear'"),
        ({"a": ones.to_sparse()}, "_rebuild_sparse_tensor"),
        ({"a": ones.to(torch.complex64)}, "ComplexFloatStorage"),
        ({"a": ones.to(torch.uint16)}, "_rebuild_tensor_v3"),
        ({"a": torch.ones(3, device="meta")}, "_rebuild_meta_tensor"),
        ({"a": (1j * ones).conj().imag}, REBUILD),
    ):
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        (tmp_path / "f").write_bytes(buffer.getvalue())
        assert_refused(tmp_path / "f", message)
