"""manifest.json of an index: the model, and every file with its size and checksum.

A digest over all other fields detects changes.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from bert_tf.search.analyzer import TOKEN_RULE
from bert_tf.search.token_vectors import TokenIndex
from bert_tf.system.files import json_field, read_json, real_path, write_json

MANIFEST = "manifest.json"
FORMAT = 3
READABLE_FORMATS = (2, 3)
SIMILARITIES = ("cosine", "dot")
MAX_DIMENSION = 1 << 20
DTYPES = ("float32", "float16", "int8", "binary")
# The copies of the vectors that rescore candidates, for each dtype; the first one is the default.
RESCORING = {
    "float32": ("none",),
    "float16": ("none",),
    "int8": ("float32", "none"),
    "binary": ("int8", "float32", "none"),
}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Args:
      model: fingerprint of the model that made the vectors.
      source: the path of that model, for messages.
      dimension: D.
      dtype: type of the vectors, one of `DTYPES`.
      similarity: `cosine` (vectors have unit length) or `dot`.
      has_texts: whether the documents' texts are stored.
      segments: number of documents in each segment, deleted ones included.
      files: size and CRC-32C by file name.
      pooling: pooling requested for the build; "": the model's default.
      max_seq_length: tokens that texts were cut to; 0: not known.
      token_rule: how the analyzer of the index cuts words; of a searchable one
        `analyzer.TOKEN_RULE`.
      language: of the texts, one of `analyzer.STEMMERS`.
      rescore: copies of the vectors that rescore candidates, one of `RESCORING`.
      model_dimension: size of the model's vectors, of which the first D are kept; 0: D.
      recall: share of the ten nearest documents by float32 vectors of the model that a search
        found when the index was built; None: not measured.
      first_segment: the number in the file names of the first segment. Numbers are not used again.
      vector_counts: number of vectors in each segment; equal texts share one.
      deleted: number of deleted documents that the segments still have.
      passages, passage_overlap, late_chunking: see `passages.PassageRule`.
      deletions: how often documents were deleted; the number of the file with the deleted rows.
    """

    model: str
    source: str
    dimension: int
    dtype: str
    similarity: str
    has_texts: bool
    segments: tuple[int, ...] = ()
    files: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    pooling: str = ""
    max_seq_length: int = 0
    token_rule: str = TOKEN_RULE
    language: str = "en"
    rescore: str = "none"
    model_dimension: int = 0
    recall: float | None = None
    first_segment: int = 0
    vector_counts: tuple[int, ...] = ()
    deletions: int = 0
    deleted: int = 0
    passages: int = 0
    passage_overlap: int = 0
    late_chunking: bool = False

    def write(self, folder: pathlib.Path) -> None:
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        write_json(folder / MANIFEST, {**values, "digest": _digest(values)})

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Manifest":
        """Reads the manifest of an index; its digest shows that no field was changed."""
        path = folder.expanduser() / MANIFEST
        if not path.is_file():
            hint = ""
            if building_folder(folder).exists():
                hint = "; a build was interrupted: run the command again"
            raise ValueError(f"{folder} is not an index: it has no {MANIFEST}{hint}.")
        values = _read_values(path)
        fields = {}
        if values["format"] == 2:
            # Fields that format 3 added; the others of these have their defaults.
            rescore = "float32" if values.get("dtype") == "int8" else "none"
            fields = {"rescore": rescore, "vector_counts": values.get("segments", ())}
        for field in dataclasses.fields(cls):
            if field.name in values:
                fields[field.name] = values[field.name]
            elif values["format"] == FORMAT or field.default is dataclasses.MISSING:
                raise ValueError(f"{path} lacks {field.name}; build the index again.")
        _check_fields(fields, path)
        fields["segments"] = tuple(fields["segments"])
        fields["vector_counts"] = tuple(fields["vector_counts"])
        fields["files"] = {name: tuple(entry) for name, entry in fields["files"].items()}
        return cls(**fields)

    def check_token_rule(self, folder: str | os.PathLike) -> None:
        """Raises ValueError unless words are cut by the rule and language that the index records.

        The rule changes the words of documents and queries, so it does not change in silence.
        """
        if self.token_rule != TOKEN_RULE:
            raise ValueError(
                f"{folder} records the word rule {self.token_rule!r}; search by words needs "
                f"{TOKEN_RULE!r}. To record it and the language of the texts, without embedding "
                f"again: `python -m bert_tf.build_index --output_dir={folder} "
                f"--language={self.language}`."
            )

    @property
    def numbers(self) -> range:
        """The numbers in the file names of the segments."""
        return range(self.first_segment, self.first_segment + len(self.segments))

    @property
    def count(self) -> int:
        """The number of documents."""
        return sum(self.segments) - self.deleted

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(size for size, _ in self.files.values())

    @property
    def deleted_file(self) -> str:
        """The file with the rows of deleted documents; "" if no row is deleted."""
        name = f"deleted-{self.deletions:05}.npy"
        return name if name in self.files else ""

    def vector_crcs(self) -> list[str]:
        """Returns the checksum of each segment's most exact vectors, and of the deleted rows."""
        name = {"float32": "exact", "int8": "int8", "none": "vectors"}[self.rescore]
        names = [f"{name}-{number:05}.npy" for number in self.numbers]
        if self.deleted_file:
            names.append(self.deleted_file)
        return [self.files[name][1] for name in names]


def check_copies(dtype: str, rescore: str) -> None:
    """Raises ValueError unless vectors of a dtype can have these copies; "" is the default."""
    if rescore and rescore not in RESCORING[dtype]:
        with_copies = [name for name, known in RESCORING.items() if rescore in known]
        raise ValueError(
            f"rescore is {rescore!r}, but dtype is {dtype}, whose copies are "
            f"{' or '.join(RESCORING[dtype])}; give one of these, or dtype "
            f"{' or '.join(with_copies) or 'binary'}."
        )


def check_rescoring(manifest: Manifest, copies: str) -> None:
    """Raises ValueError unless an index has the copies that rescore; "" stands for its own."""
    if copies not in ("", "none", manifest.rescore):
        has = "no copies" if manifest.rescore == "none" else f"{manifest.rescore} copies alone"
        raise ValueError(
            f"rescore is {copies}, but the index has {has} of its {manifest.dtype} vectors; leave "
            f"it out, or build the index with --dtype=binary --rescore={copies}."
        )


def _read_values(path: pathlib.Path) -> dict[str, Any]:
    """Reads manifest.json and checks its format and digest."""
    values = read_json(path)
    version = values.get("format")
    # Not isinstance: True is an int in Python.
    if type(version) is not int or version not in READABLE_FORMATS:
        raise ValueError(
            f"{path} has format {version!r}, expected {FORMAT}; build the index again."
        )
    digest = values.pop("digest", None)
    if digest != _digest(values):
        raise ValueError(
            f"{path} has changed since it was written: its digest is {digest!r} instead of "
            f"{_digest(values)!r}; build the index again."
        )
    return values


def _check_fields(fields: dict[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError for a value that no index can have, as its files are read by it."""
    for field in dataclasses.fields(Manifest):
        if field.type is int:
            json_field(fields, field.name, int, path, least=0)
        elif field.type in (str, bool):
            json_field(fields, field.name, field.type, path)
    json_field(fields, "dtype", str, path, choices=DTYPES)
    json_field(fields, "similarity", str, path, choices=SIMILARITIES)
    json_field(fields, "rescore", str, path, choices=RESCORING[fields["dtype"]])
    documents = json_field(fields, "segments", list, path)
    vectors = json_field(fields, "vector_counts", list, path)
    are_counts = all(type(number) is int and number >= 0 for number in [*documents, *vectors])
    is_bounded = 0 < fields["dimension"] <= MAX_DIMENSION
    if not (are_counts and is_bounded and len(documents) == len(vectors) > 0):
        raise ValueError(f"{path} has no valid dimension, segments and vector_counts.")
    for name, entry in json_field(fields, "files", dict, path).items():
        is_entry = isinstance(entry, list) and list(map(type, entry)) == [int, str]
        if pathlib.Path(name).name != name or not is_entry:
            raise ValueError(f"{path}: {name!r} with {entry!r:.100} is no file of an index.")


def model_of_index(index: str | os.PathLike, model: str = "") -> str:
    """Returns the path of an index's model: the given one, by default the one recorded in it.

    The index may also be a file of `TokenIndex`.
    """
    path = pathlib.Path(index).expanduser()
    if model:
        return model
    if path.is_file():
        source = TokenIndex.load(path).origin.source
    else:
        source = Manifest.read(path).source
    if not source:
        raise ValueError(
            f"{index} does not record its model; give the model as --init_checkpoint, or as "
            "--model_dir of an export."
        )
    return source


def check_fingerprint(
    index: str | os.PathLike, recorded: str, source: str, fingerprint: str
) -> None:
    """Raises ValueError if an index records another model than the one that embeds queries."""
    if recorded != fingerprint:
        raise ValueError(
            f"{index} was built with another model: its fingerprint is {recorded} (of {source}), "
            f"this model's is {fingerprint}. Search with the original model, or build the index "
            "again."
        )


def check_texts(index: str | os.PathLike, has_texts: bool) -> None:
    """Raises ValueError if an index stores no texts, which a part of a search needs."""
    if not has_texts:
        raise ValueError(
            f"{index} stores no texts, but word search and rerankers need them; build it with "
            "texts."
        )


def check_same_texts(stored: bool, given: bool) -> None:
    """Raises ValueError if documents come with texts and the index stores none, or without."""
    if stored != given:
        kind = "texts" if stored else "no texts"
        raise ValueError(f"The index stores {kind}; give all documents with {kind}.")


def building_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the temporary folder in which an index is built."""
    folder = real_path(folder)
    return folder.with_name(f".{folder.name}.building")


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
