"""Writes vectors into Qdrant. Needs the extra: pip install '.[qdrant]'.

The documents go into a collection of their own, and the name that is searched is an alias, which
changes when all of them are there: until then it shows what it showed.
"""

import pathlib
import types
import typing
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from bert_tf.extras import install_hint

if typing.TYPE_CHECKING:
    from bert_tf.search.index import Batch

NAMESPACE = uuid.UUID("8e0a3f0c-2d0b-5d8e-9d0c-2f1f5b6f7a10")
POINTS_AT_ONCE = 256


def write_qdrant(
    target: str, name: str, version: str, batches: Iterable["Batch"], similarity: str = "cosine"
) -> int:
    """Writes documents and lets a name stand for them; the same call takes up a killed one.

    A point's id is a UUID made of the document's id; its payload has `_id`, and `text` if kept.

    Args:
      target: URL of a server, or a folder, which Qdrant's client reads without one.
      name: what is searched.
      version: the collection is NAME-VERSION.
      batches: the documents.
      similarity: `cosine` or `dot`.

    Returns:
      The number of points.

    Raises:
      ValueError: as of `open_qdrant`, or if there is no document.
    """
    models = qdrant_client().models
    client = open_qdrant(target, name)
    try:
        collection, count = f"{name}-{version}", 0
        for batch in batches:
            if not client.collection_exists(collection):
                distance = models.Distance.COSINE if similarity == "cosine" else models.Distance.DOT
                params = models.VectorParams(size=batch.vectors.shape[1], distance=distance)
                client.create_collection(collection, vectors_config=params)
            for start in range(0, len(batch.ids), POINTS_AT_ONCE):
                points = _points(batch, slice(start, start + POINTS_AT_ONCE))
                client.upsert(collection, models.Batch(**points), wait=True)
            count += len(batch.ids)
        if not count:
            raise ValueError("There is no document to write; the input is empty.")
        if (found := client.count(collection, exact=True).count) != count:
            raise ValueError(
                f"{collection!r} of {target} has {found} points, expected {count}: others write to "
                "it; delete the collection and give the command again."
            )
        create = models.CreateAlias(collection_name=collection, alias_name=name)
        changes: Sequence = [models.CreateAliasOperation(create_alias=create)]
        if name in [one.alias_name for one in client.get_aliases().aliases]:
            delete = models.DeleteAlias(alias_name=name)
            changes = [models.DeleteAliasOperation(delete_alias=delete), *changes]
        client.update_collection_aliases(change_aliases_operations=changes)  # all at once
    except failures() as error:
        raise ValueError(
            f"Qdrant at {target} failed: {error}. What is embedded is kept: give the same command "
            "again."
        ) from error
    finally:
        client.close()
    return count


def failures() -> tuple[type[Exception], ...]:
    """Returns what Qdrant's client raises if nobody answers, or another process is there."""
    return qdrant_client().http.exceptions.ApiException, RuntimeError, OSError


def open_qdrant(target: str, name: str) -> Any:
    """Returns a client; arguments are those of `write_qdrant`.

    Raises:
      ValueError: if the library is not installed, nobody answers, another process has the folder,
        or `name` is itself a collection.
    """
    library = qdrant_client()
    is_server = "://" in target
    place = {"url": target} if is_server else {"path": str(pathlib.Path(target).expanduser())}
    try:
        # Its check of versions only warns, in a thread, of a server that does not answer.
        client = library.QdrantClient(**place, check_compatibility=False)
        names = [one.name for one in client.get_collections().collections]
    except failures() as error:
        raise ValueError(f"Qdrant cannot be opened at {target}: {error}") from error
    if name in names:
        client.close()
        raise ValueError(f"{name!r} is itself a collection of {target}; give another name.")
    return client


def qdrant_client() -> types.ModuleType:
    """Returns Qdrant's library.

    Raises:
      ValueError: if it is not installed.
    """
    try:
        import qdrant_client
    except ImportError:
        raise ValueError(
            f"Qdrant's client is not installed; {install_hint('qdrant')}, or with "
            "`pip install qdrant-client`."
        ) from None
    return qdrant_client


def _points(batch: "Batch", part: slice) -> dict[str, list]:
    payloads = [{"_id": name} for name in batch.ids[part]]
    if batch.texts is not None:
        for payload, text in zip(payloads, batch.texts[part], strict=True):
            payload["text"] = text
    ids = [str(uuid.uuid5(NAMESPACE, name)) for name in batch.ids[part]]
    return {"ids": ids, "vectors": batch.vectors[part].tolist(), "payloads": payloads}
