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
from bert_tf.system.files import read_json, real_path, write_json

MANIFEST = "manifest.json"
FORMAT = 2
SIMILARITIES = ("cosine", "dot")


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
        """Reads the manifest of an index; its digest shows that no field was changed."""
        path = folder.expanduser() / MANIFEST
        if not path.is_file():
            hint = ""
            if building_folder(folder).exists():
                hint = "; a build was interrupted: run the command again"
            raise ValueError(f"{folder} is not an index: it has no {MANIFEST}{hint}.")
        values = _read_values(path)
        names = [field.name for field in dataclasses.fields(cls)]
        if missing := [name for name in names if name not in values]:
            raise ValueError(f"{path} lacks {', '.join(missing)}; build the index again.")
        fields = {name: values[name] for name in names}
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
    """Returns the path of an index's model: the given one, by default the one recorded in it."""
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
