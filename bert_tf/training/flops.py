"""Floating-point operations of a step, and the machine's peak rate."""

import functools
import pathlib
import re
import time
from typing import NamedTuple

import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.attention import MAX_FULL_BLOCKS, MIN_BLOCK_SIZE

CPU_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # those of units for bfloat16
PRODUCT_SIZE = 2048


class Device(NamedTuple):
    """Dense peak FLOP/s with float32 storage (TF32 if available) and with 16 bit; memory."""

    float32: float
    half: float
    memory_bytes: float


# From the vendors' data sheets; the smaller of two memory sizes.
DEVICES = {
    "T4": Device(8.1e12, 65e12, 16e9),
    "V100": Device(15.7e12, 125e12, 16e9),
    "A100": Device(156e12, 312e12, 40e9),
    "A10": Device(62.5e12, 125e12, 24e9),
    "L4": Device(60e12, 121e12, 24e9),
    "H100": Device(495e12, 989e12, 80e9),
    "H200": Device(495e12, 989e12, 141e9),
}


def known_gpu() -> tuple[str, Device | None]:
    """Returns name and data sheet of the first GPU; ("", None) without GPU, None if unknown."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "", None
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")
    return name, data_sheet(name)


def has_accelerator() -> bool:
    """Returns whether there is a GPU or a TPU."""
    return bool(tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU"))


def data_sheet(name: str) -> Device | None:
    """Returns the data sheet of a GPU, found by a whole word of its name: an L40S is not an L4."""
    words = re.split(r"[\s\-_]+", name)
    return next((DEVICES[word] for word in words if word in DEVICES), None)


def forward_flops(config: ModelConfig, length: int, predictions: int) -> float:
    """Counts the matrix products of one example's forward pass; a multiply-add is two operations.

    Args:
      length: T, including padding, which a step computes as well.
      predictions: P, the number of rows in the product with the vocabulary.

    Example: one layer of D = F = N*H = 1 at T = 1, no predictions: projections 8, scores and
      values 4, feed-forward 4, pooler and NSP head 2 + 4: 22.
    """
    t = length
    d = config.hidden_size
    f = config.intermediate_size
    v = config.vocab_size
    e = config.table_width
    num_layers = config.num_hidden_layers
    # Two products of [T, D] and [D, F], three with a gate, two operations each.
    feed_forward = (6 if config.gated_feed_forward else 4) * t * d * f
    attended = sum(attended_tokens(config, index, t) for index in range(num_layers))
    # Four projections with kernels [D, D] take 8 T D^2; scores and values take 2 T D S each.
    layers = num_layers * (8 * t * d * d + feed_forward) + 4 * t * d * attended
    projection = 2 * t * e * d if config.projects_embeddings else 0
    # MLM head: a dense layer and the product with the word table; then pooler and NSP head.
    heads = predictions * (2 * d * e + 2 * e * v) + 2 * d * d + 4 * d
    return float(projection + layers + heads)


def attended_tokens(config: ModelConfig, layer: int, length: int) -> int:
    """Returns the number of tokens that each token attends to: T, or three chunks if local."""
    chunk = max(config.local_attention // 2, MIN_BLOCK_SIZE)
    if config.is_local(layer) and length > MAX_FULL_BLOCKS * chunk:
        return 3 * chunk
    return length


def training_flops(config: ModelConfig, length: int, predictions: int) -> float:
    """Counts one example's training step: the backward pass costs twice the forward pass."""
    return 3.0 * forward_flops(config, length, predictions)


def peak_flops(precision: str) -> tuple[float, str]:
    """Returns the FLOP/s of one device, 0 if unknown, and the source of the number.

    The number is the data sheet's for a GPU, and for a CPU the measured rate of a large matrix
    product in the precision.
    """
    name, device = known_gpu()
    if device:
        peak = device.float32 if precision == "float32" else device.half
        return peak, f"data sheet of {name}"
    if name:
        return 0.0, f"unknown device {name}"
    products = measure_products()
    # Without units a step in bfloat16 is slower than in float32, whose rate is then the peak.
    dtype = precision.removeprefix("mixed_")
    if dtype not in products:
        dtype = "float32"
    return products[dtype], f"a {PRODUCT_SIZE} x {PRODUCT_SIZE} {dtype} matrix product here"


def has_bfloat16_units() -> bool:
    """Returns whether the CPU can multiply bfloat16, according to Linux."""
    path = pathlib.Path("/proc/cpuinfo")
    words = path.read_text(errors="replace").split() if path.exists() else ()
    return not CPU_FLAGS.isdisjoint(words)


@functools.cache
def measure_products(size: int = PRODUCT_SIZE, seconds: float = 0.8) -> dict[str, float]:
    """Returns the FLOP/s of a square matrix product in float32 and, with units, in bfloat16.

    They are measured alternately and the best times count, so that other processes matter little.
    """
    matrices = {"float32": tf.random.stateless_normal([size, size], [0, 0])}
    if has_bfloat16_units():
        matrices["bfloat16"] = tf.cast(matrices["float32"], tf.bfloat16)
    best = dict.fromkeys(matrices, float("inf"))
    end = 0.0
    while not end or time.perf_counter() < end:
        for dtype, matrix in matrices.items():
            start = time.perf_counter()
            # Reading an element waits until the product is computed.
            tf.linalg.matmul(matrix, matrix)[0, 0].numpy()
            if end:  # The first round, which starts the threads, is not timed.
                best[dtype] = min(best[dtype], time.perf_counter() - start)
        end = end or time.perf_counter() + seconds
    return {dtype: 2.0 * size**3 / least for dtype, least in best.items()}
