"""Seconds that a save takes from training: written in the loop, and written beside it.

    python -m benchmarks.checkpoint_stall --saves=3

The variables are as many and as large as BERT-Base's with AdamW's two slots; a step of training is
an update of all of them. A save is either waited for, as it was once, or written in the background
while steps are done. For both: seconds until the loop goes on, and seconds of the next steps beyond
those of as many steps alone (a held value is copied by its first update; writing takes its share of
the machine).
"""

import pathlib
import resource
import statistics
import tempfile
import time

import tensorflow as tf
from absl import app, flags

from bert_tf.training.checkpointing import RunDirectory

SAVES = flags.DEFINE_integer("saves", 3, "Of each kind.", lower_bound=1)
SHARE = flags.DEFINE_float("share", 1.0, "Of BERT-Base's size.")
FOLDER = flags.DEFINE_string("folder", None, "On the disk to be measured.")

LAYER = [(768, 768)] * 4 + [(768, 3072), (3072, 768)] + [(768,)] * 9 + [(3072,)]
SHAPES = [(30522, 768), (512, 768), (2, 768), (768, 768), *LAYER * 12]
STEPS = 3


def make_variables(share: float) -> dict[str, tf.Variable]:
    """Returns weights and two slots each; with a `share` below 1 fewer rows of each."""
    shapes = [(max(1, int(shape[0] * share)), *shape[1:]) for shape in SHAPES]
    return {
        f"{name}/{index}": tf.Variable(tf.random.normal(shape))
        for name in ("weight", "adam_m", "adam_v")
        for index, shape in enumerate(shapes)
    }


def main(_: list[str]) -> None:
    variables = make_variables(SHARE.value)
    factor = tf.constant(0.999)

    @tf.function
    def step() -> None:
        for variable in variables.values():
            variable.assign(variable * factor)

    def seconds_of_steps() -> float:
        start = time.monotonic()
        for _ in range(STEPS):
            step()
        return time.monotonic() - start

    def seconds_of_save(number: int, is_waited_for: bool) -> tuple[float, float]:
        alone, start = seconds_of_steps(), time.monotonic()
        directory.start_save(number, {})
        if is_waited_for:
            directory.wait()
        blocked = time.monotonic() - start
        beside = seconds_of_steps()
        directory.wait()
        return blocked, beside - alone

    with tempfile.TemporaryDirectory(dir=FOLDER.value) as folder:
        directory = RunDirectory(pathlib.Path(folder), variables, keep=1)
        step()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for number in range(2 * SAVES.value):
            taken[number % 2 == 0].append(seconds_of_save(number, number % 2 == 0))
        size = sum(path.stat().st_size for path in pathlib.Path(folder).glob("model.ckpt*"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{size / 1e9:.2f} GB a checkpoint, {STEPS} steps beside it, {SAVES.value} saves each")
    for is_waited_for, values in taken.items():
        blocked, later = (statistics.median(column) for column in zip(*values, strict=True))
        kind = "waited for" if is_waited_for else "background"
        print(
            f"{kind}: {blocked:.2f} s until the loop goes on, {later:.2f} s in {STEPS} steps after"
        )
    print(f"peak memory {peak / 1e6:.2f} GB, {(peak - before) / 1e6:.2f} GB more than without")


if __name__ == "__main__":
    app.run(main)
