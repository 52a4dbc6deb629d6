"""A growing batch: it doubles from a small size to the full one over the first steps.

    --train_batch_size=1024 --training_options=batch_ramp_start=256,batch_ramp_steps=16

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
      batch_size: examples per batch over all replicas.
      first_batch: number of the stage's first batch.
      end: number of the next stage's first batch; None in the last stage.
      first_position: number that the first batch would have if all batches had this size.
    """

    batch_size: int
    first_batch: int
    end: int | None
    first_position: int

    def position(self, batch: int) -> int:
        """Returns the number that a batch of this stage would have if all batches had its size.

        This is its index in a dataset whose batches all have this size.
        """
        return self.first_position + batch - self.first_batch

    def micro_batches(self, training: TrainingConfig, replicas: int) -> int:
        """Returns the number of micro-batches that are no larger than those of the full batch."""
        largest = training.train_batch_size // replicas // training.gradient_accumulation_steps
        rows = self.batch_size // replicas
        return next(n for n in range(1, rows + 1) if rows % n == 0 and rows // n <= largest)


def check_ramp(training: TrainingConfig) -> None:
    """Raises ValueError if the flags of the ramp contradict each other."""
    start = training.batch_ramp_start
    steps = training.batch_ramp_steps
    full_size = training.train_batch_size
    if not start and not steps:
        return
    ratio = full_size // max(1, start)
    # A power of two has a single bit.
    is_power_of_two = ratio & (ratio - 1) == 0
    if not start or ratio < 2 or not is_power_of_two or full_size % start:
        raise ValueError(
            f"batch_ramp_start={start} must be --train_batch_size={full_size} halved one or more "
            f"times; change one of them."
        )
    doublings = ratio.bit_length() - 1
    # Every stage must begin at a multiple of its batch size.
    if not steps or steps % (doublings * ratio):
        raise ValueError(
            f"batch_ramp_steps={steps} must be a multiple of {doublings * ratio}: {doublings} "
            f"stages of a multiple of {ratio} steps each."
        )


def stage_of(training: TrainingConfig, batch: int) -> Stage:
    """Returns the stage of a batch, whose number counts from 0."""
    full_size = training.train_batch_size
    start = training.batch_ramp_start
    if not training.batch_ramp_steps:
        return Stage(full_size, first_batch=0, end=None, first_position=0)
    doublings = (full_size // start).bit_length() - 1
    length = training.batch_ramp_steps // doublings
    stage = min(batch // length, doublings)
    size = start << stage
    # The preceding stages have length * start * (1 + 2 + 4 + ...) examples.
    num_examples = length * start * (2**stage - 1)
    return Stage(
        size,
        first_batch=stage * length,
        end=(stage + 1) * length if stage < doublings else None,
        first_position=num_examples // size,
    )


def batches_left(training: TrainingConfig, batch: int, end: int, size: int) -> float:
    """Returns the number of batches of `size` with the examples from a batch to `end`."""
    if not training.batch_ramp_steps:
        return end - batch
    return (_examples_before(training, end) - _examples_before(training, batch)) / size


def _examples_before(training: TrainingConfig, batch: int) -> int:
    stage = stage_of(training, batch)
    return stage.position(batch) * stage.batch_size
