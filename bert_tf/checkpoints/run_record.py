"""The record of a run in its directory: flagfile, model configuration and vocabulary."""

import contextlib
import dataclasses
import difflib
import glob
import pathlib
import re

from absl import logging

from bert_tf.checkpoints.keras_archive import is_keras_file, read_settings
from bert_tf.config import Config, ModelConfig
from bert_tf.config.config_flags import FILE_FLAGS, flagfile, read_flagfile
from bert_tf.system.bounded_files import read_text
from bert_tf.system.files import atomic_write, exclusive, real_path
from bert_tf.system.model_names import absolute_path
from bert_tf.text.kinds import find_vocabulary
from bert_tf.text.tokenization import AnyVocab, read_vocab

# The record of a run, and the part of it that is copied with the weights into other formats.
RUN_NAME = "run.flags"
INPUTS_NAME = "inputs.flags"
# Settings that were chosen on the development examples of a run, after its training.
CALIBRATION_NAME = "calibration.flags"
UNSET = {"temperature": "1.0", "thresholds": ""}
INPUT_FIELDS = (
    "max_seq_length",
    "task_name",
    "text_b_column",
    "pair",
    "long_texts",
    "problem_type",
    "doc_stride",
    "max_query_length",
    "n_best_size",
    "max_answer_length",
    "span_head",
    "version_2_with_negative",
    "null_score_diff_threshold",
    "beam_size",
    "activation",
    "ranking_loss",
    "temperature",
    "thresholds",
)


def only_training(output_dir: str) -> contextlib.AbstractContextManager[None]:
    """Locks a run directory; ValueError if another process is training in it."""
    return exclusive(pathlib.Path(output_dir, ".lock"), f"training in {output_dir}")


def has_checkpoints(folder: pathlib.Path) -> bool:
    """Returns whether a run directory has checkpoints; copies under other names do not count."""
    return bool(list_checkpoints(folder))


def list_checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the prefixes of a run directory's checkpoints, the oldest first."""
    prefixes: dict[int, pathlib.Path] = {}
    for path in folder.glob("model.ckpt-*.index"):
        if match := re.fullmatch(r"model\.ckpt-(\d+)\.index", path.name):
            prefixes[int(match[1])] = path.with_suffix("")
    return [prefixes[step] for step in sorted(prefixes)]


def check_seeds(folder: pathlib.Path) -> None:
    """Raises ValueError for the folder of a run of several seeds, naming the runs in it."""
    seeds = [path for path in sorted(folder.glob("seed-*")) if has_checkpoints(path)]
    if seeds:
        raise ValueError(
            f"{folder} has several runs, one per seed; give one of them: "
            f"{', '.join(map(str, seeds[:10]))}."
        )


def similar_runs(folder: pathlib.Path) -> str:
    """Returns the advice to use a run directory with a similar name, or "" if no run has one."""
    if not folder.parent.is_dir():
        return ""
    runs = [path.parent.name for path in folder.parent.glob(f"*/{RUN_NAME}")]
    similar = difflib.get_close_matches(folder.name, runs, n=3)
    if not similar:
        return ""
    return f" Did you mean {' or '.join(str(folder.parent / name) for name in similar)}?"


def check_same_run(output_dir: str, *configs: Config) -> None:
    """Checks that a run directory was created with the same configuration.

    The value `auto` matches any recorded value, and paths to the same files match. A run without
    checkpoint may be given more minutes, as the error for too few minutes advises.

    Raises:
      ValueError: with every field that differs and its two values.
    """
    path = pathlib.Path(output_dir, RUN_NAME)
    if not path.exists():
        return
    before = read_flagfile(path)
    changeable: set[str] = set()
    for config in configs:
        changeable.update(config.names(may_change=True))
    has_checkpoint = has_checkpoints(path.parent)
    if not has_checkpoint:
        changeable.add("train_minutes")
    differences = []
    for name, value in _values(*configs).items():
        # A field without a flag in that program is not recorded, and counts as the same.
        recorded_value = before.get(name, value)
        if name in changeable or value in (recorded_value, "auto"):
            continue
        if name.endswith(FILE_FLAGS) and is_same_path(recorded_value, value):
            continue
        differences.append(f"--{name} is {value}, was {recorded_value}")
    if not differences:
        return
    # A run with checkpoints can be a start for another; one without can be deleted.
    start = f" (with --init_checkpoint={output_dir} to start from its weights)"
    deletion = f"; or delete {output_dir}, which has no checkpoint"
    raise ValueError(
        f"{output_dir} has a run with another configuration: {'; '.join(differences)}. "
        f"Give another --output_dir{start if has_checkpoint else ''}, or the old values: "
        f"--flagfile={path}{'' if has_checkpoint else deletion}."
    )


def shared_values(*configs: Config) -> dict[str, str]:
    """Returns the settings that must be the same for all workers of a run, by name."""
    local = ("num_workers", "cache_dir", "peak_flops")
    return {name: value for name, value in _values(*configs).items() if name not in local}


def recorded(output_dir: str, name: str) -> str:
    """Returns the value of a field in the record of a run, see `read_record`; "" without one."""
    return read_record(pathlib.Path(output_dir)).get(name, "") if output_dir else ""


def read_record(source: pathlib.Path) -> dict[str, str]:
    """Returns the recorded settings of a model's training, by the names of flags.

    `source` is a run directory, a folder with `inputs.flags`, or a Keras file.
    """
    if is_keras_file(source):
        return read_settings(source)
    for path in (source / RUN_NAME, source / INPUTS_NAME):
        if path.is_file():
            values = read_flagfile(path)
            if is_choice_record(path):
                values["pair"] = "true"  # Multiple choice scores pairs.
            # They were chosen after training, so they replace the recorded ones.
            chosen = source / CALIBRATION_NAME
            if chosen.is_file():
                values |= read_flagfile(chosen)
            return values
    return {}


def is_choice_record(path: pathlib.Path) -> bool:
    """Returns whether a run.flags was written by run_multiple_choice."""
    return _has_group(path, "ChoiceConfig")


def was_recorded_by(path: pathlib.Path, task_config: type[Config]) -> bool:
    """Returns whether a run.flags was written by the program with this configuration."""
    return path.is_file() and _has_group(path, task_config.__name__)


def _has_group(path: pathlib.Path, name: str) -> bool:
    return f"# {name}" in read_text(path, errors="replace").splitlines()


def input_settings(source: pathlib.Path) -> dict[str, str]:
    """Returns the recorded settings that affect how the model reads its inputs."""
    settings = {}
    for name, value in read_record(source).items():
        if name in INPUT_FIELDS and value != UNSET.get(name):
            settings[name] = value
    return settings


def write_inputs(folder: pathlib.Path, settings: dict[str, str]) -> None:
    """Writes the settings of the inputs into a folder of weights without a run."""
    if settings:
        lines = [f"--{name}={value}\n" for name, value in sorted(settings.items())]
        (folder / INPUTS_NAME).write_text("".join(lines), encoding="utf8")


def write_calibration(folder: pathlib.Path, settings: dict[str, str]) -> None:
    """Writes the settings that were chosen for the weights of a run into its directory."""
    with atomic_write(folder / CALIBRATION_NAME) as file:
        file.writelines(f"--{name}={value}\n" for name, value in sorted(settings.items()))


def is_same_path(first: str, second: str) -> bool:
    """Returns whether two values of a flag name the same files; "" names no file."""
    return first == second or bool(first and second) and _resolved(first) == _resolved(second)


def _resolved(paths: str) -> list[pathlib.Path]:
    """Returns comma-separated paths; names on a hub stay distinct."""
    return [real_path(path.strip()) for path in paths.split(",")]


def _values(*configs: Config) -> dict[str, str]:
    lines = [line[2:] for line in flagfile(*configs).splitlines() if line.startswith("--")]
    return dict(line.split("=", 1) for line in lines)


def write_run_record(output_dir: str, vocab: AnyVocab, model: ModelConfig, *others: Config) -> None:
    """Writes run.flags, bert_config.json and the vocabulary into the run directory.

    Paths are recorded as absolute ones, which other programs find from any folder.

    Raises:
      ValueError: if the directory already has another vocabulary.
    """
    folder = pathlib.Path(output_dir)
    before = find_vocabulary(folder)
    if before and read_vocab(before) != vocab:
        raise ValueError(
            f"{before}, the vocabulary of this run, differs from that of the input. "
            f"Give --vocab_file={before}, or another --output_dir."
        )
    if (folder / RUN_NAME).exists() and not has_checkpoints(folder):
        logging.warning(
            "An earlier run in %s left no checkpoint: training starts again at step 1.", folder
        )
    with atomic_write(folder / RUN_NAME) as file:
        file.write(flagfile(model, *map(_with_absolute_paths, others)))
    with atomic_write(folder / "bert_config.json") as file:
        file.write(model.to_json())
    if not before:  # It is written only once, so that its digest stays the same.
        vocab.write(folder / vocab.file_name)


def _with_absolute_paths(config: Config) -> Config:
    """Returns the configuration with absolute paths, which are valid in every folder."""
    paths = {}
    for name, value in config.to_dict().items():
        if name.endswith(FILE_FLAGS) and isinstance(value, str):
            paths[name] = absolute_paths(value)
    return dataclasses.replace(config, **paths)


def absolute_paths(names: str) -> str:
    """Returns comma-separated files, folders and globs as absolute paths.

    A name that matches no file, such as tfds:NAME or a name on a hub, is unchanged.
    """
    paths: list[str] = []
    for name in map(str.strip, names.split(",")):
        path = pathlib.Path(name).expanduser()
        exists = bool(name) and bool(glob.glob(str(path)))  # noqa: PTH207
        paths.append(absolute_path(path) if exists else name)
    return ",".join(paths)
