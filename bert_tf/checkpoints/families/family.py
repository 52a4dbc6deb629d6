"""Describes a family of encoders in Hugging Face folders, and the supported structures."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import LABEL_HEADS
from bert_tf.checkpoints.weight_names import Row
from bert_tf.config import BIASES, ModelConfig
from bert_tf.system.files import json_field

# Names of transformers, which means the exact form by gelu alone.
ACTIVATIONS = {
    "gelu": "gelu_exact",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu_exact",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
    "silu": "silu",
    "swish": "silu",
}


# A field that may have any value.
ANY = object()
# The values of BERT, of all families that do not state others; some follow from the configuration.
USUAL: dict[str, Any] = {
    "block_type": "post_norm",
    "gated_feed_forward": False,
    "biases": "all",
    "local_attention": 0,
    "head_transform": False,
    "num_layer_groups": 0,
    "position_type": "learned",
    "position_offset": 0,
    "embedding_norm": True,
    "embedding_size": lambda config: config.hidden_size,
    # It has no effect where the widths differ.
    "embedding_projection": lambda config: (False, config.table_width != config.hidden_size),
    "type_vocab_size": lambda config: config.type_vocab_size or 2,
    "query_vector": False,
    "pooled_token": "first",
    "pooler_act": "tanh",
    "masked_lm_transform": True,
    "transform_act": lambda config: config.hidden_act,
    "classifier_pooling": "pooler",
    "classifier_layers": "",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One family: its configuration and its names of weights, in both directions."""

    title: str  # its name in messages
    model_type: str  # its name in a config.json
    prefix: str  # prefix of the encoder's weight names; a bare encoder lacks it
    # The classes of transformers by purpose: encoder, masked_lm, pretrained (masked_lm and
    # next_sentence), next_sentence, classifier, multiple_choice, tagger, squad.
    classes: Mapping[str, str]
    # Makes our configuration from a config.json; raises ValueError if we do not compute such a
    # model. The path is for messages.
    read_config: Callable[[dict[str, Any], pathlib.Path], ModelConfig]
    # Returns the corresponding fields of a config.json.
    write_config: Callable[[ModelConfig], dict[str, Any]]
    # Returns the table of weights for a number of unique layers and a purpose.
    rows: Callable[[int, str], list[Row]]
    copies: Mapping[str, str]  # copies of tied weights, which some files contain
    # The values of fields that it can hold, where they differ from `USUAL`: a value, a tuple of
    # several, ANY, or a function that returns them for a configuration.
    held: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Returns further reasons why it cannot hold a configuration.
    other_differences: Callable[[ModelConfig], list[str]] | None = None
    # Functions that compute, by name, tensors that follow from the configuration.
    constants: Mapping[str, Callable[[ModelConfig], np.ndarray]] = dataclasses.field(
        default_factory=dict
    )
    # Whether pre-training makes the pooler; otherwise each task starts a new one.
    pretrains_pooler: bool = False
    # Starts of names, by purpose, of weights that the class of that purpose does not compute with;
    # some files hold them.
    idle: Mapping[str, str | tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # Returns the family of a file by its config.json and its names of weights, where a model_type
    # has several; None where it has one.
    variant: "Callable[[dict[str, Any], Iterable[str]], Family] | None" = None

    def differences(self, config: ModelConfig, heads: tuple[str, ...]) -> list[str]:
        """Returns the reasons why it cannot hold a configuration with these heads; [] if it can."""
        found = [] if self.other_differences is None else self.other_differences(config)
        unused = _fields_of_missing_heads(heads)
        for name, allowed in {**USUAL, **self.held}.items():
            value = getattr(config, name)
            # 0 means the width of the layers.
            if name == "embedding_size":
                value = value or config.hidden_size
            # A list of all parts means the same as "all".
            if name == "biases" and all(map(config.has_bias, BIASES)):
                value = "all"
            allowed = allowed(config) if callable(allowed) else allowed
            allowed = allowed if isinstance(allowed, tuple) else (allowed,)
            if name not in unused and value not in allowed and ANY not in allowed:
                found.append(f"{name} is {value!r}, not {' or '.join(map(repr, allowed))}")
        return found


def task_classes(start: str) -> dict[str, str]:
    """Returns the classes of nearly all families by purpose; their names begin with `start`."""
    return {
        "encoder": f"{start}Model",
        "masked_lm": f"{start}ForMaskedLM",
        "classifier": f"{start}ForSequenceClassification",
        "multiple_choice": f"{start}ForMultipleChoice",
        "tagger": f"{start}ForTokenClassification",
        "squad": f"{start}ForQuestionAnswering",
    }


def read_fields(
    values: dict[str, Any], path: pathlib.Path, names: Mapping[str, str], **others: object
) -> ModelConfig:
    """Makes a configuration of the fields of a config.json.

    Args:
      names: the keys of the file by field. `hidden_act` is translated.
      others: values by our names, where the file has none.

    Raises:
      ValueError: naming the file and their field.
    """
    # No padding id: no family but RoBERTa, which reads it itself, computes with it.
    if values.get("pad_token_id", 0) is None:
        values = {**values, "pad_token_id": 0}
    fields = {**others, **{name: values[other] for name, other in names.items() if other in values}}
    act = names["hidden_act"]
    if act in values:
        fields["hidden_act"] = read_activation(values, path, act)
    try:
        return ModelConfig.from_dict(fields)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {with_file_keys(str(error), names)}") from None


def with_file_keys(message: str, names: Mapping[str, str]) -> str:
    """Returns a message with the keys of a file instead of field names; `names` has both."""
    for name, other in names.items():
        message = re.sub(rf"\b{name}\b", other, message)
    return message


def read_activation(
    values: dict[str, Any], path: pathlib.Path, key: str, default: str = "gelu"
) -> str:
    """Returns the activation that a config.json names; ValueError for an unknown one."""
    return ACTIVATIONS[json_field(values, key, str, path, choices=ACTIVATIONS, default=default)]


def with_aliases(
    values: dict[str, Any], path: pathlib.Path, aliases: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a config.json with the usual names of fields, which `aliases` has by other names.

    Raises:
      ValueError: if a field has different values under both names.
    """
    values = dict(values)
    for alias, name in aliases.items():
        if alias in values and values.setdefault(name, values[alias]) != values[alias]:
            raise ValueError(
                f"{path}: {name} is {values[name]!r}, but {alias}, which means the same, is "
                f"{values[alias]!r}; leave one of them out."
            )
    return values


def written_fields(config: ModelConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of a config.json, whose keys `names` has by field."""
    values = {key: getattr(config, name) for name, key in names.items()}
    return {**values, names["hidden_act"]: written_activation(config.hidden_act)}


def written_activation(value: str) -> str:
    """Returns the name of an activation in config.json."""
    return next(name for name, act in ACTIVATIONS.items() if act == value)


def expect(
    values: dict[str, Any], path: pathlib.Path, *, nullable: bool = False, **allowed: object
) -> None:
    """Raises ValueError unless each of these fields of a config.json has the allowed value.

    A missing field is allowed; with `nullable` null means the same.
    """
    for key, value in allowed.items():
        if key not in values or (nullable and values[key] is None):
            continue
        if values[key] != value:
            shown = "null" if values[key] is None else repr(values[key])
            raise ValueError(
                f"{path}: {key} is {shown}, expected {value!r}, the only one that bert_tf supports."
            )


def architectures(values: dict[str, Any], path: pathlib.Path) -> list[str]:
    """Returns the classes of transformers that a config.json names; ValueError if it is no list."""
    return json_field(values, "architectures", list, path, nullable=True) or []


def read_width(
    values: dict[str, Any],
    path: pathlib.Path,
    config: ModelConfig,
    default: int,
    nullable: bool = False,
) -> int:
    """Returns the `embedding_size` of a configuration; 0 for that of its layers, not projected."""
    width = json_field(
        values, "embedding_size", int, path, nullable=nullable, least=1, default=default
    )
    return 0 if width == config.hidden_size else width


def gelu_head(values: dict[str, Any]) -> str:
    """Returns the `head_act` of a masked LM that computes GELU whatever hidden_act says."""
    return "gelu_exact" if values.get("hidden_act", "gelu") != "gelu" else ""


def _fields_of_missing_heads(heads: tuple[str, ...]) -> set[str]:
    """Returns the fields that only heads read which are not among `heads`: they cannot differ."""
    unused = set()
    if "masked_lm" not in heads:
        unused |= {"masked_lm_transform", "transform_act"}
    if "pooler" not in heads:
        unused.add("pooler_act")
    if "classifier" not in heads:
        unused |= {"classifier_pooling", "classifier_layers"}
    if not {*LABEL_HEADS, "squad"} & set(heads):
        unused.add("head_transform")
    return unused
