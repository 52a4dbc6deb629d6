"""Floating-point operations of a step, and the machine's peak rate."""

import re
import time
from typing import NamedTuple

import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network.attention import MAX_FULL_BLOCKS, MIN_BLOCK_SIZE


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

    The number is the data sheet's for a GPU, and the measured rate of a large float32 matrix
    product for a CPU.
    """
    name, device = known_gpu()
    if device:
        peak = device.float32 if precision == "float32" else device.half
        return peak, f"data sheet of {name}"
    if name:
        return 0.0, f"unknown device {name}"
    return measure_matrix_product(), "a 2048 x 2048 float32 matrix product here"


def measure_matrix_product(size: int = 2048, repeats: int = 10) -> float:
    """Returns the best FLOP/s of a square float32 matrix product.

    It is the best instead of the median rate, which other processes would lower.
    """
    matrix = tf.random.stateless_normal([size, size], [0, 0])
    # The first product, which starts the threads, is not timed.
    tf.linalg.matmul(matrix, matrix).numpy()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        tf.linalg.matmul(matrix, matrix).numpy()
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)
