"""What a teacher says of the rows to train on: computed once, and kept for the next run.

The rows are the same in every epoch, and the teacher has no dropout: its outputs are labels like
others. They are small: a number for each class, or an embedding for each text.
"""

import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.teacher import check_same_teacher, check_vocabularies, read_teacher
from bert_tf.corpus.checksums import drop_damaged, write_checksum
from bert_tf.examples.row_batches import evaluation_batches
from bert_tf.examples.rows import TokenizedDataset, length_buckets
from bert_tf.files import atomic_write, cache_folder, exclusive
from bert_tf.fine_tuning.label_order import check_names, label_order
from bert_tf.fine_tuning.program import Configs
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.distribution import any_worker, is_chief

BATCH_SIZE = 32


def read_known(configs: Configs, tokenizer: Tokenizer, head: str) -> Checkpoint:
    """Reads the --teacher, which must have the head and the student's vocabulary.

    Raises:
      ValueError: if it has another, or reads other pieces.
    """
    heads = (head,) if head else ()
    teacher = read_teacher(configs.task.teacher, heads, configs.data.max_seq_length)
    check_vocabularies(teacher, tokenizer.vocab, configs.model.do_lower_case)
    return teacher


def check_labels(
    teacher: Checkpoint, labels: tuple[str, ...], kind: str = "class", own_kind: str = "class"
) -> list[int]:
    """Returns the place of each of the student's labels among the teacher's, [0] without labels.

    Raises:
      ValueError: if they are not the same labels, or of another kind.
    """
    count = max(1, len(labels))
    order = label_order(teacher.labels or labels, labels)
    if order is None or (kind, teacher.num_labels) != (own_kind, count):
        raise ValueError(
            f"--teacher={teacher.source} has a head of {teacher.num_labels} labels "
            f"{list(teacher.labels)[:10]} of kind {kind}, the task has {len(labels)} "
            f"{list(labels)[:10]} of kind {own_kind}: it must be a model of the same task."
        )
    check_names(teacher, labels, "teacher")
    return order or [0]


def teacher_outputs(
    model: Any, teacher: Checkpoint, rows: TokenizedDataset, configs: Configs, strategy: Any
) -> np.ndarray:
    """Returns the teacher's outputs for each row, float32 [N, ...], from the cache if it has them.

    Of a model that scores pieces: [num_pieces, C], the rows one after the other, without padding.

    Args:
      model: the teacher, which returns one tensor [B, ...], or scores of pieces [B, T].
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
    path = cache_folder(folder) / f"teacher-{key[:16]}.npy"

    def compute_or_read() -> np.ndarray:
        with exclusive(path.with_suffix(".lock"), waits=True):
            drop_damaged([path])
            found = _read(path, rows.num_pieces if has_pieces(model) else len(rows))
            if found is None:
                found = _compute(model, rows)
                check_finite(found, teacher.source)
                with atomic_write(path, "wb") as file:
                    np.save(file, found)
                write_checksum(path)
        return found

    found = compute_or_read() if is_chief(strategy) else None
    any_worker(strategy, False)  # The others wait here, then find everything made.
    return compute_or_read() if found is None else found


def has_pieces(model: Any) -> bool:
    """Tells whether a model scores every piece of a text."""
    return getattr(model, "has_pieces", False)


def check_finite(outputs: np.ndarray, source: str) -> None:
    """Raises ValueError if a teacher's outputs hold numbers that are not finite."""
    num_bad = int((~np.isfinite(outputs)).sum())
    if num_bad:
        raise ValueError(
            f"--teacher={source}: {num_bad:,} of its {outputs.size:,} outputs are not finite "
            "numbers; give a teacher whose weights are right."
        )


def _read(path: pathlib.Path, count: int) -> np.ndarray | None:
    """Returns the outputs that an earlier run kept for this number of rows; None without them."""
    if not path.exists():
        return None
    found = np.load(path, allow_pickle=False)
    if len(found) != count:
        return None
    logging.info("The teacher's outputs are those of %s.", path)
    return found


def _compute(model: Any, rows: TokenizedDataset) -> np.ndarray:
    logging.info("The teacher reads %s texts.", f"{len(rows):,}")
    longest = max(1, int(rows.lengths.max(initial=1)))
    batches = evaluation_batches(rows, BATCH_SIZE, 0, length_buckets(longest, False))

    @tf.function(autograph=False, input_signature=[batches.element_spec])
    def compute(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        outputs = model(batch, training=False)
        return tf.stack(list(outputs.values()), -1) if isinstance(outputs, dict) else outputs

    is_long = has_pieces(model)
    starts = np.cumsum(rows.lengths) - rows.lengths if is_long else np.arange(len(rows))
    found: np.ndarray | None = None
    for batch in batches:
        values = compute(batch).numpy().astype(np.float32)
        if found is None:
            shape = (
                [rows.num_pieces, *values.shape[2:]] if is_long else [len(rows), *values.shape[1:]]
            )
            found = np.zeros(shape, np.float32)
        for value, row in zip(values, batch["row_ids"].numpy(), strict=True):
            if row >= 0:  # The others fill the last batch.
                count = rows.lengths[row] if is_long else 1
                found[starts[row] : starts[row] + count] = value[:count] if is_long else value
    if found is None:
        raise ValueError("There is nothing to train on.")
    return found
