"""A teacher's outputs for the training examples, computed once and cached for later runs.

The examples are the same in every epoch and the teacher has no dropout, so its outputs are used
like labels. They are small: a number per class, or an embedding per text.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.teacher import check_same_teacher, check_vocabularies, read_teacher
from bert_tf.system.bounded_arrays import map_array
from bert_tf.system.checksums import is_whole, write_checksum
from bert_tf.system.files import atomic_write, cache_folder, exclusive
from bert_tf.system.type_names import Model, Strategy
from bert_tf.tasks.base.examples.row_batches import evaluation_batches
from bert_tf.tasks.base.examples.rows import TokenizedDataset, length_buckets
from bert_tf.tasks.base.models.label_order import check_names, label_order
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.base.programs.rows_task import TEACHER_LOGITS
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.distribution import any_worker, is_chief

BATCH_SIZE = 32


def read_known(configs: Configs, tokenizer: Tokenizer, head: str) -> Checkpoint:
    """Reads the --teacher, which must have the given head and the student's vocabulary."""
    heads = (head,) if head else ()
    teacher = read_teacher(configs.task.teacher, heads, configs.data.max_seq_length)
    check_vocabularies(teacher, tokenizer.vocab, configs.model.do_lower_case)
    return teacher


def check_labels(
    teacher: Checkpoint,
    labels: tuple[str, ...],
    kind: str = "single_label",
    own_kind: str = "single_label",
) -> list[int]:
    """Returns the teacher's index of each of the student's labels; [0] without labels."""
    count = max(1, len(labels))
    order = label_order(teacher.labels or labels, labels)
    if order is None or (kind, teacher.num_labels) != (own_kind, count):
        raise ValueError(
            f"--teacher={teacher.source} has a head of {teacher.num_labels} labels "
            f"{list(teacher.labels)[:10]} of kind {kind}, the task has {len(labels)} "
            f"{list(labels)[:10]} of kind {own_kind}: it must be a model of the same task."
        )
    check_names(teacher, labels, "teacher")
    # A regression has one output without a label.
    return order or [0]


def teacher_outputs(
    model: Model, teacher: Checkpoint, rows: TokenizedDataset, configs: Configs, strategy: Strategy
) -> np.ndarray:
    """Returns the teacher's outputs for each example, float32 [N, ...], from the cache if possible.

    A model that scores tokens has outputs [num_tokens, C], all examples concatenated without
    padding. One host computes for all hosts that share the run's folder.
    """
    task = configs.task
    if not task.learn_labels and not task.teacher_weight:
        raise ValueError(
            "--teacher_options=learn_labels=false,teacher_weight=0 leaves nothing to learn."
        )
    folder = pathlib.Path(configs.training.output_dir)
    digest = check_same_teacher(folder, teacher, is_chief(strategy))
    # Everything that affects the outputs, including an embedder's pooling.
    embedding = getattr(model, "embedding", None)
    inputs = (digest, rows.fingerprint(), embedding, sorted(teacher.config.to_dict().items()))
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()
    path = cache_folder(folder) / f"teacher-{key[:16]}.npy"

    def compute_or_read() -> np.ndarray:
        # Runs of several seeds may start at once: one computes, the others wait and read.
        with exclusive(path.with_suffix(".lock")):
            # Read under the lock: the run that had it before may have written the file.
            if is_whole(path):
                logging.info("Using the teacher's outputs in %s.", path)
                return map_array(path)
            computed = _compute(model, rows)
            check_finite(computed, teacher.source)
            with atomic_write(path, "wb") as file:
                np.save(file, computed)
            write_checksum(path)
            return computed

    outputs = compute_or_read() if is_chief(strategy) else None
    any_worker(strategy, False)  # The other hosts wait here until the cache is written.
    return compute_or_read() if outputs is None else outputs


def add_teacher_logits(
    rows: TokenizedDataset,
    model_class: Any,
    teacher: Checkpoint,
    configs: Configs,
    strategy: Strategy,
    order: Sequence[int] | slice = slice(None),
) -> None:
    """Adds a teacher's logits to rows or to their tokens, as `TEACHER_LOGITS`.

    `order` is the teacher's index of each label, see `check_labels`.
    """
    model = model_class.from_checkpoint(teacher, unpad=True, dtype="float32")
    scores = rows.token_scores if model.scores_tokens else rows.labels
    scores[TEACHER_LOGITS] = teacher_outputs(model, teacher, rows, configs, strategy)[:, order]


def check_finite(outputs: np.ndarray, source: str) -> None:
    """Raises ValueError if a teacher's outputs contain numbers that are not finite."""
    num_bad = int((~np.isfinite(outputs)).sum())
    if num_bad:
        raise ValueError(
            f"--teacher={source}: {num_bad:,} of its {outputs.size:,} outputs are not finite "
            "numbers; give a teacher whose weights are right."
        )


def _compute(model: Model, rows: TokenizedDataset) -> np.ndarray:
    logging.info("The teacher reads %s texts.", f"{len(rows):,}")
    longest = max(1, int(rows.lengths.max(initial=1)))
    batches = evaluation_batches(rows, BATCH_SIZE, 0, length_buckets(longest, False))

    @tf.function(autograph=False, input_signature=[batches.element_spec])
    def compute(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        outputs = model(batch, training=False)
        if isinstance(outputs, dict):
            return tf.stack(list(outputs.values()), -1)
        return outputs

    has_tokens = getattr(model, "scores_tokens", False)
    starts = np.cumsum(rows.lengths) - rows.lengths  # first token of each example
    collected: Any = None
    for batch in batches:
        values = compute(batch).numpy().astype(np.float32)
        if collected is None and has_tokens:
            collected = np.zeros([rows.num_tokens, *values.shape[2:]], np.float32)
        elif collected is None:
            collected = np.zeros([len(rows), *values.shape[1:]], np.float32)
        for value, row in zip(values, batch["row_ids"].numpy(), strict=True):
            if row < 0:  # A negative id fills the last batch.
                continue
            if has_tokens:
                count = rows.lengths[row]
                collected[starts[row] : starts[row] + count] = value[:count]
            else:
                collected[row] = value
    return collected
