"""The identity of a run, which ties the files of its directory to its checkpoints.

    run.json    {"run_id": "3f..", "sha256": {"labels.txt": "9a..", "vocab.txt": "c1..", ..}}

A run gets a random id when it is first recorded. The record and every checkpoint contain this id
and the SHA-256 digests of the files that the meaning of the weights depends on, so that a file or a
checkpoint of another run is detected.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Self

from bert_tf.checkpoints.embedding import FILE_NAME as EMBEDDER
from bert_tf.checkpoints.embedding import read_embedding
from bert_tf.checkpoints.run_record import RUN_NAME, recorded
from bert_tf.config import ModelConfig, TrainingConfig
from bert_tf.system.files import json_field, read_json, read_lines, write_json
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.vocab import Vocab, options_file

RECORD = "run.json"
LABELS = "labels.txt"
CONFIGURATION = "bert_config.json"
GENERATOR = "generator_config.json"
OPTIONS_FILE = options_file(Vocab.file_name).name
# Fields of bert_config.json that only training uses: a run may be resumed with other values.
TRAINING_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
# Flags in run.flags that the meaning of a classifier's scores depends on.
MEANING_FLAGS = ("task_name", "problem_type")
RUN_ID = re.compile("[0-9a-f]{32}")

Digests = dict[str, str | None]


@dataclasses.dataclass(frozen=True)
class RunIdentity:
    """The id of a run and the digests of its files."""

    run_id: str  # 32 hexadecimal digits
    sha256: Digests  # digests of the tied files by name; None for a file that the run does not have

    @classmethod
    def read(cls, folder: pathlib.Path) -> Self | None:
        """Reads run.json; returns None if it is missing, raises ValueError if it is damaged."""
        path = folder / RECORD
        if not path.exists():
            return None
        try:
            values = read_json(path)
            run_id = json_field(values, "run_id", str, path)
            return cls.from_values(run_id, json_field(values, "sha256", dict, path))
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error} Restore it, or delete it.") from None

    @classmethod
    def from_values(cls, run_id: object, sha256: object) -> Self:
        """Creates the identity from the values in a file; ValueError for another form."""
        if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
            raise ValueError(f"run_id is {run_id!r:.60}, expected 32 hexadecimal digits.")
        if not isinstance(sha256, dict):
            raise ValueError(f"sha256 is {sha256!r:.60}, expected the digests of files.")
        return cls(run_id, sha256)

    def write(self, folder: pathlib.Path) -> None:
        """Writes run.json."""
        write_json(folder / RECORD, dataclasses.asdict(self))


def new_identity(folder: pathlib.Path, run_id: str = "") -> RunIdentity:
    """Returns the identity of a run whose files are written; without an id, a random id."""
    return RunIdentity(run_id or uuid.uuid4().hex, file_digests(folder))


def rewritten_files(training: TrainingConfig) -> tuple[str, ...]:
    """Returns the tied files that a resumed pre-training rewrites from its flags."""
    if training.do_train and not training.init_checkpoint:
        return CONFIGURATION, GENERATOR
    return ()


def file_digests(folder: pathlib.Path, without: Collection[str] = ()) -> Digests:
    """Returns the digest of each tied file of a run directory by name; None for missing files."""
    names = [name for name in TIED_FILES if name not in without]
    return {name: TIED_FILES[name](folder / name) for name in names}


def read_labels(folder: pathlib.Path) -> tuple[str, ...]:
    """Returns the lines of labels.txt, which may end as on Windows; () without it."""
    path = folder / LABELS
    if path.exists():
        return tuple(line.removesuffix("\r") for line in read_lines(path, is_bounded=True))
    return ()


def _of_bytes(path: pathlib.Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _of_values(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _of_configuration(path: pathlib.Path) -> str | None:
    """Digests the values that are not defaults: a new field does not change the digest."""
    if not path.is_file():
        return None
    defaults = ModelConfig().to_dict()
    digested = {}
    for name, value in ModelConfig.read(path).to_dict().items():
        if value != defaults[name] and name not in TRAINING_FIELDS:
            digested[name] = value
    return _of_values(digested)


def _of_embedding(path: pathlib.Path) -> str | None:
    """Digests the values of embedder.json that are not defaults."""
    embedding = read_embedding(path.parent)
    if embedding is None:
        return None
    defaults = type(embedding)().to_dict()
    values = embedding.to_dict()
    # A field that few models have is not among the defaults.
    digested = {name: value for name, value in values.items() if value != defaults.get(name)}
    return _of_values(digested)


def _of_flags(path: pathlib.Path) -> str | None:
    """Digests the flags that the meaning of scores depends on; others may change on resuming."""
    return _of_values({name: recorded(str(path.parent), name) for name in MEANING_FLAGS})


OF_MULTI_LABEL = _of_values({"task_name": "", "problem_type": "multi_label"})
TIED_FILES: dict[str, Callable[[pathlib.Path], str | None]] = {
    **dict.fromkeys((LABELS, *VOCABULARY_FILES, OPTIONS_FILE), _of_bytes),
    CONFIGURATION: _of_configuration,
    GENERATOR: _of_configuration,
    EMBEDDER: _of_embedding,
    RUN_NAME: _of_flags,
}


def check_files(
    folder: pathlib.Path,
    checkpoints: Mapping[str, RunIdentity] | None = None,
    without: Collection[str] = (),
) -> None:
    """Checks that the files of a run directory, its record and its checkpoints belong together.

    Args:
      folder: a run directory; any other folder has nothing to check.
      checkpoints: the identities in checkpoints, by the checkpoint's name.
      without: names of files that are about to be rewritten.

    Raises:
      ValueError: naming each file that does not match, and what to restore.
    """
    # The identities, by the name of the record or checkpoint that contains them.
    identities = dict(checkpoints or {})
    if record := RunIdentity.read(folder):
        identities[RECORD] = record
    if not identities:
        return
    changed: list[str] = []  # files that match no identity
    foreign: dict[str, list[str]] = {}  # record or checkpoints of other runs, and files that differ
    is_multi_label = any(
        identity.sha256.get(RUN_NAME) == OF_MULTI_LABEL for identity in identities.values()
    )
    # A model may be copied without run.flags, unless only that file says that it is multi-label.
    if not (folder / RUN_NAME).exists() and not is_multi_label:
        without = (*without, RUN_NAME)
    for name, digest in file_digests(folder, without).items():
        stating = [holder for holder in identities if name in identities[holder].sha256]
        different = [holder for holder in stating if identities[holder].sha256[name] != digest]
        # No record or checkpoint matches the file, so the file itself has changed.
        if different and len(different) == len(stating):
            changed.append(name)
            continue
        # Some match: those that do not are from another run.
        for holder in different:
            foreign.setdefault(holder, []).append(name)
    # The run's id is that of the record if it matches, or of the first identity that matches.
    ordered = [holder for holder in (RECORD, *identities) if holder in identities]
    matching = [holder for holder in ordered if holder not in foreign]
    run_id = identities[(matching or list(identities))[0]].run_id
    for holder, identity in identities.items():
        if identity.run_id != run_id:
            foreign.setdefault(holder, [])
    problems = [_changed_files(folder, changed)] if changed else []
    for holder, names in foreign.items():
        problems.append(_foreign(holder, identities[holder].run_id, run_id, names))
    if problems:
        raise ValueError(f"{folder} has files of different runs: {' '.join(problems)}")


def _changed_files(folder: pathlib.Path, names: list[str]) -> str:
    """Describes files that match neither the record nor any checkpoint."""
    missing = [name for name in names if not (folder / name).exists()]
    gone = f" ({', '.join(missing)} is missing)" if missing else ""
    text = f"{', '.join(names)} differs from the files of the training{gone}: restore it."
    if LABELS in names:
        text += (
            f" To rename labels, restore {LABELS}, convert the run with python -m "
            f"bert_tf.convert_checkpoint --input={folder} --output=NEW_FOLDER, and change "
            f"{LABELS} there."
        )
    if CONFIGURATION in names or set(names) & set(VOCABULARY_FILES):
        text += (
            " To train with another one on purpose, restore it first, and start a new "
            f"--output_dir with --init_checkpoint={folder}."
        )
    return text


def _foreign(holder: str, holder_id: str, run_id: str, names: list[str]) -> str:
    """Describes a checkpoint, or a record, of another run."""
    reasons = []
    if holder_id != run_id:
        reasons.append(f"its run id is {holder_id[:8]}.., this run's is {run_id[:8]}..")
    if names:
        reasons.append(f"it was written with another {', '.join(names)}")
    remedy = "restore the original, or delete it: it is written again"
    if holder != RECORD:
        remedy = (
            f"restore the original, or delete {holder}.* to continue without it. If it is right, "
            f"restore the {', '.join([RECORD, *names])} that belongs to it"
        )
    return f"{holder} belongs to another run ({'; '.join(reasons)}): {remedy}."
