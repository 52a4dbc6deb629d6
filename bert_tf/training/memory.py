"""Chooses the number of micro-batches so that the activations of a step fit in memory."""

import dataclasses
import os
import pathlib

import tensorflow as tf
from absl import logging

from bert_tf.config import ModelConfig, TrainingConfig
from bert_tf.training.distribution import check_batch_sizes
from bert_tf.training.flops import attended_tokens, known_gpu

# Share of a device's memory for activations; weights, optimizer slots and buffers take the rest.
ACTIVATION_SHARE = 0.3
# Assumed memory of an accelerator that does not report it: a small one, to be safe.
ACCELERATOR_BYTES = 16e9


def activation_bytes(config: ModelConfig, length: int, predictions: int, recompute: bool) -> float:
    """Estimates the memory that one example occupies for the backward pass, in float32.

    A layer keeps about 9 tensors of width D and 3 of width F per position (6 with a gate), and 2 of
    [N, T, S], where S is the number of tokens that a token attends to. With `recompute` it keeps 3
    of width D, and only one layer at a time keeps all of them. The product with the vocabulary
    keeps its [P, V] scores three times. On a CPU under XLA this is correct within 15 %, as measured
    in `docs/measurements/training_speed.md`.
    """
    t = length
    d = config.hidden_size
    n = config.num_attention_heads
    num_layers = config.num_hidden_layers
    feed_forward = (6 if config.gated_feed_forward else 3) * config.intermediate_size
    sizes = []
    for layer in range(num_layers):
        attention = 2 * n * t * attended_tokens(config, layer, t)
        sizes.append(t * (9 * d + feed_forward) + attention)
    # Recomputation keeps the inputs of all layers, and everything of the layer at hand.
    layers = 3 * num_layers * t * d + max(sizes) if recompute else sum(sizes)
    return 4.0 * (layers + 3 * predictions * config.vocab_size)


def micro_batches(batch_size: int, bytes_per_example: float, memory_bytes: float) -> int:
    """Returns the smallest divisor of a replica's batch whose micro-batch fits.

    Example: 256 examples of 100 MB with 8 GB in total: 2.4 GB for activations hold 24,
    so 16 micro-batches of 16.
    """
    budget = ACTIVATION_SHARE * memory_bytes
    for count in range(1, batch_size):
        if batch_size % count == 0 and batch_size // count * bytes_per_example <= budget:
            return count
    return batch_size


def choose_micro_batches(
    training: TrainingConfig, bytes_per_example: float, replicas: int, before: int
) -> TrainingConfig:
    """Returns the loop's configuration with the number of micro-batches, chosen if it is 0.

    Args:
      bytes_per_example: see `activation_bytes`.
      replicas: number of replicas that share a batch.
      before: the number that the run started with, 0 for a new run. Dropout masks depend on it, so
        it is kept unless the devices have too little memory for it. A new run takes the smallest
        number that fits.
    """
    if training.gradient_accumulation_steps:
        return training
    batch_size = training.train_batch_size // replicas
    count = micro_batches(batch_size, bytes_per_example, device_bytes())
    if before >= count and batch_size % before == 0:
        count = before
    elif before:
        logging.info("The run had %d micro-batches per step, on other devices.", before)
    if count > 1:
        logging.info("A step takes %d micro-batches of %d.", count, batch_size // count)
    training = dataclasses.replace(training, gradient_accumulation_steps=count)
    check_batch_sizes(training, replicas)
    return training


def device_bytes() -> float:
    """Returns the memory of one device; for a CPU, what this process may take of the machine."""
    name, device = known_gpu()
    if device:
        return device.memory_bytes
    if name or tf.config.list_logical_devices("TPU"):
        return ACCELERATOR_BYTES
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min([machine, *control_group_limits(pathlib.Path("/"))])


def control_group_limits(root: pathlib.Path) -> list[float]:
    """Returns the limits in bytes that containers, Slurm or systemd set for this process.

    All of them see the memory of the whole machine. A limit holds for the groups below it as well.

    Args:
      root: the root of the file system.
    """
    table = root / "proc/self/cgroup"
    if not table.exists():  # not Linux
        return []
    limits = []
    for line in table.read_text().splitlines():
        _, kinds, group = line.split(":", 2)
        if not kinds:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in kinds.split(","):  # version 1
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = top / group.lstrip("/")
        for path in (folder, *folder.parents):
            if path.is_relative_to(top) and (path / name).exists():
                text = (path / name).read_text().strip()
                if text != "max":
                    limits.append(float(text))
    return limits
