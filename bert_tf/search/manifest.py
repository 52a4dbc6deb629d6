"""manifest.json of an index: the model, and every file with its size and checksum.

A digest over all other fields detects changes.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from typing import Any

from bert_tf.metrics.exact import DTYPES
from bert_tf.search.analyzer import STEMMERS, TOKEN_RULE
from bert_tf.system.files import json_field, read_json, real_path, write_json

MANIFEST = "manifest.json"
FORMAT = 2
SIMILARITIES = ("cosine", "dot")
_CRC = re.compile("[0-9a-f]{8}")
_KINDS = {
    "dimension": int,
    "max_seq_length": int,
    "has_texts": bool,
    "segments": list,
    "files": dict,
}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Args:
      model: fingerprint of the model that made the vectors.
      source: the path of that model, for messages.
      dimension: D.
      dtype: type of the vectors, one of `exact.DTYPES`.
      similarity: `cosine` (vectors have unit length) or `dot`.
      has_texts: whether the documents' texts are stored.
      segments: number of documents in each segment.
      files: size and CRC-32C by file name.
      pooling: pooling requested for the build; "": the model's default.
      max_seq_length: tokens that texts were cut to; 0: not known.
      token_rule: how the analyzer of the index cuts words; of a searchable one
        `analyzer.TOKEN_RULE`.
      language: of the texts, one of `analyzer.STEMMERS`.
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

    def write(self, folder: pathlib.Path) -> None:
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        write_json(folder / MANIFEST, {**values, "digest": _digest(values)})

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Manifest":
        """Reads the manifest of an index and checks every field.

        Raises:
          ValueError: if it is missing, damaged or of an unknown format.
        """
        path = folder.expanduser() / MANIFEST
        if not path.is_file():
            hint = ""
            if building_folder(folder).exists():
                hint = "; a build was interrupted: run the command again"
            raise ValueError(f"{folder} is not an index: it has no {MANIFEST}{hint}.")
        names = [field.name for field in dataclasses.fields(cls)]
        values = _read_values(path)
        fields: dict[str, Any] = {}
        for name in names:
            fields[name] = json_field(values, name, _KINDS.get(name, str), path)
        if missing := [name for name, value in fields.items() if value is None]:
            raise ValueError(f"{path} lacks {', '.join(missing)}; build the index again.")
        _check(fields, path)
        fields["segments"] = tuple(fields["segments"])
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

    def vector_crcs(self) -> list[str]:
        """Returns the checksum of each segment's exact vectors."""
        name = "exact" if self.dtype == "int8" else "vectors"
        return [self.files[f"{name}-{i:05}.npy"][1] for i in range(len(self.segments))]


def _read_values(path: pathlib.Path) -> dict[str, Any]:
    """Reads manifest.json and checks its format and digest."""
    values = read_json(path)
    version = values.get("format")
    # Not isinstance: True is an int in Python.
    if type(version) is not int or version != FORMAT:
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


def model_of_index(folder: str | os.PathLike, model: str = "") -> str:
    """Returns the path of an index's model: the given one, by default the one recorded in it.

    Raises:
      ValueError: if the index does not record its model, or cannot be read.
    """
    source = model or Manifest.read(pathlib.Path(folder)).source
    if not source:
        raise ValueError(
            f"{folder} does not record its model; give the model as --init_checkpoint."
        )
    return source


def building_folder(folder: pathlib.Path) -> pathlib.Path:
    """Returns the temporary folder in which an index is built."""
    folder = real_path(folder)
    return folder.with_name(f".{folder.name}.building")


def _digest(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check(fields: dict[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError unless the fields are in range and the files match the segments."""
    for name, known in (
        ("dtype", DTYPES),
        ("similarity", SIMILARITIES),
        ("language", tuple(STEMMERS)),
    ):
        if fields[name] not in known:
            raise ValueError(
                f"{path}: {name} is {fields[name]!r}, expected one of {', '.join(known)}; build "
                "the index again."
            )
    segments = fields["segments"]
    if not segments or not all(_is_count(count, 1) for count in segments):
        raise ValueError(f"{path}: segments are {segments!r:.80}, expected numbers of documents.")
    for name, minimum in (("dimension", 1), ("max_seq_length", 0)):
        if not _is_count(fields[name], minimum):
            raise ValueError(f"{path}: {name} is {fields[name]!r}, expected {minimum} or more.")
    for name, entry in fields["files"].items():
        is_entry = isinstance(entry, list) and len(entry) == 2 and _is_count(entry[0], 0)
        if not is_entry or not isinstance(entry[1], str) or not _CRC.fullmatch(entry[1]):
            raise ValueError(
                f"{path}: {name} has {entry!r:.80}, expected its size and its CRC-32C; build the "
                "index again."
            )
    expected: set[str] = set()
    for number in range(len(segments)):
        expected.update(segment_files(number, fields["dtype"], fields["has_texts"]))
    if different := sorted(expected ^ fields["files"].keys()):
        fault = "missing" if different[0] in expected else "unexpected"
        raise ValueError(
            f"{path}: its files do not match {len(segments)} segments: {different[0]} is {fault}; "
            "build the index again."
        )


def segment_files(number: int, dtype: str, has_texts: bool) -> list[str]:
    """Returns the names of the files of a segment."""
    names = []
    for kind in ["ids", "texts"] if has_texts else ["ids"]:
        names += [f"{kind}-{number:05}.utf8", f"{kind}-{number:05}.ends.npy"]
    for kind in ["vectors", "scales", "ranges", "exact"] if dtype == "int8" else ["vectors"]:
        names.append(f"{kind}-{number:05}.npy")
    return names


def _is_count(value: object, minimum: int) -> bool:
    return type(value) is int and value >= minimum
