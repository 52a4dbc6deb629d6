"""Compiles the training steps of bert_tf for a TPU, on a machine without one.

    make tpu-check
    python -m benchmarks.tpu_check --topology=v6e:2x2 --only=LAMB

Each step is that of a program with its flags (`tpu_step`), compiled for one chip by libtpu's
compiler in an environment of its own (`tpu_compiler`). A step fails if it does not compile, calls
something that a TPU does not have, updates a variable in other memory than its own, or needs more
memory than the chip has. The exit status is then 1. The table is printed as Markdown.
"""

import argparse
import functools
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
    parts = [f"{part} {count / cycles:.0%}" for part, count in report["cycles"].items()]
    for size, spent, is_started in report["reductions"]:
        action = "start of the sum" if is_started else "sum"
        parts.append(f"{action} of {size / 1e6:,.1f} MB after {spent:.0%}")
    return [
        name,
        "compiles",
        memory,
        f"{report['flops'] / 1e12:.3g}",
        f"{report['formula_flops'] / 1e12:.3g}",
        f"{1e3 * seconds:.1f} ms, {share:.0%} of peak",
        ", ".join(parts),
    ]


def lower(path: pathlib.Path, step: Step, folder: pathlib.Path, replicas: int) -> str:
    """Writes the HLO of a step; returns the program's message if it fails."""
    run = folder / "runs" / path.name
    flags = {**step.flags, "output_dir": run}
    given = [f"--{name}={value}".format(folder=folder) for name, value in flags.items()]
    command = [sys.executable, "-m", "benchmarks.tpu_step", str(path), step.program, *given]
    command.append(f"--replicas={replicas}")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if path.with_suffix(".json").exists():
        return ""
    return last_line(done.stdout)


def run_compiler(
    python: str, topology: str, *paths: pathlib.Path
) -> subprocess.CompletedProcess[str]:
    """Runs `tpu_compiler` on the steps of paths; an interpreter with jax and libtpu does."""
    program = pathlib.Path(__file__).with_name("tpu_compiler.py")
    command = [python, str(program), topology, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


def check_compiler(python: str, topology: str) -> None:
    """Raises ValueError if nothing can be compiled.

    That is without the compiler's packages, with a topology that it does not know, or while another
    process uses libtpu.
    """
    if not shutil.which(python):
        raise ValueError(f"{python} is not there; `make tpu-check` makes it.")
    done = run_compiler(python, topology)
    if not done.returncode:
        return
    if "ModuleNotFoundError" in done.stderr:
        remedy = "it needs the packages of requirements_tpu_check.txt; `make tpu-check`"
    elif any(word in done.stderr for word in LOCKED):
        remedy = "another process uses libtpu; wait for its end"
    else:
        remedy = f"is --topology={topology} one of libtpu's, such as v5e:2x2 or v4:2x2x1?"
    raise ValueError(f"{python}: {last_line(done.stderr)} ({remedy})")


def compile_step(python: str, topology: str, path: pathlib.Path) -> dict[str, Any]:
    """Returns the report on a step."""
    done = run_compiler(python, topology, path)
    if done.returncode:
        return {"error": f"the compiler crashes: {last_line(done.stderr)}"}
    return json.loads(done.stdout)


def last_line(text: str) -> str:
    """Returns the last line of a program's output."""
    return (text.strip().splitlines() or ["no message"])[-1]


def check(flags: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the name and the report of each step."""
    names = [name for name in STEPS if flags.only in name]
    # While a step is compiled, the next one is lowered.
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(1) as worker:
        folder = pathlib.Path(temporary)
        write_inputs(folder)
        paths = [folder / f"step{number}" for number in range(len(names))]
        steps = [STEPS[name] for name in names]
        lowering = functools.partial(lower, folder=folder, replicas=flags.replicas)
        errors = worker.map(lowering, paths, steps)
        for name, path, error in zip(names, paths, errors, strict=True):
            if error:
                yield name, {"error": error}
            else:
                yield name, compile_step(flags.tpu_python, flags.topology, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tpu_python", default=".venv-tpu/bin/python", help="Has jax and libtpu.")
    parser.add_argument("--topology", default="v5e:2x2", help="Chips, of which one is used.")
    parser.add_argument("--replicas", type=int, default=1, help="Chips that share a batch.")
    parser.add_argument("--only", default="", help="Only steps whose name contains this.")
    flags = parser.parse_args()
    faults = []

    def rows() -> Iterator[list[str]]:
        for name, report in check(flags):
            faults.append(find_fault(report))
            yield table_row(name, report)

    try:
        check_compiler(flags.tpu_python, flags.topology)
        print_table(HEADS, rows())
    except ValueError as error:
        sys.exit(f"ERROR: {error}")
    sys.exit(any(faults))


if __name__ == "__main__":
    main()
