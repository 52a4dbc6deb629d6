"""Chooses the number of micro-batches so that the activations of a step fit in memory."""

import dataclasses
import os
import pathlib

import tensorflow as tf
from absl import logging

from bert_tf.config import ModelConfig, TrainingConfig
from bert_tf.training.distribution import check_batch_sizes
from bert_tf.training.flops import known_gpu, seen_pieces

# Share of a device's memory for activations; weights, slots and buffers take the rest.
ACTIVATION_SHARE = 0.3
# Memory of an accelerator that does not tell: that of a small one, so that a guess is safe.
ACCELERATOR_BYTES = 16e9


def activation_bytes(config: ModelConfig, length: int, predictions: int, recompute: bool) -> float:
    """Estimates the memory that one example occupies for the backward pass, in float32.

    A layer keeps about 9 tensors of width D and 3 of width F per position (6 with a gate), and 2 of
    [N, T, S], S being the number of pieces that a piece attends to; with `recompute` it keeps 3 of
    width D, and only one layer at a time keeps everything. The vocabulary product keeps its [P, V]
    scores three times. On a CPU under XLA this is correct within 15 %, as measured by `python -m
    benchmarks.activation_memory`.
    """
    d, f, n, t = (
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        length,
    )
    kept = config.num_hidden_layers
    wide = 6 * f if config.gated_feed_forward else 3 * f
    sizes = [t * (9 * d + wide) + 2 * n * t * seen_pieces(config, i, t) for i in range(kept)]
    layers = 3 * kept * t * d + max(sizes) if recompute else sum(sizes)
    return 4.0 * (layers + 3 * predictions * config.vocab_size)


def micro_batches(batch_size: int, bytes_per_example: float, memory_bytes: float) -> int:
    """Returns the smallest divisor of a replica's batch whose micro-batch fits.

    Example: 256 examples of 100 MB with 8 GB for everything: 2.4 GB for activations hold 24,
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
      training: the configuration.
      bytes_per_example: see `activation_bytes`.
      replicas: number of replicas that share a batch.
      before: the number that the run began with, because dropout masks depend on it: kept, unless
        it needs more memory than these devices have; 0 for a new run, which takes the smallest that
        fits.
    """
    if training.gradient_accumulation_steps:
        return training
    batch_size = training.train_batch_size // replicas
    count = micro_batches(batch_size, bytes_per_example, device_bytes())
    if before >= count and batch_size % before == 0:
        count = before
    elif before:
        logging.info("The run had %d micro-batches a step, on other devices.", before)
    if count > 1:
        logging.info("A step takes %d micro-batches of %d.", count, batch_size // count)
    training = dataclasses.replace(training, gradient_accumulation_steps=count)
    check_batch_sizes(training, replicas)
    return training


def device_bytes() -> float:
    """Returns the memory of one device; for a CPU the machine's, or the container's if smaller."""
    name, device = known_gpu()
    if device:
        return device.memory_bytes
    if name or tf.config.list_logical_devices("TPU"):
        return ACCELERATOR_BYTES
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return machine if text == "max" else min(machine, float(text))
