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


# From the vendors' data sheets; of two memory sizes the smaller.
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
    """Returns (name, data sheet) of the first GPU; ("", None) without one, None if unknown."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "", None
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")
    return name, data_sheet(name)


def has_accelerator() -> bool:
    """True if there is a GPU or a TPU."""
    return bool(tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU"))


def data_sheet(name: str) -> Device | None:
    """Returns the data sheet of a GPU, by a whole word of its name: an L40S is not an L4."""
    words = re.split(r"[\s\-_]+", name)
    return next((DEVICES[word] for word in words if word in DEVICES), None)


def forward_flops(config: ModelConfig, length: int, predictions: int) -> float:
    """Counts the matrix products of one example's forward pass; a multiply-add is two operations.

    Args:
      config: the model.
      length: T, padding included, since a step computes it.
      predictions: P, rows of the vocabulary product.

    Example: one layer of D = F = N*H = 1 at T = 1, no predictions: projections 8, scores and
      values 4, feed-forward 4, pooler and NSP head 2 + 4: 22.
    """
    d, f, v, t = config.hidden_size, config.intermediate_size, config.vocab_size, length
    e, num_layers = config.table_width, config.num_hidden_layers
    feed_forward = (6 if config.gated_feed_forward else 4) * t * d * f
    seen = sum(seen_pieces(config, index, t) for index in range(num_layers))
    layers = num_layers * (8 * t * d * d + feed_forward) + 4 * t * d * seen
    projection = 2 * t * e * d if e != d else 0
    heads = predictions * (2 * d * e + 2 * e * v) + 2 * d * d + 4 * d
    return float(projection + layers + heads)


def seen_pieces(config: ModelConfig, layer: int, length: int) -> int:
    """Returns how many pieces each piece attends to: T, or three chunks of a long row."""
    chunk = max(config.local_attention // 2, MIN_BLOCK_SIZE)
    return 3 * chunk if config.is_local(layer) and length > MAX_FULL_BLOCKS * chunk else length


def training_flops(config: ModelConfig, length: int, predictions: int) -> float:
    """Counts one example's training step: the backward pass costs twice the forward pass."""
    return 3.0 * forward_flops(config, length, predictions)


def peak_flops(precision: str) -> tuple[float, str]:
    """Returns (FLOP/s of one device, where the number is from); 0 if unknown.

    For a GPU this is its data sheet's value; for a CPU, the current rate of a large float32 matrix
    product.
    """
    name, device = known_gpu()
    if device:
        return device.float32 if precision == "float32" else device.half, f"data sheet of {name}"
    if name:
        return 0.0, f"unknown device {name}"
    return measure_matrix_product(), "a 2048 x 2048 float32 matrix product here"


def measure_matrix_product(size: int = 2048, repeats: int = 10) -> float:
    """Returns the best FLOP/s of a square float32 matrix product.

    The best, not the median, because other work on the machine would lower it.
    """
    matrix = tf.random.stateless_normal([size, size], [0, 0])
    tf.linalg.matmul(matrix, matrix).numpy()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        tf.linalg.matmul(matrix, matrix).numpy()
        seconds.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(seconds)
