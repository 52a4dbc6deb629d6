"""Runs the programs as a user does: in this process, or in one of their own.

`run` is for most tests: TensorFlow is loaded already, which is most of what a program of a few
steps waits for. `start` is for what only a process can show: signals, start-up, memory.
"""

import contextlib
import dataclasses
import io
import logging as python_logging
import os
import pathlib
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from unittest import mock

from absl import app, flags, logging
from absl.testing import flagsaver

from tests.conftest import CORPUS

# Flags of pre-training a model of seconds.
SMALL_BERT = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
}
# Of a run whose steps do not matter.
FOUR_STEPS = {
    "do_train": "true",
    "train_batch_size": 8,
    "learning_rate": 1e-3,
    "num_warmup_steps": 1,
    "num_train_steps": 4,
    "save_checkpoints_steps": 2,
    "log_steps": 1,
    "num_workers": 1,
    "jit_compile": "false",
}


@dataclasses.dataclass(frozen=True)
class Done:
    """What a program that ran in this process left.

    Attributes:
      returncode: its exit status.
      stdout: what it wrote to standard output.
      printed: what it wrote to standard output and error, in order.
    """

    returncode: int
    stdout: str
    printed: str


def run(program: str, *arguments: str, **values) -> Done:
    """Runs `python -m bert_tf.PROGRAM` in this process, with flags and logging of its own.

    Args:
      program: name of a module of bert_tf, or with its package, as "export.tflite".
      arguments: command line before the flags.
      values: flags by name.
    """
    module, given = command(program, arguments, values)
    printed, stdout = io.StringIO(), io.StringIO()
    tee = _Tee(stdout, printed)
    with (
        own_flags(),
        mock.patch.object(sys, "argv", [module, *given]),
        contextlib.redirect_stdout(tee),
        contextlib.redirect_stderr(printed),
        own_logging(),
        quick(),
    ):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as end:
            status = end.code
            if isinstance(status, str):
                printed.write(status + "\n")
                status = 1
    return Done(int(status or 0), stdout.getvalue(), printed.getvalue())


def pretrain(output_dir: pathlib.Path, *arguments: str, **values) -> Done:
    """Runs `run_pretraining` on CORPUS, which is written beside the run directory."""
    corpus = output_dir.parent / "corpus.txt"
    if not corpus.exists():
        corpus.write_text(CORPUS + "\n", encoding="utf8")
    given = {"input_file": corpus, "output_dir": output_dir, **values}
    return run("run_pretraining", *arguments, **given)


def defined_flags(program: str) -> dict[str, flags.Flag]:
    """Returns the flags of a program of absl by their names."""
    module, given = command(program, ("--help",), {})
    with (
        own_flags(),
        mock.patch.object(sys, "argv", [module, *given]),
        contextlib.redirect_stdout(io.StringIO()),
        own_logging(),
    ):
        with contextlib.suppress(SystemExit):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        return {name: flags.FLAGS[name] for name in flags.FLAGS}


class _Tee(io.TextIOBase):
    """Writes to several files."""

    def __init__(self, *files: io.TextIOBase) -> None:
        self.files = files

    def write(self, text: str) -> int:
        return [file.write(text) for file in self.files][0]


@contextlib.contextmanager
def own_flags() -> Iterator[None]:
    """Gives absl's flags as a new process has them: those of no program, at their defaults."""
    app.define_help_flags()
    fresh = flags.FlagValues()
    for module, found in flags.FLAGS.flags_by_module_dict().items():
        for flag in found if module.startswith("absl.") else ():
            fresh[flag.name] = flag
            fresh.register_flag_by_module(module, flag)
    state = vars(flags.FLAGS)  # The object stays: every DEFINE of absl holds it.
    with flagsaver.flagsaver(), warnings.catch_warnings():
        # That another test imported the program's module does not matter: it is executed again.
        warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
        old = dict(state)
        state.update(vars(fresh))
        for name in flags.FLAGS:
            flags.FLAGS[name].unparse()
        try:
            yield
        finally:
            state.clear()
            state.update(old)


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Spares a training what takes longer than a test's few steps, and has tests of its own.

    That is to measure the machine, and to draw the curves.
    """
    products = {"float32": 1e11, "bfloat16": 2e11}
    with (
        mock.patch("bert_tf.training.flops.measure_products", return_value=products),
        mock.patch("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b"PNG")),
    ):
        yield


@contextlib.contextmanager
def own_logging() -> Iterator[None]:
    """Gives absl its handler as a program's start does, and puts back what the program changes."""
    root, handler = python_logging.getLogger(), logging.get_absl_handler().python_handler
    handlers, level = root.handlers[:], root.level
    stream, formatter = handler.stream, handler.formatter
    excepthook = sys.excepthook
    logging.use_absl_handler()  # absl does so at its first start only.
    handler.setStream(sys.stderr)
    try:
        yield
    finally:
        handler.setFormatter(formatter)
        handler.setStream(stream)
        root.handlers[:] = handlers
        root.setLevel(level)
        sys.excepthook = excepthook


def start(program: str, *arguments: str, environment=(), **values) -> subprocess.Popen:
    """Starts a program in a process of its own; returns the process."""
    module, given = command(program, arguments, values)
    return subprocess.Popen(
        [sys.executable, "-m", module, *given],
        env={**os.environ, **dict(environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def command(program: str, arguments: tuple[str, ...], values: dict) -> tuple[str, list[str]]:
    """Returns the name of a program's module, and its command line."""
    module = program if "." in program else f"bert_tf.{program}"
    return module, [*arguments, *(f"--{name}={value}" for name, value in values.items())]


def finish(process: subprocess.Popen | Done) -> str:
    """Returns what the program printed; its exit status must be 0."""
    status, printed = _end(process)
    assert status == 0, printed
    return printed


def fail(process: subprocess.Popen | Done) -> str:
    """Returns what the program printed; it must end with status 1 and one clear line."""
    status, printed = _end(process)
    assert status == 1, printed
    assert "Traceback" not in printed and "ERROR: " in printed
    return printed


def _end(process: subprocess.Popen | Done) -> tuple[int, str]:
    if isinstance(process, Done):
        return process.returncode, process.printed
    printed = process.communicate(timeout=300)[0]
    return process.returncode, printed
