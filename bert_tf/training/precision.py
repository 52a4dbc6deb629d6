"""Chooses the fastest precision of a machine, and how a step is compiled for it.

bfloat16 has float32's range and 8 bits of precision. Weights, sums, LayerNorm, softmax and losses
stay float32; matrix products and the operations between them are bfloat16. On a CPU with bfloat16
units (AVX512 BF16, AMX, ARM's BF16) a step takes half the time of float32, on others it is slower.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.run_record import recorded
from bert_tf.config import TrainingConfig
from bert_tf.training import flops
from bert_tf.training.distribution import from_chief, is_chief
from bert_tf.training.flops import has_accelerator, has_bfloat16_units

MIN_GAIN = 1.3  # speed-up of a matrix product; the other operations of a step gain less


def choose_precision(training: TrainingConfig, strategy: tf.distribute.Strategy) -> TrainingConfig:
    """Replaces the precision `auto`, and logs the choice and its reason.

    A resumed run keeps its precision. Several hosts use the fastest precision of the first host. A
    precision that is slow on this machine gets a warning.
    """
    chosen = training.precision
    before = recorded(training.output_dir, "precision")
    if chosen == "auto" and before not in ("", "auto"):
        chosen = before
        logging.info("Precision: %s, as at the start of the run.", chosen)
    elif chosen == "auto":
        chosen, reason = find_precision() if is_chief(strategy) else ("", "as on the first host")
        # Hosts can exchange only numbers.
        (is_half,) = from_chief(strategy, float(chosen == "mixed_bfloat16"))
        chosen = "mixed_bfloat16" if is_half else "float32"
        logging.info("Precision: %s, %s.", chosen, reason)
    is_slow = chosen == "mixed_float16" or (chosen == "mixed_bfloat16" and not has_bfloat16_units())
    if is_slow and not has_accelerator():
        remedy = "--precision=auto would choose the fastest precision"
        if before:
            remedy = "a resumed run keeps its precision"
        logging.warning(
            "--precision=%s, but this CPU has no units for %s: float32 is faster here, and %s.",
            chosen,
            chosen.removeprefix("mixed_"),
            remedy,
        )
    return dataclasses.replace(training, precision=chosen)


def find_precision() -> tuple[str, str]:
    """Returns the fastest precision that needs no loss scale, and the reason."""
    if has_accelerator():
        gpus = tf.config.list_physical_devices("GPU")
        if not gpus:
            return "mixed_bfloat16", "the native precision of TPUs"
        details = tf.config.experimental.get_device_details(gpus[0])
        if details.get("compute_capability", (0, 0)) >= (8, 0):
            return "mixed_bfloat16", "as this GPU has units for bfloat16"
        return "float32", "as this GPU has no units for bfloat16"
    if not has_bfloat16_units():
        return "float32", "as this CPU has no units for bfloat16"
    products = flops.measure_products()
    gain = products["bfloat16"] / products["float32"]
    if gain < MIN_GAIN:
        return "float32", f"as a product in bfloat16 takes {1 / gain:.2f} times as long here"
    return "mixed_bfloat16", f"in which a product is {gain:.1f} times as fast here"


class Compilation(NamedTuple):
    """How a step is compiled.

    Attributes:
      whole: whether XLA compiles the whole step.
      parts: whether it compiles only the regions of `xla_region.py`.
      attention: see `attention_form.py`.
    """

    whole: bool
    parts: bool
    attention: str


def compilation(training: TrainingConfig) -> Compilation:
    """Returns how a step is compiled on this machine; raises ValueError if it has no kernel."""
    if training.attention == "fused" and not tf.config.list_physical_devices("GPU"):
        raise ValueError(
            "--attention=fused is a kernel for GPUs, and TensorFlow sees none; leave it out."
        )
    in_parts = training.precision == "mixed_bfloat16" and not has_accelerator()
    attention = training.attention
    if attention == "auto":
        is_tpu = training.use_tpu or training.distribution == "tpu"
        attention = "by_heads" if is_tpu else "plain"
    whole = training.jit_compile and not in_parts
    return Compilation(whole, training.jit_compile and in_parts, attention)
