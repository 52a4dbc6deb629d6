"""Writes vectors into Qdrant. Needs the extra: pip install '.[qdrant]'.

The documents are written into a new collection. The name that users search is an alias, which is
switched to the new collection when it is complete.
"""

import pathlib
import types
import typing
import uuid
from collections.abc import Iterable

from bert_tf.system.extras import install_hint

if typing.TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from bert_tf.search.segments import Batch

# Never change it: a resumed run must derive the same UUIDs from the ids of documents.
NAMESPACE = uuid.UUID("8e0a3f0c-2d0b-5d8e-9d0c-2f1f5b6f7a10")
POINTS_AT_ONCE = 256


def write_qdrant(
    target: str, name: str, version: str, batches: Iterable["Batch"], similarity: str = "cosine"
) -> int:
    """Writes documents and points an alias to them; the same call resumes an interrupted one.

    A point's id is a UUID derived from the document's id; its payload has `_id`, and `text` if
    stored. Returns the number of points.

    Args:
      target: URL of a server, or a folder, which Qdrant's client reads without a server.
      name: the alias that users search.
      similarity: `cosine` or `dot`.

    Raises:
      ValueError: see `open_qdrant`, or if there are no documents.
    """
    models = qdrant_client().models
    client = open_qdrant(target, name)
    try:
        collection = f"{name}-{version}"
        count = 0
        for batch in batches:
            # Only the first batch tells the dimension.
            if not client.collection_exists(collection):
                distances = {"cosine": models.Distance.COSINE, "dot": models.Distance.DOT}
                params = models.VectorParams(
                    size=batch.vectors.shape[1],
                    distance=distances[similarity],
                )
                client.create_collection(collection, vectors_config=params)
            for start in range(0, len(batch.ids), POINTS_AT_ONCE):
                points = _points(batch, slice(start, start + POINTS_AT_ONCE))
                client.upsert(collection, models.Batch(**points), wait=True)
            count += len(batch.ids)
        if not count:
            raise ValueError("There are no documents to write; the input is empty.")
        # Writing an id again replaces its point, so a resumed run has the same count.
        if (stored := client.count(collection, exact=True).count) != count:
            raise ValueError(
                f"{collection!r} of {target} has {stored} points, expected {count}: another "
                "process writes to it; delete the collection and run the command again."
            )
        _switch_alias(client, name, collection)
    except failures() as error:
        raise ValueError(
            f"Qdrant at {target} failed: {error}. The embedded documents are kept: run the same "
            "command again."
        ) from error
    finally:
        client.close()
    return count


def _switch_alias(client: "QdrantClient", name: str, collection: str) -> None:
    """Points an alias to a collection, in one operation."""
    models = qdrant_client().models
    changes: list = []
    if name in [alias.alias_name for alias in client.get_aliases().aliases]:
        delete = models.DeleteAlias(alias_name=name)
        changes.append(models.DeleteAliasOperation(delete_alias=delete))
    create = models.CreateAlias(collection_name=collection, alias_name=name)
    changes.append(models.CreateAliasOperation(create_alias=create))
    # A single request, so that searches never find the name without a collection.
    client.update_collection_aliases(change_aliases_operations=changes)


def failures() -> tuple[type[Exception], ...]:
    """Returns the exceptions of Qdrant's client: no answer, or a folder that is in use."""
    return qdrant_client().http.exceptions.ApiException, RuntimeError, OSError


def open_qdrant(target: str, name: str) -> "QdrantClient":
    """Returns a client; the arguments are those of `write_qdrant`.

    Raises:
      ValueError: if the library is not installed, the server does not answer, another process uses
        the folder, or `name` is already a collection.
    """
    library = qdrant_client()
    if "://" in target:
        location = {"url": target}
    else:
        location = {"path": str(pathlib.Path(target).expanduser())}
    try:
        # The compatibility check would only log a warning, from a thread, if no server answers.
        client = library.QdrantClient(**location, check_compatibility=False)
        names = [collection.name for collection in client.get_collections().collections]
    except failures() as error:
        raise ValueError(f"Qdrant cannot be opened at {target}: {error}") from error
    if name in names:
        client.close()
        raise ValueError(f"{name!r} is already a collection of {target}; give another name.")
    return client


def qdrant_client() -> types.ModuleType:
    """Returns Qdrant's library; raises ValueError if it is not installed."""
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
