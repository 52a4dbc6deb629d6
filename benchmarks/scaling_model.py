"""Calculates how well data-parallel BERT training scales; nothing here was measured.

    python -m benchmarks.scaling_model --plot=docs/scaling.png

A step is compute, all-reduce of the float32 gradients and update:

    compute   examples x FLOPs of an example / (peak x share of the peak that is reached)
    all-reduce  in a node a ring, 2 (n - 1) / n x bytes / bandwidth + 2 (n - 1) x latency; between
              the nodes another of each device's n-th part
    update    bytes of weights, gradients and slots / memory bandwidth; LAMB's norms read some twice

Efficiency is the time of a step on one device over that on n, with the same examples a device. "no
overlap" waits for the all-reduce, as this loop does; "overlap" hides it behind the backward pass of
the last micro-batch, but for the embeddings, whose gradient comes last.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.config import ModelConfig
from bert_tf.system.files import atomic_write
from bert_tf.training.flops import training_flops

PLOT = flags.DEFINE_string("plot", "", "PNG file to draw.")

BYTES = 4  # Of a gradient, a weight, a slot: float32 whatever the precision of the products.
# Passes over the weights: read gradient, weight and two slots, write weight and slots.
ADAM_PASSES = 7
LAMB_PASSES = 11  # And: write the update, read it and the weight for their norms, read it again.
BACKWARD_SHARE = 2 / 3


class Machine(NamedTuple):
    """Devices and the links between them; bytes/s in one direction, as the data sheets have them.

    Attributes:
      peak: FLOP/s of a device, 16 bit.
      shares: of the peak that is reached, by length.
      memory: bytes/s of a device's memory.
      node: devices of a node, or of a TPU pod.
      inside, outside: bytes/s of a device to others of its node, and to other nodes.
      inside_latency, outside_latency: seconds of a hop.
    """

    peak: float
    shares: dict[int, float]
    memory: float
    node: int
    inside: float
    outside: float
    inside_latency: float
    outside_latency: float


# NVIDIA's published 485.6 and 96.5 examples/s of BERT-Large on one A100, by the FLOPs counted here;
# the other accelerators are taken to reach the same.
REACHED = {128: 0.37, 512: 0.32}
HOPS = (3.4e-6, 14e-6)  # Over NVLink and over a network.
MACHINES = {
    "A100": Machine(312e12, REACHED, 2.0e12, 8, 300e9, 25e9, *HOPS),
    "A100, 100 Gb/s a node": Machine(312e12, REACHED, 2.0e12, 8, 300e9, 12.5e9 / 8, *HOPS),
    "H100": Machine(989e12, REACHED, 3.35e12, 8, 450e9, 50e9, *HOPS),
    "TPU v5e": Machine(197e12, REACHED, 819e9, 256, 200e9, 3.125e9, 1e-6, HOPS[1]),
    # Measured: docs/measurements/training_speed.md.
    "2 cores, 10 Gb/s": Machine(303e9, {128: 0.79, 512: 0.7}, 15e9, 1, 15e9, 1.25e9, 5e-5, 5e-5),
}
BASE = ModelConfig()
LARGE = ModelConfig(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
)
MODELS = {"Base": BASE, "Large": LARGE}
EXAMPLES = {128: 64, 512: 16}  # A micro-batch of a device, by length.
PREDICTIONS = {128: 20, 512: 80}
COUNTS = (8, 64, 1024)


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds of the parts of a step; `exposed` is what is waited for of the all-reduce."""

    compute: float
    exposed: float
    update: float

    @property
    def total(self) -> float:
        return self.compute + self.exposed + self.update


def num_parameters(config: ModelConfig) -> tuple[int, int]:
    """Returns (all weights of a BertPretrainer, those of the embeddings)."""
    d, f = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    embeddings = rows * d + 2 * d
    layer = 4 * (d * d + d) + 2 * d * f + f + d + 4 * d
    heads = 2 * (d * d + d) + 2 * d + config.vocab_size + 2 * d + 2
    return embeddings + config.num_hidden_layers * layer + heads, embeddings


def ring_seconds(size: float, count: int, bandwidth: float, latency: float) -> float:
    """Returns the time of an all-reduce of `size` bytes around a ring.

    Example: 8 bytes, 4 devices, 2 bytes/s, hops of 1 s: 6 parts of 2 bytes, 6 hops: 12 s.
    """
    return 2 * (count - 1) / count * size / bandwidth + 2 * (count - 1) * latency


def all_reduce_seconds(machine: Machine, size: float, count: int) -> float:
    """Returns the time of an all-reduce in the nodes and then between them."""
    inside = min(count, machine.node)
    nodes = count // inside
    seconds = ring_seconds(size, inside, machine.inside, machine.inside_latency)
    return seconds + ring_seconds(size / inside, nodes, machine.outside, machine.outside_latency)


def step(
    machine: Machine,
    config: ModelConfig,
    length: int,
    count: int,
    *,
    micro_batches: int = 1,
    overlap: bool = False,
    passes: int = LAMB_PASSES,
    examples: int = 0,
) -> Step:
    """Returns the parts of a step on `count` devices.

    Args:
      machine, config, length: what trains what.
      count: devices; as many as a node has or fewer, or a multiple.
      micro_batches: before each all-reduce.
      overlap: whether the all-reduce runs while the backward pass does.
      passes: of the optimizer over the weights.
      examples: a micro-batch of a device; 0: that of `EXAMPLES`.
    """
    flops = training_flops(config, length, PREDICTIONS[length])
    once = (examples or EXAMPLES[length]) * flops / (machine.peak * machine.shares[length])
    weights, embeddings = num_parameters(config)
    exposed = all_reduce_seconds(machine, BYTES * weights, count)
    if overlap:
        last = all_reduce_seconds(machine, BYTES * embeddings, count)
        exposed = max(last, exposed - BACKWARD_SHARE * once)
    return Step(micro_batches * once, exposed, passes * BYTES * weights / machine.memory)


def efficiency(machine: Machine, config: ModelConfig, length: int, count: int, **how: Any) -> float:
    """Returns examples/s of `count` devices over `count` times those of one; see `step`."""
    alone = step(machine, config, length, 1, **how)
    return alone.total / step(machine, config, length, count, **how).total


WAYS: dict[str, dict[str, Any]] = {
    "no overlap": {},
    "overlap": {"overlap": True},
    "8 micro-batches": {"micro_batches": 8},
}


def cases() -> Iterator[tuple[str, Machine, str, ModelConfig, int]]:
    """Yields (its name, machine, its name, model, length) of all lines of the tables."""
    for name, machine in MACHINES.items():
        for model, config in MODELS.items():
            for length in EXAMPLES:
                yield name, machine, model, config, length


def parts_rows() -> Iterator[list[str]]:
    """Yields the parts of a step in every case."""
    for name, machine, model, config, length in cases():
        parts = [step(machine, config, length, count) for count in COUNTS]
        adam = step(machine, config, length, 1, passes=ADAM_PASSES).update
        reduces = ", ".join(f"{1e3 * part.exposed:,.1f}" for part in parts)
        updates = [f"{1e3 * seconds:,.1f}" for seconds in (adam, parts[0].update)]
        yield [name, model, f"{length}", f"{1e3 * parts[0].compute:,.0f}", reduces, *updates]


def efficiency_rows() -> Iterator[list[str]]:
    """Yields the efficiency of every case."""
    for name, machine, model, config, length in cases():
        values = [
            [efficiency(machine, config, length, count, **how) for count in COUNTS]
            for how in WAYS.values()
        ]
        cells = [", ".join(f"{value:.0%}" for value in row) for row in values]
        yield [name, model, f"{length}", *cells]


def draw(path: str) -> None:
    """Draws efficiency over devices for BERT-Large at 128 pieces, a panel a way."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = [2**power for power in range(11)]
    figure, axes = pyplot.subplots(
        1, len(WAYS), figsize=(11, 3.6), sharey=True, layout="constrained"
    )
    for axis, (way, how) in zip(axes, WAYS.items(), strict=True):
        for name, machine in MACHINES.items():
            values = [efficiency(machine, LARGE, 128, count, **how) for count in counts]
            axis.plot(counts, values, marker=".", label=name)
        axis.set_xscale("log", base=2)
        axis.set_title(f"Large, 128 pieces, {way}", fontsize=10)
        axis.set_xlabel("devices")
        axis.set_ylim(0, 1.02)
    axes[0].set_ylabel("efficiency (calculated)")
    axes[0].legend(fontsize=7, loc="lower left")
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=110)


def main(_: list[str]) -> None:
    counts = "8, 64, 1,024"
    heads = ["compute, ms", f"all-reduce of {counts}, ms", "Adam, ms", "LAMB, ms"]
    print_table(["", "", "length", *heads], parts_rows())
    print_table(["", "", "length", *(f"{way}: {counts}" for way in WAYS)], efficiency_rows())
    if PLOT.value:
        draw(PLOT.value)


if __name__ == "__main__":
    app.run(main)
