"""Reads every text of some files, whatever their columns are."""

from collections.abc import Iterator, Sequence

from bert_tf.tasks.base.examples import tables


def read_every_text(files: Sequence[str]) -> Iterator[str]:
    """Yields each cell of tables, each string in JSON rows and each line of other files."""
    for file in files:
        is_dataset = file.startswith("tfds:")
        if not is_dataset and not tables.is_table(file):
            for _, line in tables.read_plain_text(file):
                yield line
        elif is_dataset or tables.is_json(file):
            for _, row in tables.read_rows(file):
                yield from _strings_in(row)
        else:
            for _, cells in tables.read_cells(file):
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
