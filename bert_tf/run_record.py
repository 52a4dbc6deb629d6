"""The record of a run in its directory: the flagfile that repeats it, model and vocabulary."""

import contextlib
import dataclasses
import glob
import pathlib
import re
from collections.abc import Iterator

from absl import logging

from bert_tf.bounded_files import read_text
from bert_tf.checkpoints.hub import absolute_path
from bert_tf.checkpoints.keras_archive import is_keras_file, read_settings
from bert_tf.config import Config, ModelConfig
from bert_tf.config_flags import FILE_FLAGS, flagfile, read_flagfile
from bert_tf.files import atomic_write, exclusive
from bert_tf.text.kinds import find_vocabulary
from bert_tf.text.tokenization import AnyVocab, read_vocab

# The record of a run, and the part of it that goes with its weights into other formats.
RUN_NAME = "run.flags"
INPUTS_NAME = "inputs.flags"
INPUT_FIELDS = (
    *("max_seq_length", "task_name", "text_b_column", "pair", "long_texts", "label_kind"),
    *("doc_stride", "max_query_length", "n_best_size", "max_answer_length", "span_head"),
    *("version_2_with_negative", "null_score_diff_threshold", "beam_size"),
    *("activation", "ranking_loss"),
)
CHOICE_LINE = "# ChoiceConfig"


@contextlib.contextmanager
def only_training(output_dir: str) -> Iterator[None]:
    """Keeps other processes from training in a run directory.

    Raises:
      ValueError: if one is.
    """
    with exclusive(pathlib.Path(output_dir, ".lock")) as is_ours:
        if not is_ours:
            raise ValueError(
                f"Another process is training in {output_dir}; wait until it ends, or give another "
                "--output_dir."
            )
        yield


def has_checkpoints(folder: pathlib.Path) -> bool:
    """True if a run directory has checkpoints of its own; a copy under another name is none."""
    return bool(list_checkpoints(folder))


def list_checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the prefixes of a run directory's checkpoints, the oldest first."""
    prefixes: dict[int, pathlib.Path] = {}
    for path in folder.glob("model.ckpt-*.index"):
        if found := re.fullmatch(r"model\.ckpt-(\d+)\.index", path.name):
            prefixes[int(found[1])] = path.with_suffix("")
    return [prefixes[step] for step in sorted(prefixes)]


def check_seeds(folder: pathlib.Path) -> None:
    """Raises ValueError for the folder of a run of several seeds, naming the runs in it."""
    seeds = [path for path in sorted(folder.glob("seed-*")) if has_checkpoints(path)]
    if seeds:
        raise ValueError(
            f"{folder} has a run for each of several seeds; give one of them: "
            f"{', '.join(map(str, seeds[:10]))}."
        )


def check_same_run(output_dir: str, *configs: Config) -> None:
    """Refuses a run directory that another configuration made; `auto` goes on with what it found.

    The same files in another spelling are the same. A run that has no checkpoint yet may be given
    more minutes, as the error of one that had too few says.

    Raises:
      ValueError: with every field that differs and both its values.
    """
    path = pathlib.Path(output_dir, RUN_NAME)
    if not path.exists():
        return
    before = read_flagfile(path)
    free = {name for config in configs for name in config.names(may_change=True)}
    is_begun = has_checkpoints(path.parent)
    if not is_begun:
        free.add("train_minutes")
    differences = [
        f"--{name} is {value}, was {before[name]}"
        for name, value in _values(*configs).items()
        if name not in free
        and before.get(name, value) != value != "auto"
        and not (name.endswith(FILE_FLAGS) and is_same_path(before[name], value))
    ]
    if differences:
        weights = f" (with --init_checkpoint={output_dir} to start from its weights)"
        emptied = f"; or delete {output_dir}, which has no checkpoint"
        raise ValueError(
            f"{output_dir} holds a run with another configuration: {'; '.join(differences)}. "
            f"Give another --output_dir{weights if is_begun else ''}, or the old values: "
            f"--flagfile={path}{'' if is_begun else emptied}."
        )


def shared_values(*configs: Config) -> dict[str, str]:
    """Returns what all workers of a run must be given alike, by name."""
    own = ("num_workers", "cache_dir", "peak_flops")
    return {name: value for name, value in _values(*configs).items() if name not in own}


def recorded(output_dir: str, name: str) -> str:
    """Returns a field's value as the run directory records it; "" if it does not.

    Args:
      output_dir: a run directory, a folder with `inputs.flags`, or a Keras file.
      name: name of the field.
    """
    return read_record(pathlib.Path(output_dir)).get(name, "") if output_dir else ""


def read_record(place: pathlib.Path) -> dict[str, str]:
    """Returns all that is recorded of how a model was trained, by the names of flags.

    Args:
      place: a run directory, a folder with `inputs.flags`, or a Keras file.

    Raises:
      ValueError: if a Keras file cannot be read.
    """
    if is_keras_file(place):
        return read_settings(place)
    for path in (place / RUN_NAME, place / INPUTS_NAME):
        if path.is_file():
            values = read_flagfile(path)
            # Multiple choice scores pairs.
            return {**values, "pair": "true"} if is_choice_record(path) else values
    return {}


def is_choice_record(path: pathlib.Path) -> bool:
    """Returns whether a run.flags was written by run_multiple_choice."""
    return CHOICE_LINE in read_text(path, errors="replace").splitlines()


def input_settings(place: pathlib.Path) -> dict[str, str]:
    """Returns those of `read_record` that say how the model reads its inputs."""
    return {name: value for name, value in read_record(place).items() if name in INPUT_FIELDS}


def write_inputs(folder: pathlib.Path, settings: dict[str, str]) -> None:
    """Writes the settings of the inputs into the folder of weights without a run."""
    if settings:
        lines = [f"--{name}={value}\n" for name, value in sorted(settings.items())]
        (folder / INPUTS_NAME).write_text("".join(lines), encoding="utf8")


def is_same_path(first: str, second: str) -> bool:
    """True if two values of a flag name the same files, in whatever spelling; "" names none."""
    return first == second or bool(first and second) and _resolved(first) == _resolved(second)


def _resolved(paths: str) -> list[pathlib.Path]:
    """Returns comma-separated paths; a name on a hub stays one of its own."""
    return [pathlib.Path(path.strip()).expanduser().resolve() for path in paths.split(",")]


def _values(*configs: Config) -> dict[str, str]:
    lines = [line[2:] for line in flagfile(*configs).splitlines() if line.startswith("--")]
    return dict(line.split("=", 1) for line in lines)


def write_run_record(output_dir: str, vocab: AnyVocab, model: ModelConfig, *others: Config) -> None:
    """Writes run.flags, bert_config.json and the vocabulary into the run directory.

    Paths are recorded as absolute ones, which other programs find from any folder.

    Raises:
      ValueError: if the directory has another vocabulary already.
    """
    folder = pathlib.Path(output_dir)
    before = find_vocabulary(folder)
    if before and read_vocab(before) != vocab:
        raise ValueError(
            f"{before}, the vocabulary with which this run began, differs from that of the input. "
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
    if not before:  # Written once, so that its digest is the same for all releases.
        vocab.write(folder / vocab.file_name)


def _with_absolute_paths(config: Config) -> Config:
    """Returns a configuration whose flags name the same files from every folder."""
    paths = {
        name: absolute_paths(value)
        for name, value in config.to_dict().items()
        if name.endswith(FILE_FLAGS) and isinstance(value, str)
    }
    return dataclasses.replace(config, **paths)


def absolute_paths(names: str) -> str:
    """Returns comma-separated files, folders and globs as absolute paths.

    A name that matches nothing here, such as tfds:NAME or one on a hub, stays as it is.
    """
    found: list[str] = []
    for name in map(str.strip, names.split(",")):
        path = pathlib.Path(name).expanduser()
        is_here = bool(name) and bool(glob.glob(str(path)))  # noqa: PTH207
        found.append(absolute_path(path) if is_here else name)
    return ",".join(found)
