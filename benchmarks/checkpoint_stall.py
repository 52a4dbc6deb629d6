"""Seconds that a save takes from training: written in the loop, and written beside it.

    python -m benchmarks.checkpoint_stall --saves=3

The variables are as many and as large as BERT-Base's with AdamW's two slots. A step of training is
a matrix product of fixed size and an update of all variables. One after the other, several times:
steps alone, steps with a save that is waited for, steps with a save in the background. What a save
takes is the time of its steps beyond the time of as many steps alone; what a background save still
takes is the copy that an update must make of a variable whose value is held, and the share of the
machine that writing needs.
"""

import argparse
import pathlib
import resource
import statistics
import sys
import tempfile
import time

import tensorflow as tf

from bert_tf.training.checkpointing import RunDirectory

LAYER = [(768, 768)] * 4 + [(768, 3072), (3072, 768)] + [(768,)] * 9 + [(3072,)]
SHAPES = [(30522, 768), (512, 768), (2, 768), (768, 768), *LAYER * 12]
STEPS = 40


def make_variables(share: float) -> dict[str, tf.Variable]:
    """Returns weights and two slots each; with a `share` below 1 fewer rows of each."""
    shapes = [(max(1, int(shape[0] * share)), *shape[1:]) for shape in SHAPES]
    return {
        f"{name}/{index}": tf.Variable(tf.random.normal(shape))
        for name in ("weight", "adam_m", "adam_v")
        for index, shape in enumerate(shapes)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of BERT-Base's size")
    parser.add_argument("--folder", default=None, help="on the disk to be measured")
    options = parser.parse_args()
    variables = make_variables(options.share)
    factor, matrix = tf.constant(0.999), tf.random.normal([1024, 1024])

    @tf.function
    def step() -> tf.Tensor:
        for variable in variables.values():
            variable.assign(variable * factor)
        product = matrix
        for _ in range(8):
            product = tf.linalg.matmul(product, matrix) / 1024.0
        return tf.reduce_sum(product)

    def seconds(*saves: str) -> float:
        """Does STEPS steps, with a save of the given kind before them; waits for the steps."""
        start = time.monotonic()
        number = len(directory.steps()) and directory.steps()[-1] + 1
        for kind in saves:
            directory.start_save(number, {})
            if kind == "waited for":
                directory.wait()
        for _ in range(STEPS):
            step().numpy()
        return time.monotonic() - start

    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        directory = RunDirectory(pathlib.Path(folder), variables, keep=1)
        step()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken: dict[str, list[float]] = {"waited for": [], "background": []}
        for _ in range(options.saves):
            for kind in taken:
                alone = seconds()
                taken[kind].append(seconds(kind) - alone)
                directory.wait()
        size = sum(path.stat().st_size for path in pathlib.Path(folder).glob("model.ckpt*"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{size / 1e9:.2f} GB a checkpoint, {STEPS} steps beside it, {options.saves} saves each")
    for kind, values in taken.items():
        text = ", ".join(f"{value:.1f}" for value in values)
        print(f"{kind}: {statistics.median(values):.1f} s lost a save ({text})")
    print(f"peak memory {peak / 1e6:.2f} GB, {(peak - before) / 1e6:.2f} GB more than without")


if __name__ == "__main__":
    sys.exit(main())
