"""Compiles the training steps of bert_tf for a TPU, on a machine without one.

    make tpu-check
    python -m benchmarks.tpu_check --topology=v6e:2x2 --only=LAMB

Each step is that of a program with its flags (`tpu_step`), compiled for one chip by libtpu's
compiler in an environment of its own (`tpu_compiler`). A step fails if it does not compile, calls
something that a TPU does not have, updates a variable in other memory than its own, or needs more
memory than the chip has. The exit status is then 1. The table is printed as Markdown.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from benchmarks.timing import print_table
from benchmarks.tpu_inputs import BASE_STEPS, STEPS, Step, write_inputs

HEADS = ("step", "one chip", "memory", "TFLOP by XLA", "by formula", "estimate", "parts")
# What libtpu's messages contain if another process uses it.
LOCKED = ("already in use", "lockfile")


class Chip(NamedTuple):
    """Dense peak FLOP/s in bfloat16, bytes of memory, and clock in Hz, from data sheets."""

    flops: float
    memory: float
    clock: float


# By jax's names of the devices.
CHIPS = {
    "TPU v4": Chip(275e12, 32e9, 1.05e9),
    "TPU v5 lite": Chip(197e12, 16e9, 1.5e9),
    "TPU v5": Chip(459e12, 95e9, 1.75e9),
    "TPU v6 lite": Chip(918e12, 32e9, 1.75e9),
}


def find_fault(report: dict[str, Any]) -> str:
    """Returns why a step of a report of `tpu_compiler` cannot run on its chip; "": it can."""
    if error := report.get("error"):
        return error.splitlines()[0]
    if calls := report["custom_calls"]:
        return f"calls {', '.join(sorted(set(calls)))}, which a TPU does not have"
    if report["in_place"] < report["updated"]:
        return f"only {report['in_place']} of {report['updated']} variables updated in place"
    memory = CHIPS[report["chip"]].memory
    if report["bytes"] > memory:
        return f"needs {report['bytes'] / 1e9:.1f} GB of {memory / 1e9:.0f} GB"
    return ""


def table_row(name: str, report: dict[str, Any]) -> list[str]:
    """Returns the cells of `HEADS`; the estimates are only for models of a real size."""
    if fault := find_fault(report):
        return [name, f"fails: {fault.replace('|', '/')}", *[""] * (len(HEADS) - 2)]
    memory = f"{report['bytes'] / 1e6:,.0f} MB"
    if name not in BASE_STEPS:
        return [name, "compiles", memory, *[""] * (len(HEADS) - 3)]
    chip = CHIPS[report["chip"]]
    cycles = sum(report["cycles"].values())
    seconds = cycles / chip.clock
    share = report["formula_flops"] / seconds / chip.flops
    return [
        name,
        "compiles",
        memory,
        f"{report['flops'] / 1e12:.3g}",
        f"{report['formula_flops'] / 1e12:.3g}",
        f"{1e3 * seconds:.1f} ms, {share:.0%} of peak",
        ", ".join(f"{part} {count / cycles:.0%}" for part, count in report["cycles"].items()),
    ]


def lower(path: pathlib.Path, step: Step, folder: pathlib.Path) -> str:
    """Writes the HLO of a step; returns the program's message if it fails."""
    run = folder / "runs" / path.name
    flags = {**step.flags, "output_dir": run}
    given = [f"--{name}={value}".format(folder=folder) for name, value in flags.items()]
    command = [sys.executable, "-m", "benchmarks.tpu_step", str(path), step.program, *given]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if path.with_suffix(".json").exists():
        return ""
    return last_line(done.stdout)


class Compiler:
    """A process of `tpu_compiler`.

    Args:
      python: an interpreter with jax and libtpu.
      topology: a name of libtpu's for connected chips.

    Raises:
      ValueError: if it cannot compile anything: without its packages, with a topology that it does
        not know, or while another process uses libtpu.
    """

    def __init__(self, python: str, topology: str) -> None:
        if not shutil.which(python):
            raise ValueError(f"{python} is not there; `make tpu-check` makes it.")
        program = pathlib.Path(__file__).with_name("tpu_compiler.py")
        self.messages = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(program), topology],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            text=True,
        )
        if self.process.stdout.readline() == "ready\n":
            return
        messages = self.close()
        if "ModuleNotFoundError" in messages:
            remedy = "it needs the packages of requirements_tpu_check.txt; `make tpu-check`"
        elif any(word in messages for word in LOCKED):
            remedy = "another process uses libtpu; wait for its end"
        else:
            remedy = f"is --topology={topology} one of libtpu's, such as v5e:2x2 or v4:2x2x1?"
        raise ValueError(f"{python}: {last_line(messages)} ({remedy})")

    def compile(self, path: pathlib.Path) -> dict[str, Any]:
        """Returns the report on a step; if the compiler crashes, a new process follows it."""
        self.process.stdin.write(f"{path}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": f"it crashes: {last_line(self.close())}"}

    def close(self) -> str:
        """Ends the process; returns its messages."""
        self.process.communicate()
        with self.messages as file:
            file.seek(0)
            return file.read()


def last_line(text: str) -> str:
    """Returns the last line of a program's output."""
    return (text.strip().splitlines() or ["no message"])[-1]


def check(flags: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name and the report of each step."""
    compiler = Compiler(flags.tpu_python, flags.topology)
    names = [name for name in STEPS if flags.only in name]
    # While a step is compiled, the next one is lowered.
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(1) as worker:
        folder = pathlib.Path(temporary)
        write_inputs(folder)
        paths = [folder / f"step{number}" for number in range(len(names))]
        steps = [STEPS[name] for name in names]
        errors = worker.map(lower, paths, steps, [folder] * len(names))
        for name, path, error in zip(names, paths, errors, strict=True):
            yield name, {"error": error} if error else compiler.compile(path)
            if compiler.process.poll() is not None:
                compiler = Compiler(flags.tpu_python, flags.topology)
    compiler.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tpu_python", default=".venv-tpu/bin/python", help="Has jax and libtpu.")
    parser.add_argument("--topology", default="v5e:2x2", help="Chips, of which one is used.")
    parser.add_argument("--only", default="", help="Only steps whose name contains this.")
    faults = []

    def rows() -> Iterator[list[str]]:
        for name, report in check(parser.parse_args()):
            faults.append(find_fault(report))
            yield table_row(name, report)

    try:
        print_table(HEADS, rows())
    except ValueError as error:
        sys.exit(f"ERROR: {error}")
    sys.exit(any(faults))


if __name__ == "__main__":
    main()
