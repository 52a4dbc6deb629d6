"""How an encoder's vectors become one embedding per text, and the file that stores this.

    embedder.json    in the folder of the weights, of a run and of files in any format

Pooling comes first, then these steps in order: dense layers and norms, see `pooled_layers`, and
normalization to length 1. The weights of dense layers are named cls/embedding/dense_0/{kernel
[in, out],bias}, those of norms cls/embedding/norm_0/{gamma,beta}, and so on.
"""

import dataclasses
import pathlib
from typing import Any, Self

from bert_tf.checkpoints.token_vectors import TokenVectors, check_types
from bert_tf.config.pooled_layers import (
    POOLINGS,
    DenseStep,
    NormStep,
    Step,
    check_steps,
    output_width,
    step_shapes,
)
from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.system.files import read_json, write_json

FILE_NAME = "embedder.json"
HEAD = "cls/embedding/"
# Prefix of the names of a decoder's weights, which only training has; see `tsdae_model.py`.
DECODER = "denoiser/"
MOST_TOKENS = 256  # The length of a text, if the model does not state one.
NUM_SPECIAL = 2  # Special tokens around a text.
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# Left out of files where they have their default.
STATIC_FIELDS = ("skipped_tokens", "characters_per_token")


@dataclasses.dataclass(frozen=True)
class EmbeddingConfig:
    """The layers on top of the encoder."""

    pooling: tuple[str, ...] = ("mean",)  # from `POOLINGS`; the vectors of several are concatenated
    dense: tuple[Step, ...] = ()  # dense layers and norms after the pooling
    normalize: bool = False  # whether vectors are scaled to length 1, after the dense layers
    max_seq_length: int = 128  # maximum number of tokens of a text, including special tokens
    # Prefixes of texts by name: query, document or a name of the model's.
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None  # name of the prompt that is used if none is named
    include_prompt: bool = True  # whether the pooling includes the tokens of a prompt
    similarity: str = "cosine"  # how embeddings are compared, from `SIMILARITIES`
    lower_case_texts: bool = False  # whether texts are lower-cased before they are tokenized
    # The settings of late interaction, which has a vector for each token instead of a pooling;
    # None: one vector for each text.
    tokens: TokenVectors | None = None
    # Ids of tokens that the pooling skips, of static embedders.
    skipped_tokens: tuple[int, ...] = ()
    # Of embedders of Model2Vec: a text is cut at so many characters for each token that it may
    # have; 0: texts are cut by tokens alone.
    characters_per_token: int = 0

    def __post_init__(self) -> None:
        wrong = [name for name in self.pooling if name not in POOLINGS]
        if wrong or not self.pooling:
            raise ValueError(
                f"pooling: received {list(self.pooling)}, expected one or more of {list(POOLINGS)}."
            )
        known = SIMILARITIES if self.tokens is None else MAXSIM
        if self.similarity not in known:
            raise ValueError(
                f"similarity: received {self.similarity!r}, expected one of {list(known)}."
            )
        check_steps(self.dense)
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(
                f"default_prompt is {self.default_prompt!r}, but the prompts are named "
                f"{list(self.prompts)}."
            )

    def check(self, hidden_size: int, source: str) -> None:
        """Raises ValueError if the sizes of the layers do not match."""
        # The vectors of several poolings are concatenated.
        output_width(self.dense, len(self.pooling) * hidden_size, source)

    def dimension(self, hidden_size: int) -> int:
        """Returns the numbers of an embedding."""
        return output_width(self.dense, len(self.pooling) * hidden_size, "embedding")

    def steps(self, hidden_size: int) -> list[Step]:
        """Returns the layers after the pooling, with the norm to length 1 as the last."""
        steps = list(self.dense)
        if self.normalize:
            steps.append(NormStep(self.dimension(hidden_size), "l2"))
        return steps

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the weights by name."""
        return step_shapes(self.dense, HEAD)

    def length(self, side: str) -> int:
        """Returns the maximum number of tokens of a text on a side, "query" or "document"."""
        if self.tokens is not None and side == "query":
            return self.tokens.query_length
        return self.max_seq_length

    def prompt(self, name: str | None) -> str:
        """Returns the prompt of a name, the default one for None; ValueError for an unknown one."""
        if name is None:
            name = self.default_prompt
        if name is None:
            return ""
        if name not in self.prompts:
            raise ValueError(f"No prompt is named {name!r}; there are {list(self.prompts)}.")
        return self.prompts[name]

    def side_prompt(self, side: str) -> str:
        """Returns the prompt named as a side, "query" or "document"; "" without one.

        As sentence-transformers 5 and 6 do: neither the default prompt nor one of another name,
        such as passage, is used instead.
        """
        return self.prompts.get(side, "")

    def cut(self, text: str) -> str:
        """Returns the part of a text that is tokenized, by `characters_per_token`."""
        return text[: self.max_characters] if self.max_characters else text

    @property
    def max_characters(self) -> int:
        """The most characters of a text that are tokenized; 0: no limit."""
        return self.characters_per_token * (self.max_seq_length - NUM_SPECIAL)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields for JSON; those of few models only if they differ from the default."""
        values = dataclasses.asdict(self)
        for name in ("tokens", *STATIC_FIELDS):
            if not values[name]:
                del values[name]
        for step in values["dense"]:
            if step.get("residual") is False:
                del step["residual"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Makes the configuration from the result of `to_dict`; ValueError for other values."""
        try:
            dense: list[Step] = []
            for step in values.get("dense", ()):
                dense.append(NormStep(**step) if "norm" in step else DenseStep(**step))
            fields = {**values, "dense": tuple(dense)}
            fields["pooling"] = tuple(values.get("pooling", ("mean",)))
            fields["skipped_tokens"] = tuple(values.get("skipped_tokens", ()))
            if values.get("tokens") is not None:
                fields["tokens"] = TokenVectors.from_dict(values["tokens"])
            made = cls(**fields)
            check_types(made)
            if made.max_seq_length < 1:
                raise TypeError(f"max_seq_length is {made.max_seq_length}, expected at least 1")
            return made
        except TypeError as error:
            raise ValueError(f"{values!r:.200} does not describe an embedding: {error}.") from None


def read_embedding(folder: pathlib.Path) -> EmbeddingConfig | None:
    """Reads embedder.json; None without it."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        return EmbeddingConfig.from_dict(read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write_embedding(folder: pathlib.Path, config: EmbeddingConfig) -> None:
    """Writes embedder.json."""
    write_json(folder / FILE_NAME, config.to_dict())
