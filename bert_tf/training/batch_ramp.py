"""A growing batch: it doubles from a small size to the full one over the first steps.

    --train_batch_size=1024 --batch_ramp_start=256 --batch_ramp_steps=16

    batches 0 to 7    256 examples each, examples    0 to 2,047
    batches 8 to 15   512                         2,048 to 6,143
    from batch 16     1,024                       6,144 on

No example is left out or repeated: each stage continues where the previous one ended. A batch is a
pure function of its number, so a run can resume in the middle of a stage.

Reference: Brown et al. 2020 (GPT-3), appendix B, raise the batch over the first tokens; Smith et
al. 2018, on growing the batch instead of lowering the rate.
"""

from typing import NamedTuple

from bert_tf.config import TrainingConfig


class Stage(NamedTuple):
    """Batches of one size.

    Attributes:
      batch_size: examples a batch over all replicas.
      first_batch: number of its first batch.
      end: number of the next stage's first batch; None: there is none.
      first_place: the number that the first batch would have if all batches had this size.
    """

    batch_size: int
    first_batch: int
    end: int | None
    first_place: int

    def place(self, batch: int) -> int:
        """Returns the number that a batch of this stage would have if all batches had its size.

        That is where a dataset of batches of one size holds its examples.
        """
        return self.first_place + batch - self.first_batch

    def micro_batches(self, training: TrainingConfig, replicas: int) -> int:
        """Returns how many micro-batches keep them no larger than those of the full batch."""
        whole = training.train_batch_size // replicas // training.gradient_accumulation_steps
        rows = self.batch_size // replicas
        return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= whole)


def check_ramp(training: TrainingConfig) -> None:
    """Raises ValueError if the flags of the ramp do not fit together."""
    start, steps, whole = (
        training.batch_ramp_start,
        training.batch_ramp_steps,
        training.train_batch_size,
    )
    if not start and not steps:
        return
    ratio = whole // max(1, start)
    if not start or ratio < 2 or ratio & (ratio - 1) or whole % start:
        raise ValueError(
            f"--batch_ramp_start={start} must be --train_batch_size={whole} halved one or more "
            f"times; change one of them."
        )
    doublings = ratio.bit_length() - 1
    if not steps or steps % (doublings * ratio):  # So that stages begin at multiples of batches.
        raise ValueError(
            f"--batch_ramp_steps={steps} must be a multiple of {doublings * ratio}: {doublings} "
            f"stages of a multiple of {ratio} steps each."
        )


def stage_of(training: TrainingConfig, batch: int) -> Stage:
    """Returns the stage to which a batch belongs, counted from 0."""
    whole, start = training.train_batch_size, training.batch_ramp_start
    if not training.batch_ramp_steps:
        return Stage(whole, 0, None, 0)
    doublings = (whole // start).bit_length() - 1
    length = training.batch_ramp_steps // doublings
    index = min(batch // length, doublings)
    size = start << index
    end = (index + 1) * length if index < doublings else None
    # The stages before: length * start * (1 + 2 + 4 + ...) examples.
    return Stage(size, index * length, end, length * start * (2**index - 1) // size)


def batches_left(training: TrainingConfig, batch: int, end: int, size: int) -> float:
    """Returns how many batches of `size` hold the examples from a batch to `end`."""
    if not training.batch_ramp_steps:
        return end - batch
    stages = [(stage_of(training, number), number) for number in (batch, end)]
    before, after = (stage.place(number) * stage.batch_size for stage, number in stages)
    return (after - before) / size
