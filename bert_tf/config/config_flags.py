"""Converts configuration dataclasses to absl flags and back; a flagfile reproduces a run."""

import dataclasses
import errno
import glob
import itertools
import math
import os
import pathlib
import re
import select
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from absl import app, flags, logging

from bert_tf.config import Config, ModelConfig, flagfiles
from bert_tf.config.combined import COMBINED
from bert_tf.config.combined_flags import FlagOfFields, warn_of_fields
from bert_tf.config.help_text import help_text
from bert_tf.system import printable
from bert_tf.system.around_import import before_import, import_keras_without_extras
from bert_tf.system.bounded_files import read_text
from bert_tf.system.files import output_fault
from bert_tf.system.model_names import MODEL_FLAGS, WHOLE_MODEL_FLAGS, check_model

ConfigType = TypeVar("ConfigType", bound=Config)
FILE_FLAGS = (
    "file",
    "files",
    "dir",
    "checkpoint",
    "input",
    "model",
    "teacher",
)  # endings of the names of flags with paths
# How RuntimeErrors of pathlib begin: of `resolve` and `expanduser`.
PATH_ERRORS = ("Symlink loop", "Could not determine home")
# Flags of files and folders that a program writes.
OUTPUT_FLAGS = ("output_dir", "output_file", "output", "index_dir")
CUT_ARRAY = re.compile(r"\d+ requested and \d+ written")  # NumPy's message on a full disk

# Lets --help list the flags under the program instead of this module.
flags.disclaim_key_flags()
# Under this module --helpfull lists the flags of fields that a combined flag sets.
HIDDEN = __name__
HELP_FLAGS = {"--help", "-help", "-h", "-?", "--helpshort", "-helpshort"}
# The group of fields of each flag, for the sections of --help.
GROUPS: dict[str, str] = {"architecture": "ModelConfig"}


def define_flags(
    *classes: type[Config],
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    shown: Sequence[str] = (),
) -> None:
    """Defines one flag per field, and the combined flags of fields that are declared within them.

    Args:
      classes: groups of fields.
      only: names of the fields to define; () for all.
      without: names of fields to leave out.
      shown: names of fields to list in --help instead of the flag that they are within.

    Raises:
      ValueError: if there is no field of a given name.
    """
    names = {field.name for cls in classes for field in dataclasses.fields(cls)}
    unknown = {*only, *without} - names
    if unknown:
        raise ValueError(
            f"No field named {sorted(unknown)} in {[cls.__name__ for cls in classes]}."
        )
    for cls in classes:
        GROUPS.update((field.name, cls.__name__) for field in dataclasses.fields(cls))
        types = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if within := field.metadata["within"]:
                GROUPS.setdefault(within, cls.__name__)
            if field.name not in without and (not only or field.name in only):
                _define(field, types[field.name], field.metadata["within"], field.name in shown)


def _define(field: dataclasses.Field, kind: type, within: str, is_shown: bool) -> None:
    if field.name in flags.FLAGS:  # defined by another program in this process
        return
    if field.name in COMBINED:
        _define_combined(field.name)
        return
    data = field.metadata
    common = {"name": field.name, "default": field.default, "help": data["help"]}
    if within and not is_shown:
        common["module_name"] = HIDDEN
        _define_combined(within).add(field.name)
    bounds = {"lower_bound": data["lower"], "upper_bound": data["upper"]}
    if data["choices"]:
        flags.DEFINE_enum(enum_values=list(data["choices"]), **common)
    elif kind is bool:
        flags.DEFINE_bool(**common)
    elif kind is int:
        flags.DEFINE_integer(**bounds, **common)
    elif kind is float:
        flags.DEFINE_float(**bounds, **common)
    else:
        flags.DEFINE_string(**common)


def _define_combined(name: str) -> FlagOfFields:
    """Returns the combined flag of this name, which is defined if it is not yet."""
    if name in flags.FLAGS:
        return typing.cast(FlagOfFields, flags.FLAGS[name])
    is_number = name == "masked_lm_prob"  # The flag is that of a field as well.
    parser = flags.FloatParser() if is_number else flags.ArgumentParser()
    flag = FlagOfFields(name, COMBINED[name], parser)
    flags.DEFINE_flag(flag)
    if name == "model_options":
        _define_combined("architecture")
    return flag


def from_flags(cls: type[ConfigType]) -> ConfigType:
    """Creates the dataclass from the parsed flags; a field without a flag keeps its default.

    Raises:
      ValueError: for a value out of range, or a given flag without effect.
    """
    names = [field.name for field in dataclasses.fields(cls) if field.name in flags.FLAGS]
    values = {name: flags.FLAGS[name].value for name in names}
    if "output_dir" in values:  # Shells do not expand ~ in --output_dir=~/run.
        values["output_dir"] = os.path.expanduser(str(values["output_dir"]))  # noqa: PTH111
    config = cls.from_dict(values)
    config.check_needs(given(cls))
    return config


def set_defaults(**values: Any) -> None:
    """Replaces defaults of flags, for a program whose original has different ones."""
    for name, value in values.items():
        flags.FLAGS.set_default(name, value)


def given(cls: type[Config]) -> dict[str, Any]:
    """Returns the fields whose flags are given on the command line or in a flagfile."""
    names = [field.name for field in dataclasses.fields(cls) if field.name in flags.FLAGS]
    return {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}


def read_model(path: str, others: ModelConfig) -> ModelConfig:
    """Reads a bert_config.json, whose values replace those of flags, and logs the differences.

    Args:
      others: the configuration of the flags, for fields that the file lacks.

    Raises:
      ValueError: if it cannot be read, or its casing differs from the flag.
    """
    model = ModelConfig.read(path, others=others)
    replaced = {}
    for name, value in given(ModelConfig).items():
        if name != "vocab_size" and value != getattr(model, name):
            replaced[name] = f"--{name}={value} is {getattr(model, name)}"
    if casing := replaced.get("do_lower_case"):
        raise ValueError(f"{casing} in {path}: leave the flag out, or change the file.")
    if replaced:
        logging.warning("%s replaces flags: %s.", path, "; ".join(replaced.values()))
    return model


def flagfile(*configs: Config) -> str:
    """Returns the text of a flagfile that reproduces these configurations.

    If the program has only some flags of a group, the others are left out, as they have no effect.

    Raises:
      ValueError: for a value with a line break, which would begin another flag.
    """
    lines = []
    for config in configs:
        lines.append(f"# {type(config).__name__}")
        values = config.to_dict()
        defined = {name: value for name, value in values.items() if name in flags.FLAGS}
        for name, value in (defined or values).items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if "\n" in text:
                raise ValueError(f"--{name}={value!r} has a line break; rename the file.")
            lines.append(f"--{name}={text}")
    return "\n".join(lines) + "\n"


def read_flagfile(path: str | pathlib.Path) -> dict[str, str]:
    """Returns the `--name=value` lines of a flagfile; {} if it is missing."""
    if not pathlib.Path(path).is_file():
        return {}
    # Damaged bytes result in unknown names or other values, which are reported as such.
    lines = read_text(path, errors="replace").splitlines()
    settings = {}
    for line in lines:
        if line.startswith("--"):
            name, _, value = line[2:].partition("=")
            settings[name] = value
    return settings


def error_line(error: Exception) -> str | None:
    """Returns the message for bad input or exhausted resources; None for other errors.

    The library raises ValueError and OSError for bad input. Missing files are named with the flag
    that gave them.
    """
    reason = (str(error).splitlines() or [""])[0]
    # TensorFlow's error is recognized by its name, so that TensorFlow is not loaded here.
    is_exhausted = type(error).__name__ == "ResourceExhaustedError"
    # On a full disk, a write of an array only reports how many items were written.
    is_cut = isinstance(error, OSError) and CUT_ARRAY.fullmatch(reason) is not None
    is_full = is_cut or getattr(error, "errno", None) == errno.ENOSPC
    if is_full or is_exhausted and "No space" in reason:
        start = "A file could not be written completely: " if is_cut else ""
        return f"{start}{error}. Free some space and run the same command again."
    if isinstance(error, MemoryError) or is_exhausted:
        return (
            f"Out of memory ({reason or 'an allocation failed'}); use smaller batches (to train a "
            "batch in parts: --gradient_accumulation_steps, --recompute), shorter sequences or "
            "fewer processes."
        )
    if isinstance(error, RecursionError):
        return f"The input is nested too deeply ({reason})."
    if isinstance(error, RuntimeError) and reason.startswith(PATH_ERRORS):
        return f"A path cannot be followed: {reason}"
    if isinstance(error, UnicodeEncodeError):  # File names on Linux may be any bytes.
        return f"A name is not UTF-8, rename it: {_not_utf8_part(error)}"
    if isinstance(error, (ValueError, OSError)):
        return f"{error}{_flags_of_missing(error)}"
    return None


def _not_utf8_part(error: UnicodeEncodeError) -> str:
    """Returns the word that cannot be encoded; the error may contain the text of a whole file."""
    start = max(error.object.rfind(blank, 0, error.start) for blank in " =\n\t") + 1
    return repr(error.object[start:].split()[0])[:1000]


def _flags_of_missing(error: Exception) -> str:
    """Returns the flags with a missing file, unless the error already names them."""
    text = str(error)
    named = []
    for name in flags.FLAGS:
        value = flags.FLAGS[name].value
        # Only flags of paths, and only if the message does not name them.
        if not isinstance(value, str) or not name.endswith(FILE_FLAGS) or f"--{name}" in text:
            continue
        for path in filter(None, map(str.strip, value.split(","))):
            # A glob without matches is also missing.
            is_missing = isinstance(error, FileNotFoundError) or not glob.glob(path)  # noqa: PTH207
            if path in text and is_missing:
                named.append(f" (--{name}={path})")
    return "".join(named)


def flags_naming(name: str) -> str:
    """Returns " (--FLAG, ...)", the flags whose values name a data set or model, or "".

    Args:
      name: name with its scheme, such as tfds:glue/sst2:train; a flag may have only its beginning.
    """
    if not flags.FLAGS.is_parsed():
        return ""
    naming = []
    for flag in flags.FLAGS:
        value = flags.FLAGS[flag].value
        values = value.split(",") if isinstance(value, str) else []
        for part in filter(None, map(str.strip, values)):
            if ":" in part and (name.startswith(part) or part.startswith(name)):
                naming.append(f"--{flag}")
    if naming:
        return f" ({', '.join(dict.fromkeys(naming))})"
    return ""


def run(
    main: Callable[[list[str]], int | None],
    kept: str = "Finished work is kept.",
    written: Sequence[str] = OUTPUT_FLAGS,
) -> None:
    """Runs a program: parses flags, sets up plain logs, and reports bad input in one line.

    Args:
      main: takes the command line without flags, returns the exit status.
      kept: message to the user after Ctrl-C.
      written: flags whose files or folders the program writes, if it has them.

    For errors that `error_line` knows, the message is printed without the traceback, which
    --verbosity=1 shows; the exit status is 1, and 130 after Ctrl-C.
    """

    def guarded(arguments: list[str]) -> int | None:
        logging.get_absl_handler().setFormatter(printable.LogFormatter())
        sys.excepthook = printable.show_uncaught
        # absl's default hides the lines about progress.
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.INFO)
        try:
            if len(arguments) > 1:
                raise ValueError(f"Unexpected arguments {arguments[1:]}; flags begin with --.")
            # After the checks of flags and tables, and before TensorFlow takes its seconds.
            with before_import("tensorflow", lambda: _check_paths(written)):
                return main(arguments)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _output_is_closed():
                raise
            line = error_line(error)
            if line is None:
                raise
            if logging.level_debug():
                printable.show_uncaught(type(error), error, error.__traceback__)
            printable.print_error(line)
            return 1
        except KeyboardInterrupt:
            printable.print_notice(f"Interrupted. {kept}")
            return 130

    printable.open_closed_streams()
    import_keras_without_extras()
    try:
        app.run(guarded, flags_parser=parse)
    except OSError as error:  # Of standard output; `guarded` reports all others.
        if _output_is_closed():
            sys.exit(_end_quietly())
        printable.print_error(str(error_line(error)))
        sys.exit(1)
    except SystemExit:
        if _output_is_closed():
            sys.exit(_end_quietly())
        raise


def _output_is_closed() -> bool:
    """Returns whether standard output is a pipe whose reader is gone, as in `... | head`."""
    try:
        descriptor = sys.stdout.fileno()
    except (ValueError, OSError):  # Not a file, for example in a notebook.
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _end_quietly() -> int:
    """Ends the output to a pipe whose reader is gone; returns the status of SIGPIPE in shells."""
    # The interpreter flushes standard output when it exits, which would fail again.
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
    return 128 + signal.SIGPIPE


def _check_paths(written: Sequence[str]) -> None:
    """Raises ValueError for the first flag whose model does not exist, before TensorFlow loads.

    The same for those of `written`, whose files the program writes, and cannot.
    """
    for name in sorted(set(written).intersection(flags.FLAGS)):
        path = flags.FLAGS[name].value
        if path and (fault := output_fault(path)):
            raise ValueError(f"--{name}={path} {fault}; name one in a writable folder.")
    for name in MODEL_FLAGS:
        if name in written or name not in flags.FLAGS or not flags.FLAGS[name].present:
            continue
        path = flags.FLAGS[name].value
        # A run that resumes from its own checkpoints does not read the model it started from.
        is_resumed = name == "init_checkpoint" and _has_checkpoints()
        if not isinstance(path, str) or not path or is_resumed:
            continue
        try:
            check_model(path, has_weights=name in WHOLE_MODEL_FLAGS)
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from None


def _has_checkpoints() -> bool:
    """Returns whether --output_dir has checkpoints, or a run of several in it, as fold-1."""
    if "output_dir" not in flags.FLAGS or not flags.FLAGS["output_dir"].value:
        return False
    folder = pathlib.Path(flags.FLAGS["output_dir"].value).expanduser()
    patterns = ("model.ckpt-*.index", "*/model.ckpt-*.index")
    return any(next(folder.glob(pattern), None) for pattern in patterns)


def _show_help(arguments: Sequence[str]) -> None:
    """Shows the text of --help and ends the program, if that flag is among the arguments."""
    before_words = itertools.takewhile(lambda argument: argument != "--", arguments[1:])
    if not HELP_FLAGS & set(before_words):
        return
    main = sys.modules["__main__"]
    key_flags = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    names = [flag.name for flag in key_flags]
    printable.show(help_text(main.__doc__ or "", names, GROUPS))
    sys.exit(0)


def _check_finite() -> None:
    """Raises an error for a number that is not finite, which absl considers in range."""
    for name in flags.FLAGS:
        value = flags.FLAGS[name].value
        if isinstance(value, float) and not math.isfinite(value):
            raise flags.IllegalFlagValueError(f"flag --{name}={value}: expected a finite number")


def parse(arguments: list[str]) -> list[str]:
    """Parses a command line, with the package's flagfiles; returns arguments that are not flags.

    A wrong flag ends the program with status 1 and one line, before TensorFlow is loaded.
    """
    try:
        # The records of runs are left out: programs name each field in them.
        by_hand = flagfiles.expanded(arguments, with_records=False)
        arguments = flagfiles.expanded(arguments)
    except (ValueError, OSError) as error:
        printable.print_error(f"--flagfile: {error}")
        sys.exit(1)
    try:
        _show_help(arguments)
        words = flags.FLAGS(list(arguments))
        _check_finite()
        warn_of_fields(by_hand)
        return words
    except flags.Error as error:
        printable.print_error(f"{str(error).rstrip('.')} (--help lists the flags).")
        sys.exit(1)
