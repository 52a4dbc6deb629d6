"""Each flag of each program with values that it cannot take: one ERROR line, no traceback.

The programs' files are read and their flags are parsed; TensorFlow must not be loaded for that.
"""

import contextlib
import io
import runpy
import sys
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from absl import flags

from bert_tf.__main__ import PROGRAMS
from bert_tf.config import config_flags
from tests.programs import own_flags, own_logging
from tests.slow_variants import slow_where

RUN = config_flags.run
NOT_NUMBERS = ("", "abc", "1,5", "--", "\x1b[2J", "1_x")
NOT_WHOLE = ("1.5", "1e3", "nan", "inf")
NOT_FINITE = ("nan", "inf", "-inf", "1e999")


@contextlib.contextmanager
def program(module: str) -> Iterator[Callable]:
    """Defines the flags of a program; yields its main function."""
    mains = []
    with (
        own_flags(),
        mock.patch.object(sys, "argv", [module]),
        mock.patch.object(config_flags, "run", lambda main, *_, **__: mains.append(main)),
    ):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        with own_logging():
            yield mains[0]


def wrong_values(flag: flags.Flag) -> tuple[str, ...]:
    """Returns values that a flag must refuse."""
    parser = flag.parser
    if isinstance(flag, flags.BooleanFlag):
        return ("maybe", "", "2")
    if isinstance(flag, flags.EnumFlag):
        return ("nonsense", "\x1b[2J\nx", *([""] if "" not in parser.enum_values else []))
    lower, upper = (getattr(parser, name, None) for name in ("lower_bound", "upper_bound"))
    outside = [str(lower - 1)] if lower is not None else []
    outside += [str(upper + 1)] if upper is not None else []
    if isinstance(parser, flags.IntegerParser):
        return (*NOT_NUMBERS, *NOT_WHOLE, *outside)
    if isinstance(parser, flags.FloatParser):
        return (*NOT_NUMBERS, *NOT_FINITE, *outside)
    return ()


def own_flags_of_program() -> list[flags.Flag]:
    found = flags.FLAGS.flags_by_module_dict()
    return [flag for name, given in found.items() if name[:5] != "absl." for flag in given]


def ended(main: Callable, *arguments: str) -> tuple[int, str]:
    """Runs a program; returns its status and what it printed."""
    printed = io.StringIO()
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    with (
        mock.patch.object(sys, "argv", ["program", *arguments]),
        mock.patch.dict(sys.modules, {"tensorflow": None, "keras": None}),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            RUN(main)
        except SystemExit as end:
            return int(end.code or 0), printed.getvalue()
    raise AssertionError("The program did not end.")


# Those with the most flags, most of which quicker programs have as well.
SLOW_PROGRAMS = ("bert_tf.run_pretraining", "bert_tf.run_squad", "bert_tf.run_reranker")


@pytest.mark.parametrize(
    "module", slow_where(lambda module: module in SLOW_PROGRAMS, PROGRAMS.values())
)
def test_wrong_values_of_every_flag(module) -> None:
    failures, tried = [], 0
    with program(module) as main:
        for flag in own_flags_of_program():
            for value in wrong_values(flag):
                tried += 1
                argument = f"--{flag.name}={value}"
                status, printed = ended(main, argument)
                lines = printed.splitlines()
                is_one_line = len(lines) == 1 and lines[0].startswith("ERROR: ")
                names_flag = flag.name in printed and printed.strip().isprintable()
                if status != 1 or not is_one_line or not names_flag:
                    failures.append((argument, status, printed[:500]))
    assert tried > 0 or module == "export.check"
    assert not failures, "\n".join(map(str, failures[:20]))


@pytest.mark.parametrize("module", PROGRAMS.values())
def test_empty_and_unknown_flags(module) -> None:
    """An empty text may be the default: then the program asks for what it needs."""
    failures = []
    with program(module) as main:
        texts = [f for f in own_flags_of_program() if not wrong_values(f)]
        arguments = [f"--{flag.name}=" for flag in texts]
        for argument in (*arguments, "--no_such_flag=1", "word", "--", "--flagfile=none.flags"):
            status, printed = ended(main, argument)
            errors = [line for line in printed.splitlines() if line.startswith("ERROR: ")]
            if status != 1 or len(errors) != 1 or "Traceback" in printed:
                failures.append((argument, status, printed[:500]))
    assert not failures, "\n".join(map(str, failures[:20]))


# Flags whose texts have a form, with texts of another one.
NUMBERS = ("abc", "1;2", "nan", "inf", "1e999", "-5,x", "\x1b[2J")
SIZES = (*NUMBERS, "0", "-3", "1.5")
FORMS = {
    "bert_tf.run_retriever": {
        "matryoshka_dims": SIZES,
        "matryoshka_weights": tuple(f"{text} --matryoshka_dims=8" for text in NUMBERS),
        "biases": ("most",),
    },
    "bert_tf.run_classifier": {
        "class_weights": ("abc", "a=", "a=x", "=3", "a=0", "a=-1", "a=nan", "a=inf", "a=1,b"),
    },
    "bert_tf.extract_features": {
        "layers": tuple(
            f"{text} --input_file={__file__} --output_file=/no/such --init_checkpoint={__file__}"
            for text in (*NUMBERS, "1.5", "-1,,-2")
        )
    },
}
WRONG_FORMS = [
    (module, name, value)
    for module, names in FORMS.items()
    for name, values in names.items()
    for value in values
]


@pytest.mark.parametrize(("module", "name", "value"), WRONG_FORMS)
def test_wrong_forms_of_texts(module, name, value) -> None:
    value, *others = value.split(" --")
    with program(module) as main:
        if module.startswith("bert_tf.run_"):
            others = [*others, "do_train=true", "train_file=x", "output_dir=/no/such/folder"]
        status, printed = ended(main, f"--{name}={value}", *(f"--{other}" for other in others))
    (line,) = printed.splitlines()
    assert status == 1 and line.startswith("ERROR: ")
    assert name in line and line.isprintable()
