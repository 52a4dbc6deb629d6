"""Tables: files of random cells written by csv and json, every error with its line, real files."""

import bz2
import csv
import glob
import gzip
import io
import json
import lzma
import pathlib
import random
import sys
from typing import Any

import pytest

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.tasks.base.examples.row_errors import RowErrors
from bert_tf.tasks.base.examples.tables import (
    list_tables,
    read_cells,
    read_rows,
    read_table,
    read_tfds_table,
)

# Whatever a reader may take for the end of a cell, a row or a text.
PIECES = ["a", "é", "中", "😀", '"', '""', "'", ",", ";", "\t", "\n", "\r\n", " ", "", "\\", "#"]
PIECES += ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "word", "0", "null", "|"]


def random_text(rng: random.Random, forbidden: str = "") -> str:
    text = "".join(rng.choices(PIECES, k=rng.randrange(6)))
    return "".join(char for char in text if char not in forbidden)


def write(path: pathlib.Path, content: str | bytes) -> str:
    path.write_bytes(content.encode("utf8") if isinstance(content, str) else content)
    return str(path)


def rows_of(path: str, columns: list[str] | None = None, **options: str) -> list[dict[str, Any]]:
    return [row for _, row in read_table(path, columns, **options)]


@pytest.mark.parametrize("seed", range(60))
def test_csv_of_random_cells(tmp_path, seed):
    rng = random.Random(seed)
    columns = [f"column {number}" for number in range(rng.randint(2, 4))]
    rows = [[random_text(rng) for _ in columns] for _ in range(20)]
    buffer = io.StringIO(newline="")
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    writer = csv.writer(buffer, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
    writer.writerow(columns)
    lines = []
    for row in rows:
        lines.append(buffer.getvalue().count("\n") + 1)
        writer.writerow(row)
    text = buffer.getvalue() + rng.choice(["", "\n", "\r\n \r\n"])
    path = write(tmp_path / "t.csv", rng.choice(["", "\ufeff"]) + text)
    assert list(read_table(path, None)) == [
        (f"{path} line {line}", dict(zip(columns, row, strict=True)))
        for line, row in zip(lines, rows, strict=True)
    ]
    assert rows_of(path, columns)[1:] == rows_of(path)


@pytest.mark.parametrize("seed", range(30))
def test_tsv_of_random_cells(tmp_path, seed):
    rng = random.Random(seed)
    rows = [[random_text(rng, "\t\n\r") for _ in range(3)] for _ in range(20)]
    end = rng.choice(["\n", "\r\n"])
    text = "".join("\t".join(row) + end for row in [["a", "b", "c"], *rows])
    path = write(tmp_path / rng.choice(["t.tsv", "t.txt"]), text.removesuffix(end))
    assert list(read_table(path, None)) == [
        (f"{path} line {number}", dict(zip("abc", row, strict=True)))
        for number, row in enumerate(rows, 2)
    ]
    assert [cells for _, cells in read_cells(path)] == [list("abc"), *rows]


@pytest.mark.parametrize("seed", range(30))
def test_json_of_random_objects(tmp_path, seed):
    rng = random.Random(seed)
    values = [None, True, 3, -2.5, [1, "x"], {"k": []}]
    rows = [
        {random_text(rng, "\ufeff"): rng.choice([random_text(rng), *values]) for _ in range(3)}
        for _ in range(20)
    ]
    texts = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
    path = write(tmp_path / "t.jsonl", "\n" + "\n\n".join(texts) + "\n")
    expected = [(f"{path} line {2 * index}", row) for index, row in enumerate(rows, 1)]
    assert list(read_table(path, None)) == expected
    assert (
        rows_of(write(tmp_path / "t.json", json.dumps(rows, indent=rng.choice([None, 1])))) == rows
    )


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_files(tmp_path, ending, compress):
    for name, text in (("t.csv", "a,b\n1,2\n"), ("t.tsv", "a\tb\n1\t2\n"), ("t.jsonl", '{"a": 1}')):
        path = write(tmp_path / (name + ending), compress(text.encode()))
        assert rows_of(path) == rows_of(write(tmp_path / name, text)) != []
        cut = write(tmp_path / name, compress(text.encode())[:-9])
        with pytest.raises(ValueError, match=f"^{cut}: .*compressed file"):
            rows_of(cut)


def test_damaged_files_and_endings_in_capitals(tmp_path):
    content = gzip.compress(b"a,b\n1,2\n")
    assert rows_of(write(tmp_path / "t.CSV.GZ", content)) == [{"a": "1", "b": "2"}]
    path = write(tmp_path / "t.csv.gz", content[:10] + b"\xff" + content[11:])
    with pytest.raises(ValueError, match=f"^{path}: .*decompressing"):
        rows_of(path)


def test_delimiter_instead_of_the_ending(tmp_path):
    path = write(tmp_path / "t.tsv", 'a;b\n"1;""";2\n')
    assert rows_of(path, delimiter=";") == [{"a": '1;"', "b": "2"}]
    assert rows_of(path, ["all"], delimiter="\t") == [{"all": "a;b"}, {"all": '"1;""";2'}]
    assert rows_of(write(tmp_path / "t.data.TSV", "a\n1\n")) == [{"a": "1"}]


def test_empty_text_of_a_single_column(tmp_path):
    rows = [{"a": "x"}, {"a": ""}, {"a": "y"}]
    assert rows_of(write(tmp_path / "t.csv", 'a\nx\n""\ny\n')) == rows


def test_long_text_and_nameless_first_column(tmp_path):
    text = "word " * 100_000
    assert rows_of(write(tmp_path / "t.csv", f',text\n0,"{text}"\n')) == [{"": "0", "text": text}]


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    path = write(
        tmp_path / "t.jsonl",
        r"""
        {"a\ud83d": ["\ud83d\ude00", "\\ud83d"]}
        {"a": "b\uDE00"}
    """,
    )
    assert rows_of(path) == [{"a\ufffd": ["😀", "\\ud83d"]}, {"a": "b\ufffd"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", b"a\tb\n1\t2\n3\t\xe9\n", r" line 3.*b'\\xe9' .*UTF-8.*iconv -f CP1252"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), r" line 1.*iconv -f UTF-16"),
        ("t.csv", "a,b\n1,2\n3,4,5\n", " line 3 .*3 columns.* 2: a, b.*--delimiter"),
        ("t.csv", 'a,b\n"1\n",2\n3\n', " line 4 .*1 columns.* 2: a, b"),
        ("t.tsv", "a\tb\n1\n", " line 2 .*1 columns.* 2: a, b.*--delimiter"),
        ("t.csv", 'a,b\n1,2\n3,"4\n5,6\n', ' line 3: .*quote.*"""So'),
        ("t.csv", 'a,b\n1,2\n"So", he said,4\n"x"y,4\n', " line 3 .*3 columns.* 2"),
        ("t.csv", 'a,b\n1,"2" 3\n', " line 2: ',' .*'\"'"),
        ("t.csv", "a,b\n1,2\n\n\n3,4\n", " line 3 .*line"),
        ("t.tsv", "a\n1\n \n3\n", " line 3 .*line"),
        ("t.csv", "a,b,a\n1,2,3\n", r" line 1.*'a' .*\['a', 'b', 'a'\]"),
        ("t.csv", "a,,b\n1,2,3\n", r" line 1.*\['a', '', 'b'\]"),
        ("t.csv", "", " .*cells"),
        ("t.tsv", "\ufeff\n\n", " .*cells"),
        ("t.jsonl", "\n", r" (?!line).*JSON object"),
        ("t.jsonl", '{"a": 1}\n\n[1]\n', r" line 3 .*\[1\], .*JSON object"),
        ("t.jsonl", '{"a": 1}\n{"a": 1\n', r" line 2 .*JSON \(.*JSON object"),
        ("t.jsonl", '{"a": "\0"}\n', r" line 1 .*JSON \("),
        ("t.json", '[{"a": 1}, 2]', " item 2 .*2, .*JSON object"),
        ("t.json", "[" * 100_000, r" .*JSON \(.*list.*JSON objects"),
        ("t.json", '{\n"a": 1}', r" line 1 .*JSON \("),
        ("t.parquet", "", r".*\.csv \.tsv \.txt \.jsonl \.json .*read_parquet"),
        ("t.csv.zip", "", r".*\.csv \.tsv \.txt \.jsonl \.json "),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=f"^{path}{message}"):
        rows_of(path)


def test_calls_that_make_no_sense(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"a": 1}')
    with pytest.raises(ValueError, match=r"t\.jsonl .*columns"):
        rows_of(path, ["a"])
    with pytest.raises(ValueError, match=r"t\.jsonl .*\.csv .*\.tsv"):
        list(read_cells(path))
    with pytest.raises(ValueError, match=r"missing\.csv.*\[Errno 2\]"):
        rows_of(str(tmp_path / "missing.csv"))


def test_names_of_tables(tmp_path, monkeypatch):
    found = glob.glob
    monkeypatch.setattr(glob, "glob", lambda name: sorted(found(name), reverse=True))
    for name in ("b.csv", "a.csv", "c[1].tsv"):
        write(tmp_path / name, "")
    folder = str(tmp_path)
    assert list_tables(f"{folder}/*.csv, {folder}/c[1].tsv,tfds:glue/rte:test,", "--x") == [
        f"{folder}/a.csv",
        f"{folder}/b.csv",
        f"{folder}/c[1].tsv",
        "tfds:glue/rte:test",
    ]
    with pytest.raises(ValueError, match=r"--x: .*'.*/d\.csv'"):
        list_tables(f"{folder}/a.csv,{folder}/d.csv", "--x")
    with pytest.raises(ValueError, match=rf"--x: .*'{folder}'.*{folder}/\*"):
        list_tables(folder, "--x")
    with pytest.raises(ValueError, match="--x .*tfds:NAME"):
        list_tables(" , ", "--x")


# TensorFlow Datasets ----------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path):
    """The data set `bert_tf_table`, where TensorFlow Datasets finds it."""
    tf = pytest.importorskip("tensorflow")
    tfds = pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.utils import file_utils

    examples = [
        {"text": "né", "kind": 1, "tags": [0, 1], "score": 3.8, "ok": True, "n": 7, "pair": [[1]]},
        {"text": "", "kind": -1, "tags": [], "score": 0.1, "ok": False, "n": -2, "pair": [[2]]},
    ]
    label = tfds.features.ClassLabel(names=["no", "yes"])
    tfds.dataset_builders.store_as_tfds_dataset(
        name="bert_tf_table",
        version="1.0.0",
        data_dir=tmp_path,
        split_datasets={"train": list(enumerate(examples)), "test": [(0, examples[1])]},
        features=tfds.features.FeaturesDict(
            {
                "text": tfds.features.Text(),
                "kind": label,
                "tags": tfds.features.Sequence(label),
                "score": tf.float32,
                "ok": tf.bool,
                "n": tf.int64,
                "pair": tfds.features.Tensor(shape=(1, 1), dtype=tf.int32),
            }
        ),
        disable_shuffling=True,
    )
    file_utils.add_data_dir(str(tmp_path))
    yield
    file_utils.clear_registered_data_dirs()


def test_features_become_plain_values(installed):
    (where, first), (_, second) = read_rows("tfds:bert_tf_table")
    assert where == "tfds:bert_tf_table:train example 0"
    assert first.pop("pair").tolist() == [[1]]
    expected = {
        "text": "né",
        "kind": "yes",
        "tags": ["no", "yes"],
        "score": 3.8,
        "ok": True,
        "n": 7,
    }
    assert first == expected
    assert {type(value) for value in first.values()} == {str, list, float, bool, int}
    assert (second["kind"], second["tags"], second["n"]) == (None, [], -2)
    ((where, row),) = read_tfds_table("bert_tf_table:test")
    assert (where, row["text"]) == ("tfds:bert_tf_table:test example 0", "")


def test_data_sets_that_are_not_there(installed, monkeypatch):
    with pytest.raises(ValueError, match="bert_tf_table.*'dev'"):
        list(read_tfds_table("bert_tf_table:dev"))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ValueError, match="pip install tensorflow-datasets"):
        list(read_tfds_table("bert_tf_table"))


# Delimiters, headers, Excel ---------------------------------------------------------------------


@pytest.mark.parametrize("sign", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.txt"])
def test_the_header_shows_the_delimiter(tmp_path, sign, name):
    path = write(tmp_path / name, f"text{sign}label\r\n1,5{sign}a\r\n")
    assert rows_of(path) == [{"text": "1,5", "label": "a"}]
    assert [row for _, row in read_rows(path, None, ["text"])] == rows_of(path)


def test_wanted_columns_decide_between_delimiters(tmp_path):
    path = write(tmp_path / "t.csv", "text;label, as given\nx;y\n")
    assert [row for _, row in read_rows(path, None, ["text"])] == [
        {"text": "x", "label, as given": "y"}
    ]
    path = write(tmp_path / "t.csv", "a;b\nx\n")
    assert [row for _, row in read_rows(path, None, ["a;b"])] == [{"a;b": "x"}]
    path = write(tmp_path / "t.csv", "sep=;\r\na;b\r\n1;2\r\n")
    assert rows_of(path) == [{"a": "1", "b": "2"}]
    path = write(tmp_path / "t.csv", '"long; text";"b"\n"x;y";2\n')
    assert rows_of(path) == [{"long; text": "x;y", "b": "2"}]
    assert rows_of(write(tmp_path / "t.tsv", 'a\tb\n"x\ty\n')) == [{"a": '"x', "b": "y"}]
    assert rows_of(write(tmp_path / "t.csv", 'a\tb\n"x\ty"\tz\n')) == [{"a": "x\ty", "b": "z"}]


@pytest.mark.parametrize(
    ("given", "text"), [("^", "a^b\n1^2\n"), ("tab", "a\tb\n1\t2\n"), ("\\t", "a\tb\n1\t2\n")]
)
def test_a_delimiter_that_is_given(tmp_path, given, text):
    path = write(tmp_path / "t.csv", text)
    reading = TableConfig(delimiter=given)
    assert [row for _, row in read_rows(path, reading)] == [{"a": "1", "b": "2"}]
    with pytest.raises(ValueError, match="delimiter"):
        TableConfig(delimiter="||")


def test_names_of_columns_that_are_given(tmp_path):
    path = write(tmp_path / "t.tsv", "I see\t2,14\n")
    reading = TableConfig(column_names="text, label")
    assert [row for _, row in read_rows(path, reading)] == [{"text": "I see", "label": "2,14"}]
    path = write(tmp_path / "t.jsonl", '{"a": 1}')
    assert [row for _, row in read_rows(path, reading)] == [{"a": 1}]


def test_nan_of_json_is_null(tmp_path):
    assert rows_of(write(tmp_path / "t.jsonl", '{"a": NaN, "b": [NaN, 1]}')) == [
        {"a": None, "b": [None, 1]}
    ]


def test_errors_of_rows_are_collected(tmp_path):
    path = write(tmp_path / "t.csv", "a,b\n1\n2,3\n4,5,6\n")
    errors = RowErrors()
    for _, row in read_rows(path, errors=errors):
        with errors:
            assert row == {"a": "2", "b": "3"}
    with pytest.raises(ValueError, match=f"2 of 3 .*{path} line 2.*{path} line 4"):
        errors.raise_any()


def test_excel(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ("text", "label", "n"),
        ("a, b", True, 1.0),
        (None, None, None),
        ("é", "x", 2.5),
        (3, None, None),
    ):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    path = str(tmp_path / "t.xlsx")
    assert list(read_rows(path)) == [
        (f"{path} line 2", {"text": "a, b", "label": "TRUE", "n": "1"}),
        (f"{path} line 4", {"text": "é", "label": "x", "n": "2.5"}),
        (f"{path} line 5", {"text": "3", "label": "", "n": ""}),
    ]
    with pytest.raises(ValueError, match="u.xlsx"):
        rows_of(write(tmp_path / "u.xlsx", "a,b\n"))


def test_excel_without_its_reader(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=r"t.xlsx.*\[excel\].*CSV"):
        rows_of(write(tmp_path / "t.xlsx", "x"))


def test_names_of_columns_are_read_without_invisible_characters(tmp_path):
    table = write(tmp_path / "t.csv", "\ufeffte\u200bxt,\u00a0label\ufeff\na,b\n")
    assert rows_of(table) == [{"text": "a", "label": "b"}]
    lines = write(tmp_path / "t.jsonl", '{"\u200btext": "a", "label\ufeff": "b"}\n')
    assert rows_of(lines) == [{"text": "a", "label": "b"}]


def test_a_space_before_a_quote_leaves_the_quotes_out(tmp_path):
    text = 'text, label\n"a, ""b""",  "pos"\n "x\n, ""y", "neg"\n5, "pos"\n'
    path = write(tmp_path / "t.csv", text)
    expected = [('a, "b"', "pos"), ('x\n, "y', "neg"), ("5", "pos")]
    assert [tuple(row.values()) for row in rows_of(path)] == expected
