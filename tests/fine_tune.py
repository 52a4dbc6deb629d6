"""A tiny task for the fine-tuning programs, and their runs inside the test's own process.

There TensorFlow is loaded already, which is most of what a program of a few steps waits for. What
only a process of its own can show is run by `tests/programs.py`.
"""

import csv
import importlib
import json
import logging
import pathlib
from typing import Any
from unittest import mock

import pytest
from absl import flags
from absl.testing import flagsaver

from bert_tf.tasks.base.programs.run import Run
from bert_tf.training import packed_rows
from bert_tf.training.metrics_log import read_metrics
from tests.programs import quick
from tests.tiny_model import write_tiny_model

WORDS = ("the", "film", "was", "good", "bad", "fine", "very", "but", "##ly")
LABELS = {"good": "pos", "bad": "neg", "fine": "so-so"}
FLAGS = {
    "optimizer": "adam_weight_decay",  # Learns so few rows in fewer steps.
    "max_seq_length": 16,
    "train_batch_size": 8,
    "learning_rate": 3e-3,
    "log_steps": 1,
    "jit_compile": "false",
}

# Of a run that trains, evaluates and predicts.
WHOLE_RUN = {
    **FLAGS,
    "train_batch_size": 16,
    "hidden_dropout_prob": 0,
    "log_steps": 10,
    "do_train": "true",
    "do_eval": "true",
    "do_predict": "true",
}


def write_folder(folder: pathlib.Path, num_hidden_layers: int = 1) -> pathlib.Path:
    """Writes a model, train.csv of 48 texts and dev.csv of 25, two of them with wrong labels."""
    write_tiny_model(folder / "model", *WORDS, num_hidden_layers=num_hidden_layers)
    write_table(folder / "train.csv", texts(48))
    rows = texts(25)
    for row in rows[-2:]:
        row["label"] = "neg" if row["label"] != "neg" else "pos"
    write_table(folder / "dev.csv", rows)
    return folder


def texts(count: int) -> list[dict[str, str]]:
    """Makes texts of which one word tells the class, of 6 to 10 pieces."""
    words = list(LABELS)
    return [
        {
            "text": f"the film was {'very ' * (index % 5)}{words[index % 3]}",
            "label": LABELS[words[index % 3]],
        }
        for index in range(count)
    ]


def write_table(path: pathlib.Path, rows: list[dict[str, Any]]) -> pathlib.Path:
    """Writes a .csv, .tsv or .jsonl."""
    with path.open("w", encoding="utf8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        elif path.suffix == ".tsv":
            lines = [list(rows[0]), *(list(row.values()) for row in rows)]
            file.writelines("\t".join(line) + "\n" for line in lines)
        else:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def read_tsv(path: pathlib.Path) -> list[dict[str, str]]:
    """Returns the rows of a table separated by tabs with a header."""
    header, *lines = path.read_text(encoding="utf8").splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def read_results(folder: pathlib.Path, name: str = "eval_results.txt") -> dict[str, float]:
    """Returns the values of eval_results.txt by name."""
    lines = (folder / name).read_text(encoding="utf8").splitlines()
    lines = lines[lines[0].startswith("# ") :]
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def fine_tune(program: str, *arguments: str, **values: Any) -> int:
    """Does a run with FLAGS, some of them changed; returns the exit status.

    With `arguments`, a flagfile say, FLAGS do not count.
    """
    module = importlib.import_module(f"bert_tf.{program}")
    given = values if arguments else {**FLAGS, **values}
    with flagsaver.flagsaver(), quick():
        flags.FLAGS([program, *arguments, *(f"--{name}={value}" for name, value in given.items())])
        return module.main([])


def interrupt(monkeypatch: pytest.MonkeyPatch, program: str, **values: Any) -> list[str]:
    """Does the first of the runs within a run and stops at the second.

    Returns the names of the runs' folders, and adds those of the runs that are done after it.
    """
    runs: list[str] = []
    execute = Run.execute

    def execute_or_stop(self: Run, strategy: Any = None) -> Any:
        runs.append(self.folder.name)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return execute(self, strategy)

    monkeypatch.setattr(Run, "execute", execute_or_stop)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(program, **values)
    return runs


def log_of(caplog: pytest.LogCaptureFixture, program: str, *arguments: str, **values: Any) -> str:
    """Does a run, which must end well; returns what it logged."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="absl"):
        assert fine_tune(program, *arguments, **values) == 0
    return "\n".join(record.getMessage() for record in caplog.records)


def files_of(folder: pathlib.Path, *but: str) -> dict[str, bytes]:
    """Returns the contents of a folder's files by name, without those of some names."""
    paths = [path for path in folder.iterdir() if path.is_file() and path.name not in but]
    return {path.name: path.read_bytes() for path in paths if path.suffix != ".png"}


def check_packed_rows(program: str, folder: pathlib.Path, **values: Any) -> None:
    """Trains twice in micro-batches, without and with packed rows: losses and results are alike.

    Args:
      program: its name.
      folder: where both run directories are made.
      values: flags, of a training without dropout.
    """
    few = {"num_train_steps": 4, "log_steps": 1, "gradient_accumulation_steps": 2}
    lines, results = [], []
    for pack_rows in (False, True):
        path = folder / f"pack_rows_{pack_rows}"
        given = {**values, **few, "pack_rows": pack_rows, "output_dir": path}
        with mock.patch.object(packed_rows, "plan_rows", wraps=packed_rows.plan_rows) as plan:
            assert fine_tune(program, **given) == 0
        assert plan.called == pack_rows
        lines.append(read_metrics(path / "metrics.jsonl"))
        results.append(read_results(path))
    assert len(lines[0]) == 4 and lines[0][0]["loss"] != lines[0][1]["loss"]
    for line, expected in zip(*lines, strict=True):
        assert line == pytest.approx(expected, rel=1e-4)
    assert results[1] == pytest.approx(results[0], rel=1e-4)


def refuse(program: str, *arguments: str, **values: Any) -> str:
    """Returns the message, one line, with which a run is refused."""
    with pytest.raises((ValueError, OSError)) as caught:
        fine_tune(program, *arguments, **values)
    message = str(caught.value)
    assert message and "\n" not in message
    return message
