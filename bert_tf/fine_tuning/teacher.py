"""What a teacher says of the rows to train on: computed once, and kept for the next run.

Rows are the same in every epoch, and the teacher has no dropout: its outputs are labels like
others. They are small, a number a class or an embedding a text.
"""

import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.teacher import check_same_teacher
from bert_tf.data.row_batches import evaluation_batches
from bert_tf.data.rows import Rows, length_buckets
from bert_tf.files import atomic_write
from bert_tf.fine_tuning.program import Configs
from bert_tf.training.distribution import any_worker, is_chief

BATCH_SIZE = 32


def teacher_outputs(
    model: Any, teacher: Checkpoint, rows: Rows, configs: Configs, strategy: Any
) -> np.ndarray:
    """Returns the teacher's outputs for each row, float32 [N, ...], from the cache if it has them.

    Args:
      model: the teacher, which returns one tensor [B, ...].
      teacher: what it was made from.
      rows: without the teacher's outputs.
      configs: of the run.
      strategy: that the run is under: one host computes for all that see its folder.

    Raises:
      ValueError: if neither labels nor teacher are learned.
    """
    task = configs.task
    if not task.learn_labels and not task.teacher_weight:
        raise ValueError("--learn_labels=false with --teacher_weight=0 leaves nothing to learn.")
    folder = pathlib.Path(configs.training.output_dir)
    digest = check_same_teacher(folder, teacher, is_chief(strategy))
    # All that decides on the outputs; of an embedder also how it pools.
    embedding = getattr(model, "embedding", None)
    parts = digest, rows.fingerprint(), embedding, sorted(teacher.config.to_dict().items())
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    path = folder.parent / "bert_tf_cache" / f"teacher-{key[:16]}.npy"

    def compute_or_read() -> np.ndarray:
        found = _read(path, len(rows))
        if found is None:
            found = _compute(model, rows)
            with atomic_write(path, "wb") as file:
                np.save(file, found)
        return found

    found = compute_or_read() if is_chief(strategy) else None
    any_worker(strategy, False)  # The others wait here, then find everything made.
    return compute_or_read() if found is None else found


def _read(path: pathlib.Path, count: int) -> np.ndarray | None:
    """Returns what was kept; None if it is not there, or damaged."""
    if not path.exists():
        return None
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        logging.warning("%s: %s. It is computed anew.", path, error)
        return None
    logging.info("The teacher's outputs are those of %s.", path)
    return found if len(found) == count else None


def _compute(model: Any, rows: Rows) -> np.ndarray:
    logging.info("The teacher reads %s texts.", f"{len(rows):,}")
    longest = max(1, int(rows.lengths.max(initial=1)))
    batches = evaluation_batches(rows, BATCH_SIZE, 0, length_buckets(longest, False))
    compute = tf.function(lambda batch: model(batch, training=False), autograph=False)
    compute = compute.get_concrete_function(batches.element_spec)
    found: np.ndarray | None = None
    for batch in batches:
        values, row_ids = compute(batch).numpy().astype(np.float32), batch["row_ids"].numpy()
        if found is None:
            found = np.zeros([len(rows), *values.shape[1:]], np.float32)
        found[row_ids[row_ids >= 0]] = values[row_ids >= 0]
    if found is None:
        raise ValueError("There is nothing to train on.")
    return found
