"""The model that another one learns from: read, compared with the student, known again."""

import hashlib
import os
import pathlib

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.electra_networks import refuse_discriminator
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.run_record import has_checkpoints
from bert_tf.system.files import read_json, write_json
from bert_tf.text.tokenization import AnyVocab

RECORD = "teacher.json"


def read_teacher(path: str, heads: tuple[str, ...], max_seq_length: int) -> Checkpoint:
    """Reads a --teacher; ValueError unless it has these heads and reads rows of this length."""
    # ELECTRA's discriminator has no masked LM.
    electra_network = "generator" if "masked_lm" in heads else "discriminator"
    teacher = read_checkpoint(path, electra_network=electra_network)
    teacher.check()
    if "masked_lm" in heads:
        refuse_discriminator(teacher)
    missing = [head for head in heads if head not in teacher.heads]
    if missing:
        raise ValueError(
            f"--teacher={path} lacks the heads {', '.join(missing)}, from which the student would "
            f"learn; its heads are {', '.join(teacher.heads) or 'none'}."
        )
    if max_seq_length > teacher.config.longest_row:
        raise ValueError(
            f"--max_seq_length={max_seq_length} is above the {teacher.config.longest_row} "
            f"positions of --teacher={path}."
        )
    return teacher


def check_vocabularies(teacher: Checkpoint, vocab: AnyVocab, do_lower_case: bool) -> None:
    """Raises ValueError unless the teacher reads the same tokens as the student."""
    of_teacher = teacher.config.do_lower_case
    of_student = do_lower_case
    if teacher.vocab != vocab or of_teacher != of_student:
        sizes = [len(one) if one else "no" for one in (teacher.vocab, vocab)]
        raise ValueError(
            f"--teacher={teacher.source} has another vocabulary than the student ({sizes[0]} and "
            f"{sizes[1]} tokens, do_lower_case {of_teacher} and {of_student}): it would read other "
            "texts. Start the student from a model with the teacher's vocabulary, or give that as "
            "--vocab_file."
        )


def weights_digest(teacher: Checkpoint) -> str:
    """Returns a digest that changes with any weight."""
    digest = hashlib.sha256()
    for name, weight in sorted(teacher.weights.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:16]


def check_same_teacher(folder: str | os.PathLike, teacher: Checkpoint, is_chief: bool) -> str:
    """Notes the teacher in a run directory; returns its digest.

    A run that began with another one is an error.
    """
    path = pathlib.Path(folder, RECORD)
    digest = weights_digest(teacher)
    has_begun = has_checkpoints(path.parent)
    # Without a checkpoint nothing was learned yet, so any teacher will do.
    before = read_json(path).get("weights") if has_begun and path.exists() else digest
    if before != digest:
        raise ValueError(
            f"{folder} began with other weights of its teacher ({before}) than {teacher.source} "
            f"has now ({digest}): restore them, or give another --output_dir."
        )
    if is_chief:
        write_json(path, {"teacher": teacher.source, "weights": digest})
    return digest
