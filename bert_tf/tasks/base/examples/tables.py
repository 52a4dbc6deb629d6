"""Tables of examples, read row by row: CSV, TSV, Excel and JSONL files, TensorFlow Datasets.

The ending of a file's name determines its format; .gz, .xz or .bz2 may follow it:

  .csv          RFC 4180: a text with a comma, a quote or a line break is in quotes, and quotes in
                it are doubled.
  .tsv .txt     cells separated by tabs; quotes are ordinary characters, as in GLUE's files.
  .jsonl .json  an object on each line, or one list of objects; NaN, which pandas writes for a
                missing value, is read as null.
  .xlsx         the first sheet of an Excel file, with the texts that Excel writes into a CSV.

If the first line lacks the usual delimiter, but has semicolons, tabs or vertical bars, as CSV files
of Excel in Europe do, that delimiter is used. A first line such as "sep=;" also names it. All files
are UTF-8, with or without a byte order mark. Only \\n and \\r\\n end a line. Blank lines are
allowed at the end of a table, and anywhere in JSONL.
"""

import csv
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import Any

import numpy as np

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.corpus.corpus_format import COMPRESSED, open_decompressed, plain_ending
from bert_tf.corpus.text_lines import MAX_LINE_BYTES, numbered_lines
from bert_tf.corpus.tfds_corpus import list_dataset_parts
from bert_tf.system.files import MAX_DATA_BYTES, matching_files, not_utf8
from bert_tf.tasks.base.examples.labels import visible_name
from bert_tf.tasks.base.examples.row_errors import RowError, RowErrors
from bert_tf.tasks.base.examples.workbooks import read_workbook

Row = dict[str, Any]
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
JSON = (".jsonl", ".json")
EXCEL = (".xlsx", ".xlsm")
_OTHER_DELIMITERS = ";\t|,"  # looked for in a header without the usual one
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # Excel's own first line
_OTHER_FORMATS = {
    ".xls": "save it as .xlsx, or as CSV (UTF-8)",
    ".ods": "save it as .xlsx, or as CSV (UTF-8)",
    ".parquet": "pandas.read_parquet(name).to_json('new.jsonl', orient='records', lines=True)",
    ".arrow": "datasets.Dataset.from_file(name).to_json('new.jsonl')",
    ".feather": "pandas.read_feather(name).to_json('new.jsonl', orient='records', lines=True)",
}

csv.field_size_limit(MAX_LINE_BYTES)  # The module's own limit, 131,072 characters, is a chapter.


def list_tables(paths: str, flag: str) -> list[str]:
    """Returns the names that a flag gives: comma-separated files, globs (sorted), tfds:NAME."""
    tables: list[str] = []
    for name in filter(None, map(str.strip, paths.split(","))):
        tables += [name] if name.startswith("tfds:") else matching_files(name, flag)
    if not tables:
        raise ValueError(f"{flag} is empty; give files, globs or tfds:NAME, separated by commas.")
    return tables


def read_rows(
    table: str,
    reading: TableConfig | None = None,
    wanted: Collection[str] = (),
    errors: RowErrors | None = None,
) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a table; see `read_table` and `read_tfds_table`.

    Args:
      table: a result of `list_tables`: a file whose first line names the columns, or tfds:NAME.
      reading: how the user's tables are read; None: the defaults.
      wanted: names of columns that the header should have, which tell its delimiter.
      errors: collects rows of a wrong width, which are left out; None: the first is raised.
    """
    if table.startswith("tfds:"):
        return read_tfds_table(table.removeprefix("tfds:"))
    columns = None
    delimiter = None
    if reading and not is_json(table):
        columns = split_names(reading.column_names) or None
        if table_ending(table) not in EXCEL:
            delimiter = reading.delimiter_sign or None
    return read_table(table, columns, delimiter=delimiter, wanted=wanted, errors=errors)


def split_names(names: str) -> list[str]:
    """Returns the names of a comma-separated list."""
    return [name for part in names.split(",") if (name := visible_name(part))]


def read_table(
    path: str,
    columns: Sequence[str] | None,
    *,
    delimiter: str | None = None,
    wanted: Collection[str] = (),
    errors: RowErrors | None = None,
) -> Iterator[tuple[str, Row]]:
    """Yields the location of each row, "FILE line N" of its first line, and the row.

    Args:
      path: a file; see the module.
      columns: names of the columns of a file without a header; None: the first line names them.
        The first column may have no name, as in files of pandas.
      delimiter: delimiter of the cells; None: found by the ending or the header.
      wanted, errors: see `read_rows`.

    Yields:
      (location, row): values of CSV and TSV are str, those of JSONL any values of JSON.
    """
    if delimiter is None and is_json(path):
        if columns is not None:
            raise ValueError(f"{path} is JSON: its objects name their values; give no columns.")
        yield from read_json_rows(path)
        return
    is_quoted = None
    if delimiter is None and columns is None and table_ending(path) not in EXCEL:
        delimiter, is_quoted = find_delimiter(path, wanted)
    names = columns
    for where, cells in read_cells(path, delimiter=delimiter, is_quoted=is_quoted):
        if names is None:
            names = _check_header(cells, where)
            continue
        if len(cells) == len(names):
            yield where, dict(zip(names, cells, strict=True))
        elif errors is None:
            raise wrong_width(where, cells, names)
        else:
            errors.errors.append(wrong_width(where, cells, names))


def find_delimiter(path: str, wanted: Collection[str] = ()) -> tuple[str, bool]:
    """Returns the delimiter of a table, found by its first line, and whether cells may be quoted.

    The delimiter of the ending is preferred, if the first line then has the wanted columns; then
    another one that gives these columns; then that of the ending, unless it leaves a single cell
    where another delimiter gives several.
    """
    usual = DELIMITERS[table_ending(path)]
    first = next(decoded_lines(path), "").strip("\r\n")
    if match := _SEPARATOR_LINE.fullmatch(first):
        return match[1], True
    headers: dict[str, list[str]] = {}
    for delimiter in dict.fromkeys(usual + _OTHER_DELIMITERS):
        is_quoted = _is_quoted(path, delimiter)
        rows = _csv(path, delimiter) if is_quoted else _tsv(path)
        try:
            headers[delimiter] = list(map(visible_name, next(rows, (1, []))[1]))
        except ValueError:  # A quote is not closed with this delimiter.
            headers[delimiter] = []
    chosen = usual
    if not (wanted and {*wanted} <= {*headers[usual]}):
        fitting = [d for d in headers if wanted and {*wanted} <= {*headers[d]}]
        if not fitting and len(headers[usual]) < 2:
            fitting = [d for d in headers if len(headers[d]) > 1 and all(headers[d])]
        chosen = max(fitting, key=lambda delimiter: len(headers[delimiter]), default=usual)
    return chosen, _is_quoted(path, chosen)


def _is_quoted(path: str, delimiter: str) -> bool:
    """Returns whether a text may be in quotes: not in a .tsv, as GLUE's."""
    return not (delimiter == "\t" and table_ending(path) in (".tsv", ".txt"))


def read_cells(
    path: str, *, delimiter: str | None = None, is_quoted: bool | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yields (location, cells) of each row, the header included; rows may differ in length."""
    if delimiter is None and table_ending(path) in EXCEL:
        yield from read_workbook(path)
        return
    if delimiter is None:
        delimiter = DELIMITERS.get(table_ending(path))
        if delimiter is None:
            raise ValueError(f"{path} is JSON; expected a table of cells, .csv or .tsv.")
    if is_quoted is None:
        is_quoted = _is_quoted(path, delimiter)
    blank = rows = 0
    for number, cells in _csv(path, delimiter) if is_quoted else _tsv(path, delimiter):
        # A blank line is an error only if a row follows.
        if not cells or len(cells) == 1 and cells[0].isspace():
            blank = blank or number
            continue
        # The line sep=; of Excel is not a row.
        if number == 1 and _SEPARATOR_LINE.fullmatch(delimiter.join(cells)):
            continue
        if blank:
            raise ValueError(f"{path} line {blank} is blank, and rows follow; delete the line.")
        rows += 1
        yield f"{path} line {number}", cells
    if not rows:
        raise ValueError(f"{path} is empty; expected a row of cells on each line.")


def read_plain_text(path: str) -> Iterator[tuple[str, str]]:
    """Yields (where, line) of every line of a .txt that is not blank, without its end."""
    for number, line in enumerate(decoded_lines(path), 1):
        if not line.isspace():
            yield f"{path} line {number}", line.rstrip("\r\n")


def read_every_text(files: Sequence[str]) -> Iterator[str]:
    """Yields each cell of tables, each string in JSON rows and each line of other files."""
    for file in files:
        is_dataset = file.startswith("tfds:")
        if not is_dataset and not is_table(file):
            for _, line in read_plain_text(file):
                yield line
        elif is_dataset or is_json(file):
            for _, row in read_rows(file):
                yield from _strings_in(row)
        else:
            for _, cells in read_cells(file):
                yield from cells


def _strings_in(value: object) -> Iterator[str]:
    """Yields the strings in a value of JSON, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings_in(part)


def is_plain_text(path: str, columns: Set[str]) -> bool:
    """Returns whether a .txt is plain text: its first line has no cells and is not a column."""
    if path.startswith("tfds:") or table_ending(path) != ".txt":
        return False
    first = next((line for _, line in read_plain_text(path)), "")
    for sign in _OTHER_DELIMITERS:
        if sign in first and columns >= {cell.strip().lower() for cell in first.split(sign)}:
            return False
    return bool(first) and "\t" not in first and first not in columns


def wrong_width(where: str, cells: Sequence[str], columns: Sequence[str]) -> RowError:
    """Returns the error of a row whose cells are not as many as the columns."""
    return RowError(
        f"{where} has {len(cells)} columns, expected {len(columns)}: {', '.join(columns)}",
        "In a .csv a text with a comma must be in quotes; in a .tsv no text may have a tab or line "
        "break, and quotes are characters: save a table with quoted texts as .csv. "
        "--delimiter names another sign between the cells.",
    )


def read_tfds_table(name: str) -> Iterator[tuple[str, Row]]:
    """Yields ("tfds:NAME:SPLIT example N", features) of each example of NAME[:SPLIT].

    Strings are decoded, a class becomes its name (None for -1, no class), numbers become Python's,
    and lists of these become lists; features of other kinds are unchanged.
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


def _plain(value: object, feature: object, where: str) -> object:
    """Converts the value of a feature to a Python value."""
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
    if isinstance(value, np.generic):
        return value.item()
    return value


# Files ------------------------------------------------------------------------------------------


def is_json(path: str) -> bool:
    """Returns whether a table's name says that it is JSON."""
    return not path.startswith("tfds:") and table_ending(path) in JSON


def table_ending(path: str) -> str:
    """Returns the ending of a table's name, without that of a compression."""
    ending = plain_ending(path)
    known = (*DELIMITERS, *JSON, *EXCEL)
    if ending not in known:
        advice = _OTHER_FORMATS.get(ending, "rename the file after what it holds")
        raise ValueError(
            f"{path}: a table's name ends in {' '.join(known)}, and then perhaps in "
            f"{' '.join(COMPRESSED)}; {advice}."
        )
    return ending


def is_table(path: str) -> bool:
    """Returns whether a file's name says that it is a table, and not lines of text."""
    try:
        return table_ending(path) != ".txt"
    except ValueError:
        return False


def decoded_lines(path: str) -> Iterator[str]:
    """Yields the lines with their line ends, without the byte order mark."""
    with open_decompressed(path) as file:
        for number, line in numbered_lines(file, path):
            try:
                text = line.decode("utf8" if number > 1 else "utf-8-sig")
            except UnicodeDecodeError as error:
                raise not_utf8(f"{path} line {number}", path, error) from None
            yield text


def _tsv(path: str, delimiter: str = "\t") -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of each row; quotes are ordinary characters."""
    for number, line in enumerate(decoded_lines(path), 1):
        text = line.removesuffix("\n").removesuffix("\r")
        yield number, text.split(delimiter) if text else []


def _csv(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, cells) of each row."""
    lines = _without_spaces_before_quotes(decoded_lines(path), delimiter)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        # A quoted text may have line breaks, so a row is named by its first line.
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = str(error)
            if "unexpected end" in problem:
                problem = "a quote opens in the row that begins here and is never closed"
            if "new-line character" in problem:
                raise ValueError(
                    f"{path} line {number}: a carriage return (\\r) stands outside of quotes. If "
                    "it ends the lines, as in Excel's CSV for Macintosh: "
                    f"tr '\\r' '\\n' < {path} > new.csv. If it belongs to a text, put that text "
                    "in quotes."
                ) from None
            raise ValueError(
                f"{path} line {number}: {problem}. A text with a quote at its beginning stands in "
                'quotes, the ones in it doubled: """So"", he said."; a .tsv knows no quoting.'
            ) from None
        yield number, cells


def _without_spaces_before_quotes(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Yields lines of a CSV file without the spaces that make quotes a part of a cell: a, "b"."""
    spaces = re.compile(rf'(?:^|(?<={re.escape(delimiter)})) +(?=")')
    is_open = False  # whether the line begins within quotes
    for line in lines:
        if ' "' in line:
            quotes_before = int(is_open)
            kept = []
            end = 0
            for match in spaces.finditer(line):
                quotes_before += line.count('"', end, match.start())
                kept.append(line[end : match.end() if quotes_before % 2 else match.start()])
                end = match.end()
            kept.append(line[end:])
            yield "".join(kept)
        else:
            yield line
        is_open ^= line.count('"') % 2 == 1


def _check_header(names: list[str], where: str) -> list[str]:
    names = list(map(visible_name, names))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or "" in names[1:]:
        problem = f"{twice[0]!r} twice" if twice and twice[0] else "a column without a name"
        raise ValueError(
            f"{where}: the first line, which names the columns, has {problem}: {names!r:.300}; "
            "give each column a name of its own."
        )
    return names


def read_json_rows(path: str) -> Iterator[tuple[str, Row]]:
    """Yields (where, object) of JSON Lines, or of one list, whatever the file's name."""
    lines = (line for line in enumerate(decoded_lines(path), 1) if line[1].strip())
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path} is empty; expected a JSON object on each line.")
    # One list, perhaps over several lines.
    if first[1].lstrip().startswith("["):
        size = len(first[1])
        text = [first[1]]
        for _, line in lines:
            text.append(line)
            if (size := size + len(line)) > MAX_DATA_BYTES:
                raise ValueError(
                    f"{path} is one JSON list of more than {MAX_DATA_BYTES} bytes; write an object "
                    f"a line: jq -c '.[]' {path}"
                )
        items = _parse("".join(text), path, "a list of JSON objects")
        for number, item in enumerate(items, 1):
            where = f"{path} item {number}"
            yield where, _check_object(item, where)
    else:
        for number, line in itertools.chain([first], lines):
            where = f"{path} line {number}"
            expected = "a JSON object on each line, or one list of objects"
            yield where, _check_object(_parse(line, where, expected), where)


def _parse(text: str, where: str, expected: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_read_constant)
        if "\\ud" in text or "\\uD" in text:  # half a surrogate pair is no character
            text = json.dumps(value, ensure_ascii=False)
            value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}); expected {expected}.") from None
    return value


def _read_constant(name: str) -> float | None:
    """Returns the value of NaN or an infinity, which Python and pandas write and JSON lacks."""
    return None if name == "NaN" else float(name)


def _check_object(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r:.80}, expected a JSON object: names with values.")
    if isinstance(value.get("data"), dict) and isinstance(value.get("annotations"), list):
        raise ValueError(
            f"{where} has 'data' and 'annotations', as Label Studio's full export; export it there "
            "as JSON-MIN or CSV, which have the text and its label in one row."
        )
    if all(map(str.isascii, value)):
        return value
    names = []
    for name in value:
        visible = visible_name(name)
        # White space is left to the reader of the column.
        names.append(name if visible == name.strip() else visible)
    # Two keys that look the same are two values.
    if len({*names}) == len(names):
        return dict(zip(names, value.values(), strict=True))
    return value
