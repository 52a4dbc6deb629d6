"""Changes the documents in a file of token vectors, which a new file replaces."""

import contextlib
import os
from collections.abc import Iterable, Iterator

from bert_tf.search.index import rows_to_delete
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.files import exclusive, real_path


@contextlib.contextmanager
def changing(path: str | os.PathLike) -> Iterator[TokenIndex]:
    """Yields the index in a file, which no other process changes until the block ends."""
    file = real_path(path)
    with exclusive(file.with_name(f".{file.name}.lock"), f"writing {path}"):
        yield TokenIndex.load(file)


def delete_tokens(path: str | os.PathLike, ids: Iterable[str]) -> TokenIndex:
    """Deletes documents, atomically; the errors are those of `delete_from_index`."""
    with changing(path) as index:
        known = {name: [row] for row, name in enumerate(index.ids)}
        after = index.without(rows_to_delete(path, ids, known, len(index)))
        after.save(real_path(path))
    return after
