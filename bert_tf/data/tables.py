"""Tables of examples, read row by row: CSV, TSV and JSONL files, and TensorFlow Datasets.

The ending of a file's name says what it is, before one of .gz .xz .bz2 if it is compressed:

  .csv          RFC 4180: a text that holds a comma, a quote or a line break stands in quotes, and a
                quote in it is doubled.
  .tsv .txt     cells separated by tabs; a quote is a character like any other, as in GLUE's files.
  .jsonl .json  an object a line, or one list of objects.

All are UTF-8, with a byte order mark or without. Only \\n and \\r\\n end a line. Blank lines are
fine at the end of a table, and anywhere in JSONL.
"""

import csv
import glob
import itertools
import json
import lzma
import os
import pathlib
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from bert_tf.data.corpus_format import open_decompressed
from bert_tf.data.text_lines import MAX_LINE_BYTES, numbered_lines
from bert_tf.data.tfds_corpus import list_dataset_parts
from bert_tf.files import not_utf8

Row = dict[str, Any]
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
_JSON = (".jsonl", ".json")
_COMPRESSED = (".gz", ".xz", ".bz2")

csv.field_size_limit(MAX_LINE_BYTES)  # The module's own limit, 131,072 characters, is a chapter.
MAX_LIST_BYTES = 256 << 20  # of one JSON list, of which memory must hold all


def list_tables(paths: str, flag: str) -> list[str]:
    """Returns the names that a flag gives: comma-separated files, globs (sorted), tfds:NAME.

    Raises:
      ValueError: naming the flag, if there is no name, or no file of one.
    """
    tables: list[str] = []
    for name in filter(None, (name.strip() for name in paths.split(","))):
        name = os.path.expanduser(name)  # noqa: PTH111
        matches = sorted(filter(os.path.isfile, glob.glob(name)))  # noqa: PTH113, PTH207
        if not name.startswith("tfds:") and not matches and not pathlib.Path(name).is_file():
            is_folder = pathlib.Path(name).is_dir()
            remedy = f"it is a folder: write {name}/*" if is_folder else "check the path"
            raise ValueError(f"{flag}: no file matches {name!r} ({remedy}; datasets: tfds:NAME).")
        tables += matches or [name]
    if not tables:
        raise ValueError(f"{flag} is empty; give files, globs or tfds:NAME, separated by commas.")
    return tables


def read_rows(table: str) -> Iterator[tuple[str, Row]]:
    """Reads one of `list_tables`: see `read_table`, whose first line names the columns, and
    `read_tfds_table`."""
    if table.startswith("tfds:"):
        return read_tfds_table(table.removeprefix("tfds:"))
    return read_table(table, None)


def read_table(
    path: str, columns: Sequence[str] | None, *, delimiter: str | None = None
) -> Iterator[tuple[str, Row]]:
    """Yields each row and where it stands: "FILE line N", the line on which it begins.

    Args:
      path: a file; see above.
      columns: names of the columns of a file without a header; None: the first line names them.
        The first column may be nameless, as in what pandas writes.
      delimiter: instead of what the ending says; a tab means no quoting, any other means CSV.

    Yields:
      (where, row): of CSV and TSV all values are str, of JSONL they are what JSON makes of them.

    Raises:
      ValueError: naming file and line, if the file cannot be read, is empty or not UTF-8, if a row
        has more or fewer cells than there are columns or is no JSON object, if a quote is never
        closed, a blank line stands between rows, or the header has a name twice or none.
    """
    if delimiter is None and _ending(path) in _JSON:
        if columns is not None:
            raise ValueError(f"{path} is JSON: its objects name their values; give no columns.")
        yield from _read_json(path)
        return
    names = columns
    for where, cells in read_cells(path, delimiter=delimiter):
        if names is None:
            names = _check_header(cells, where)
            continue
        if len(cells) != len(names):
            raise ValueError(wrong_width(where, cells, names))
        yield where, dict(zip(names, cells, strict=True))


def read_cells(path: str, *, delimiter: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yields (where, cells) of every row of a CSV or TSV file, the header too, however many cells.

    Raises:
      ValueError: see `read_table`.
    """
    if delimiter is None:
        delimiter = _DELIMITERS.get(_ending(path))
        if delimiter is None:
            raise ValueError(f"{path} is JSON; expected a table of cells, .csv or .tsv.")
    blank = rows = 0
    for number, cells in _tsv(path) if delimiter == "\t" else _csv(path, delimiter):
        if not cells or len(cells) == 1 and cells[0].isspace():
            blank = blank or number
            continue
        if blank:
            raise ValueError(f"{path} line {blank} is blank, and rows follow; delete the line.")
        rows += 1
        yield f"{path} line {number}", cells
    if not rows:
        raise ValueError(f"{path} is empty; expected a row of cells on each line.")


def read_plain_text(path: str) -> Iterator[tuple[str, str]]:
    """Yields (where, line) of every line of a .txt that is not blank, without its end.

    Raises:
      ValueError: naming file and line, if it cannot be read or is not UTF-8.
    """
    for number, line in enumerate(_read_lines(path), 1):
        if not line.isspace():
            yield f"{path} line {number}", line.rstrip("\r\n")


def is_plain_text(path: str, columns: Set[str]) -> bool:
    """True if a .txt is no table: its first line is neither cells nor one of these columns.

    Raises:
      ValueError: if it looks like a table with other signs between the cells than tabs.
    """
    if path.startswith("tfds:") or _ending(path) != ".txt":
        return False
    first = next((line for _, line in read_plain_text(path)), "")
    for sign in ",;":
        if sign in first and columns >= {cell.strip().lower() for cell in first.split(sign)}:
            raise ValueError(
                f"{path} begins like a table, {first[:100]!r}; of a table with {sign!r} between "
                "the cells the name must end in .csv."
            )
    return bool(first) and "\t" not in first and first not in columns


def wrong_width(where: str, cells: Sequence[str], columns: Sequence[str]) -> str:
    """Returns the message for a row whose cells are not as many as the columns."""
    return (
        f"{where} has {len(cells)} columns, expected {len(columns)}: {', '.join(columns)}. In a "
        ".csv a text that holds a comma stands in quotes; in a .tsv no text may hold a tab."
    )


def read_tfds_table(name: str) -> Iterator[tuple[str, Row]]:
    """Yields the examples of NAME[:SPLIT] and where they stand: "tfds:NAME:SPLIT example N".

    Strings are decoded, a class is its name (None for -1, which is no class), numbers are Python's
    and a list of any of them is a list; a feature of another kind is left as it is.

    Raises:
      ValueError: if the data set cannot be prepared (see `list_dataset_parts`), or a text is not
        UTF-8.
    """
    for part, _, _ in list_dataset_parts(name, part_bytes=sys.maxsize):
        import tensorflow_datasets as tfds

        dataset, _, split = part.partition(":")
        builder = tfds.builder(dataset)
        examples = builder.as_dataset(split=split, shuffle_files=False)
        features = builder.info.features
        for number, example in enumerate(tfds.as_numpy(examples)):
            where = f"tfds:{part} example {number}"
            yield (
                where,
                {name: _plain(value, features[name], where) for name, value in example.items()},
            )


def _plain(value: Any, feature: Any, where: str) -> Any:
    """Returns Python's own value of a feature's."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where} is not UTF-8: {error}.") from None
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return [_plain(item, getattr(feature, "feature", None), where) for item in value]
    if isinstance(value, np.integer) and hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, np.floating):
        return float(str(value))  # 3.8, where item() of a float32 is 3.799999952316284
    return value.item() if isinstance(value, np.generic) else value


# Files ------------------------------------------------------------------------------------------


def _ending(path: str) -> str:
    """Returns the ending of a table's name, that of a compression apart."""
    name = pathlib.Path(path)
    if name.suffix.lower() in _COMPRESSED:
        name = name.with_suffix("")
    ending = name.suffix.lower()
    if ending not in (*_DELIMITERS, *_JSON):
        raise ValueError(
            f"{path}: a table's name ends in {' '.join((*_DELIMITERS, *_JSON))}, and then perhaps "
            f"in {' '.join(_COMPRESSED)}; rename the file after what it holds."
        )
    return ending


def _read_lines(path: str) -> Iterator[str]:
    """Yields the lines with their ends, the byte order mark dropped."""
    try:
        with open_decompressed(path) as file:
            for number, line in numbered_lines(file, path):
                try:
                    text = line.decode("utf8" if number > 1 else "utf-8-sig")
                except UnicodeDecodeError as error:
                    raise not_utf8(f"{path} line {number}", path, error) from None
                yield text
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def _tsv(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, cells)."""
    for number, line in enumerate(_read_lines(path), 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, text.split("\t") if text else []


def _csv(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (first line, cells)."""
    reader = csv.reader(_read_lines(path), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = str(error)
            if "unexpected end" in problem:
                problem = "a quote opens in the row that begins here and is never closed"
            raise ValueError(
                f"{path} line {number}: {problem}. A text with a quote at its beginning stands in "
                'quotes, the ones in it doubled: """So"", he said."; a .tsv knows no quoting.'
            ) from None
        yield number, cells


def _check_header(names: list[str], where: str) -> list[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or "" in names[1:]:
        problem = f"{twice[0]!r} twice" if twice and twice[0] else "a column without a name"
        raise ValueError(
            f"{where}: the first line, which names the columns, has {problem}: {names!r:.300}; "
            "give each column a name of its own."
        )
    return names


def _read_json(path: str) -> Iterator[tuple[str, Row]]:
    """Yields (where, object) of JSON Lines, or of one list."""
    lines = (line for line in enumerate(_read_lines(path), 1) if line[1].strip())
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path} is empty; expected a JSON object on each line.")
    if first[1].lstrip().startswith("["):
        size = len(first[1])
        text = [first[1]]
        for _, line in lines:
            text.append(line)
            if (size := size + len(line)) > MAX_LIST_BYTES:
                raise ValueError(
                    f"{path} is one JSON list of more than {MAX_LIST_BYTES} bytes; write an object "
                    f"a line: jq -c '.[]' {path}"
                )
        items = _parse("".join(text), path, "a list of JSON objects")
        for number, item in enumerate(items, 1):
            where = f"{path} item {number}"
            yield where, _check_object(item, where)
    else:
        for number, line in itertools.chain([first], lines):
            where = f"{path} line {number}"
            yield where, _check_object(_parse(line, where, "a JSON object"), where)


def _parse(text: str, where: str, expected: str) -> Any:
    try:
        value = json.loads(text)
        if "\\ud" in text or "\\uD" in text:  # half a surrogate pair is no character
            text = json.dumps(value, ensure_ascii=False)
            value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}); expected {expected}.") from None
    return value


def _check_object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r:.80}, expected a JSON object: names with values.")
    return value
