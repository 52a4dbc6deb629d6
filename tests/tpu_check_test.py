"""The check of steps for TPUs: what it lowers and finds, and its messages without a compiler."""

import pathlib
import sys

import pytest
import tensorflow as tf

from benchmarks.tpu_check import check_compiler, compile_step, find_fault, table_row
from benchmarks.tpu_inputs import STEPS
from benchmarks.tpu_step import lower
from bert_tf.config import OptimizerConfig
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.train_step import TrainStep
from tests.programs import defined_flags
from tests.training.toy_task import ToyTask, toy_batch

GOOD = {
    "chip": "TPU v5 lite",
    "custom_calls": [],
    "updated": 40,
    "in_place": 40,
    "bytes": 3e9,
    "flops": 4.5e12,
    "formula_flops": 3.94e12,
    "cycles": {"attention": 45_000_000, "update": 15_000_000},
    "reductions": [[8e6, 0.5, False]],
}
BASE = "BERT-Base, 64 x 128, AdamWeightDecay"
FAULTS = {
    "it failed\nat length": {"error": "it failed\nat length"},
    "Callback": {"custom_calls": ["Callback", "Callback"]},
    "39 of 40": {"in_place": 39},
    "17.0 GB of 16 GB": {"bytes": 17e9},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault: str) -> None:
    found = find_fault({**GOOD, **FAULTS[fault]})
    assert fault.splitlines()[0] in found and "\n" not in found
    row = table_row("name", {**GOOD, **FAULTS[fault]})
    assert row[0] == "name" and found in row[1]


def test_a_row_has_the_estimate_in_seconds_and_parts() -> None:
    """60 million cycles at 1.5 GHz are 40 ms; half of the 197 TFLOP/s would be 50 %."""
    assert not find_fault(GOOD)
    _, said, memory, by_xla, by_formula, estimate, parts = table_row(BASE, GOOD)
    assert said == "compiles" and memory == "3,000 MB"
    assert (by_xla, by_formula) == ("4.5", "3.94")
    assert "40.0 ms" in estimate and "50%" in estimate
    assert "attention 75%" in parts and "update 25%" in parts and "8.0 MB after 50%" in parts
    assert table_row("AdamW", GOOD) == ["AdamW", said, memory, *[""] * 4]


def stand_in(folder: pathlib.Path, code: str) -> str:
    """Writes an interpreter that runs this code instead of the compiler; returns its path."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{code}\n", encoding="utf8")
    path.chmod(0o755)
    return str(path)


def test_the_report_of_a_compiler_that_works_or_crashes(tmp_path: pathlib.Path) -> None:
    python = stand_in(
        tmp_path, f"import json, sys\nprint(json.dumps({GOOD!r} | dict(asked=sys.argv[2:])))"
    )
    check_compiler(python, "v4:2x2x1")
    found = compile_step(python, "v4:2x2x1", pathlib.Path("a/step"))
    assert found == {**GOOD, "asked": ["v4:2x2x1", "a/step"]}
    python = stand_in(tmp_path, "import sys\nsys.exit('W1 slow\\nE0000 it broke')")
    error = compile_step(python, "v4:2x2x1", pathlib.Path("b"))["error"]
    assert "E0000 it broke" in error and "W1" not in error


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("import jax_of_nobody", ["requirements_tpu_check.txt"]),
        ("raise RuntimeError('The TPU is already in use by process 7')", ["libtpu", "7"]),
        ("raise ValueError('v9:1x1 has no such shape')", ["--topology=v9:1x1", "v5e:2x2"]),
    ],
)
def test_what_keeps_the_compiler_from_working(
    tmp_path: pathlib.Path, code: str, named: list[str]
) -> None:
    with pytest.raises(ValueError) as raised:
        check_compiler(stand_in(tmp_path, code), "v9:1x1")
    message = str(raised.value)
    assert "\n" not in message and all(name in message for name in named)


def test_no_environment(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="make tpu-check"):
        check_compiler(str(tmp_path / "none"), "v5e:2x2")


@pytest.mark.slow
def test_a_step_is_lowered_with_the_variables_that_it_updates() -> None:
    task = ToyTask()
    optimizer = build_optimizer(OptimizerConfig(num_train_steps=10, num_warmup_steps=1))
    optimizer.build(task.model.trainable_variables)
    step = TrainStep(task, optimizer, tf.distribute.get_strategy(), random_seed=1)
    batch = {name: tf.constant(value) for name, value in toy_batch(0, 4).items()}
    hlo, updated = lower(step, batch)
    assert b"custom_call" not in hlo and b"all-reduce" not in hlo
    # Weights, two moments of each, and the number of the step.
    assert len(updated) == 3 * len(task.model.trainable_variables) + 1
    assert min(updated) > len(batch)
    hlo, of_replica = lower(step, batch, replicas=2)
    assert b"all-reduce" in hlo and of_replica == updated


def test_flags_of_the_steps_exist() -> None:
    for program in {step.program for step in STEPS.values()}:
        defined = defined_flags(program)
        for name, step in STEPS.items():
            if step.program == program:
                unknown = {*step.flags, "output_dir"} - set(defined)
                assert not unknown, (name, unknown)
