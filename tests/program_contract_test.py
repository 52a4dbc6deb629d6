"""The contract of the programs that fine-tune; what is special about each stands in its own file.

For each program of `PROGRAMS`, with dropout, on its own kind of data:

- a run writes metrics, results and predictions; the same command on the finished run changes none
  of its files;
- its run.flags, given as a flagfile, repeats the run to the same bytes in another folder;
- a run that lost its last checkpoint goes on from the one before to the same bytes: losses,
  results, predictions, weights;
- the run directory alone is judged and predicts again, to the same bytes;
- a setting that contradicts the record is refused in one line that names both values, and a wrong
  flag and a missing file in one that names them; no file changes;
- micro-batches with packed rows have the losses and results of those without.
"""

import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bert_tf.training.metrics_log import read_metrics
from tests import (
    denoising_test,
    fine_tune,
    run_classifier_test,
    run_multiple_choice_test,
    run_reranker_test,
    run_retriever_test,
    run_squad_joint_test,
    run_squad_test,
    run_tagger_test,
)
from tests.fine_tune import check_packed_rows, files_of, refuse
from tests.programs import fail, run
from tests.slow_variants import slow_unless

STEPS = {
    "num_train_steps": 6,
    "num_warmup_steps": 0,
    "save_checkpoints_steps": 4,
    "log_steps": 1,
    "hidden_dropout_prob": 0.1,
    "do_train": "true",
    "do_eval": "true",
    "do_predict": "true",
}
DATA = "model.ckpt-6.data-00000-of-00001"


class Program(NamedTuple):
    """A program and its data.

    Attributes:
      name: the program.
      write_files: writes a model and data into a folder.
      flags_of: returns the flags of a run, of the folder and the name of an output_dir.
      predictions: the files of predictions; empty for a program that only evaluates.
      packs_rows: whether it has --pack_rows.
    """

    name: str
    write_files: Callable
    flags_of: Callable
    predictions: tuple[str, ...]
    packs_rows: bool = True


CHOICES = run_multiple_choice_test
ANSWERS = ("predictions.json", "nbest_predictions.json")
PROGRAMS = {
    "classifier": Program(
        "run_classifier",
        fine_tune.write_folder,
        run_classifier_test.flags_of,
        ("predictions.tsv", "test_results.tsv"),
    ),
    "tagger": Program(
        "run_tagger",
        run_tagger_test.write_files,
        lambda folder, name: run_tagger_test.flags_of(folder, name, "txt"),
        ("predictions.txt",),
    ),
    "squad": Program("run_squad", run_squad_test.write_files, run_squad_test.flags_of, ANSWERS),
    "joint": Program(
        "run_squad",
        run_squad_joint_test.write_files,
        run_squad_joint_test.flags_of,
        (*ANSWERS, "null_odds.json"),
    ),
    "choice": Program(
        "run_multiple_choice", CHOICES.write_files, CHOICES.flags_of, ("predictions.tsv",)
    ),
    "reranker": Program(
        "run_reranker",
        run_reranker_test.write_files,
        run_reranker_test.flags_of,
        ("predictions.tsv",),
    ),
    "retriever": Program(
        "run_retriever",
        run_retriever_test.write_files,
        run_retriever_test.flags_of,
        (),
        packs_rows=False,
    ),
    "denoising": Program(
        "run_retriever",
        denoising_test.write_files,
        denoising_test.flags_of,
        (),
        packs_rows=False,
    ),
}


class Run(NamedTuple):
    """A finished run of a program.

    Attributes:
      program: the program.
      folder: its data, and the run directory `whole`.
      flags: the flags without --output_dir.
    """

    program: Program
    folder: pathlib.Path
    flags: dict

    def repeat(self, path: pathlib.Path, **changed) -> None:
        given = {**self.flags, **changed, "output_dir": path}
        assert fine_tune.fine_tune(self.program.name, **given) == 0

    def check(self, path: pathlib.Path, *names: str) -> None:
        """Compares files of another run with those of this one."""
        for name in ("metrics.jsonl", "eval_results.txt", *self.program.predictions, *names):
            expected = (self.folder / "whole" / name).read_bytes()
            assert (path / name).read_bytes() == expected, name


@pytest.fixture(scope="module", params=slow_unless("classifier", PROGRAMS))
def finished(request, tmp_path_factory) -> Run:
    program = PROGRAMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    program.write_files(folder)
    flags = {**program.flags_of(folder, ""), **STEPS}
    if not program.predictions:
        del flags["do_predict"]
    if program.name == "run_retriever":
        flags["eval_file"] = folder / "scored.csv"
    found = Run(program, folder, flags)
    found.repeat(folder / "whole")
    return found


def test_a_finished_run_stays_as_it_is(finished) -> None:
    path = finished.folder / "whole"
    lines = read_metrics(path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert len({line["loss"] for line in lines}) == 6
    before = files_of(path)
    assert {"eval_results.txt", "run.flags", *finished.program.predictions} <= before.keys()
    finished.repeat(path)
    assert files_of(path) == before


def test_the_record_repeats_the_run(finished, tmp_path) -> None:
    record = f"--flagfile={finished.folder / 'whole' / 'run.flags'}"
    assert fine_tune.fine_tune(finished.program.name, record, output_dir=tmp_path / "again") == 0
    finished.check(tmp_path / "again")


def test_a_broken_run_goes_on_to_the_same_bits(finished, tmp_path) -> None:
    path = shutil.copytree(finished.folder / "whole", tmp_path / "broken")
    for name in ("eval_results.txt", *finished.program.predictions):
        (path / name).unlink()
    for part in path.glob("model.ckpt-6.*"):
        part.unlink()
    assert list(path.glob("model.ckpt-4.*"))
    finished.repeat(path)
    finished.check(path, DATA)


def test_the_run_directory_alone_is_enough(finished, tmp_path) -> None:
    path = shutil.copytree(finished.folder / "whole", tmp_path / "alone")
    for name in finished.program.predictions:
        (path / name).unlink()
    asked = [f"--{name}" for name in ("do_eval", "do_predict") if name in finished.flags]
    assert fine_tune.fine_tune(finished.program.name, *asked, output_dir=path) == 0
    finished.check(path)


def test_what_is_wrong_is_one_line_and_changes_nothing(finished, tmp_path) -> None:
    path = finished.folder / "whole"
    before = files_of(path)
    program = finished.program.name
    flags = {**finished.flags, "output_dir": path}
    message = refuse(program, **{**flags, "learning_rate": 0.25})
    assert "--learning_rate" in message and "0.25" in message
    new = {**flags, "output_dir": tmp_path / "new"}
    assert "none.csv" in refuse(program, **{**new, "train_file": tmp_path / "none.csv"})
    printed = fail(run(program, **{**new, "train_batch_size": "many"}))
    assert "--train_batch_size=many" in printed
    assert not (tmp_path / "new").exists()
    assert files_of(path) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PROGRAMS if PROGRAMS[name].packs_rows])
def test_packed_rows_give_the_same_losses(name, tmp_path) -> None:
    program = PROGRAMS[name]
    program.write_files(tmp_path)
    flags = {**program.flags_of(tmp_path, ""), **STEPS, "do_predict": "false"}
    flags |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    check_packed_rows(program.name, tmp_path, **flags)
