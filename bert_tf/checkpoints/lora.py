"""LoRA adapters in PEFT's form: small matrices that are added to the weights of a base model.

    adapter_config.json          peft_type, base_model_name_or_path, lora_alpha, r ..
    adapter_model.safetensors    base_model.model.bert.pooler.dense.lora_A.weight, and whole weights
                                 such as those of a new head, base_model.model.classifier.weight

A weight W [outputs, inputs] becomes W + scale * B A, with A [rank, inputs] and B [outputs, rank].
DoRA then rescales every row of the sum to a trained length. Reference: PEFT 0.21, tuners/lora.
"""

import dataclasses
import math
import pathlib
import re
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import Weights
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.weight_files import modern_names, read_weight_file
from bert_tf.system.bounded_files import BoundedPatterns
from bert_tf.system.files import json_field, read_json
from bert_tf.system.model_names import is_hub_name

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_MATRIX = re.compile(
    r"(.+)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(\.weight)?"
)
MAGNITUDE = "lora_magnitude_vector"
# The purposes of `Family.classes` by task_type.
PURPOSES = {
    "SEQ_CLS": "classifier",
    "TOKEN_CLS": "tagger",
    "QUESTION_ANS": "squad",
    "FEATURE_EXTRACTION": "encoder",
}
# Settings without an effect on merged weights, and those that are read.
KNOWN = (
    *("task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
    *("revision", "inference_mode", "r", "target_modules", "exclude_modules", "lora_alpha"),
    *("lora_dropout", "fan_in_fan_out", "bias", "use_rslora", "modules_to_save", "lora_bias"),
    *("init_lora_weights", "layers_to_transform", "layers_pattern", "rank_pattern"),
    *("alpha_pattern", "megatron_config", "megatron_core", "loftq_config", "eva_config"),
    *("corda_config", "lora_ga_config", "use_dora", "qalora_group_size", "runtime_config"),
    *("ensure_weight_tying", "velora_config"),
)
# Other initial values of the matrices change the weights of the base as well.
INITIAL_VALUES = (True, False, "gaussian", "eva", "orthogonal")
MERGE_BY_PEFT = (
    "merge the adapter with PEFT, by model.merge_and_unload().save_pretrained(folder), and give "
    "that folder"
)


@dataclasses.dataclass(frozen=True)
class LoraAdapter:
    """An adapter as it is in its folder."""

    folder: pathlib.Path
    values: dict[str, Any]
    matrices: dict[str, Weights]  # the matrices by module name, then by kind: lora_A, lora_B ..
    weights: Weights  # whole weights, which replace those of the base or are added to them
    patterns: BoundedPatterns  # matches the names of modules with the patterns of `values`

    @property
    def purpose(self) -> str:
        """The purpose of the adapted model, of `Family.classes`; "": that of the base."""
        return PURPOSES.get(str(self.values.get("task_type")), "")

    @property
    def base_class(self) -> str:
        """The class of transformers that was adapted; "" if it is not recorded."""
        path = self.folder / ADAPTER_CONFIG
        mapping = json_field(self.values, "auto_mapping", dict, path, nullable=True) or {}
        return str(mapping.get("base_model_class") or "")

    def scale(self, module: str, num_rows: int) -> float:
        """Returns the factor of the product of a module's matrices.

        Raises:
          ValueError: if the rank is not `num_rows`, that of the matrices.
        """
        rank = self._setting("r", "rank_pattern", module)
        if rank != num_rows:
            raise ValueError(
                f"{self.folder / ADAPTER_CONFIG}: r (or rank_pattern) is {rank} for {module}, but "
                f"its matrices have rank {num_rows}; configuration and matrices belong to "
                "different adapters."
            )
        alpha = self._setting("lora_alpha", "alpha_pattern", module)
        if self.values.get("use_rslora"):
            # rsLoRA: the sum over `rank` terms grows with the root of the rank.
            return alpha / math.sqrt(rank)
        return alpha / rank

    def check_selects(self, module: str) -> None:
        """Checks that the settings select a module that has matrices, as PEFT reads them.

        Raises:
          ValueError: naming the setting that leaves it out; PEFT would ignore its matrices.
        """
        layers = self.values.get("layers_to_transform")
        is_in_layers = layers in (None, []) or isinstance(self.values.get("target_modules"), str)
        refused = {
            "exclude_modules": self._names(module, "exclude_modules"),
            "target_modules": not self._names(module, "target_modules", default=True),
            "layers_to_transform": not is_in_layers and not self._is_in(module, layers),
        }
        for key, is_refused in refused.items():
            if is_refused:
                raise ValueError(
                    f"{self.folder / ADAPTER_CONFIG}: {key} is {self.values[key]!r:.100}, which "
                    f"leaves out {module}, but there are matrices for it; configuration and "
                    "matrices belong to different adapters."
                )

    def _names(self, module: str, key: str, default: bool = False) -> bool:
        names = self.values.get(key)
        if not names:
            return default
        if isinstance(names, str):
            return names == "all-linear" or self.patterns.matches(names, module, key)
        return any(f".{module}".endswith(f".{name}") for name in names)

    def _is_in(self, module: str, layers: Any) -> bool:
        """Returns whether a module is in one of the layers with these numbers."""
        names = self.values.get("layers_pattern") or []
        patterns = list(map(re.escape, [names] if isinstance(names, str) else names))
        found = re.match(rf".*\.({'|'.join(patterns) or '[^.]*'})\.(\d+)\.", module)
        numbers = layers if isinstance(layers, list) else [layers]
        return found is not None and int(found[2]) in numbers

    def _setting(self, key: str, pattern_key: str, module: str) -> float:
        path = self.folder / ADAPTER_CONFIG
        value = self.values.get(key, 8)
        patterns = json_field(self.values, pattern_key, dict, path, nullable=True) or {}
        for pattern, other in patterns.items():
            if self.patterns.matches(rf"(.*\.)?({pattern})", module, pattern_key):
                value = other
                break
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"{path}: {key} is {value!r}, expected a number above 0.")
        return value


def is_adapter(folder: pathlib.Path) -> bool:
    """True for a folder with an adapter_config.json."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: pathlib.Path) -> LoraAdapter:
    """Reads an adapter; ValueError if it is not of LoRA, cannot be merged, or cannot be read."""
    path = folder / ADAPTER_CONFIG
    values = read_json(path)
    # With any other setting the sum of weights and matrices may not be the model.
    refused = [key for key, value in values.items() if value and key not in KNOWN]
    if values.get("peft_type") != "LORA":
        refused.append("peft_type")
    if values.get("init_lora_weights", True) not in INITIAL_VALUES:
        refused.append("init_lora_weights")
    if refused:
        key = refused[0]
        raise ValueError(
            f"{path}: {key} is {values.get(key)!r:.100}, which bert_tf does not support; "
            f"{MERGE_BY_PEFT}."
        )
    found = [name for name in ADAPTER_FILES if (folder / name).exists()]
    file = folder / (found or ADAPTER_FILES)[0]
    adapter_weights, _ = modern_names(read_weight_file(file), folder)
    matrices: dict[str, Weights] = {}
    weights: Weights = {}
    for name, value in adapter_weights.items():
        if match := _MATRIX.fullmatch(name):
            matrices.setdefault(match[1], {})[match[2]] = value
        elif ".lora_" in name:
            raise ValueError(
                f"{file} holds {name}, which bert_tf does not support; {MERGE_BY_PEFT}."
            )
        elif ".original_module." not in name:
            # PEFT's wrappers around layers that it trains in part or completely.
            for wrapper in (".base_layer.", ".modules_to_save."):
                name = name.replace(wrapper, ".")
            # With bias="all" PEFT leaves the adapter's name in those of trained layers.
            name = name.replace(".default.", ".")
            weights[name] = value
    return LoraAdapter(folder, values, matrices, weights, BoundedPatterns(path))


def find_base(adapter: LoraAdapter, base_model: str = "") -> pathlib.Path:
    """Returns the folder of the model that an adapter belongs to.

    Args:
      base_model: a folder or a name on a hub; "": the one that adapter_config.json names, which may
        be relative to the adapter's folder.

    Raises:
      ValueError: if none is named, or it cannot be found.
    """
    path = adapter.folder / ADAPTER_CONFIG
    name = base_model or json_field(
        adapter.values, "base_model_name_or_path", str, path, nullable=True
    )
    if not name:
        raise ValueError(
            f"{path} names no base_model_name_or_path; merge the adapter into its base by "
            f"convert_checkpoint --input={adapter.folder} --base_model=FOLDER."
        )
    if is_hub_name(name):
        return local_path(name)
    local = pathlib.Path(name).expanduser()
    for folder in (local, adapter.folder / local):
        if folder.is_dir():
            return folder
    if base_model or not re.fullmatch(r"([\w.-]+/)?[\w.-]+", name, re.ASCII) or name[0] == ".":
        raise ValueError(
            f"{adapter.folder}: its base model {name} is not a folder here; give the base as "
            "convert_checkpoint --base_model=FOLDER, or correct base_model_name_or_path in "
            f"{ADAPTER_CONFIG}."
        )
    revision = json_field(adapter.values, "revision", str, path, nullable=True)
    try:
        return local_path(f"hf://{name}@{revision}" if revision else f"hf://{name}")
    except ValueError as error:
        raise ValueError(f"{adapter.folder} is an adapter of {name}: {error}") from None


def merge_adapter(
    adapter: LoraAdapter, base_weights: Weights, base: pathlib.Path, prefix: str
) -> Weights:
    """Returns the weights of the base with the adapter merged into them.

    Args:
      base_weights: float32 weights of the base under PyTorch's names.
      prefix: the prefix of the encoder's names, which either side may lack.

    Raises:
      ValueError: if the adapter belongs to another base.
    """
    if not any(name.startswith(prefix) for name in base_weights):
        base_weights = {prefix + name: value for name, value in base_weights.items()}

    def name_in_base(name: str) -> str:
        is_bare = name not in base_weights and prefix + name in base_weights
        return prefix + name if is_bare else name

    merged = dict(base_weights)
    for module, matrices in adapter.matrices.items():
        name = name_in_base(f"{module}.weight")
        before = base_weights.get(name)
        adapter.check_selects(module)
        _check_dora(adapter, module, matrices)
        change, rank = _product(adapter, module, matrices)
        if before is None or before.shape != change.shape:
            shown = "has none" if before is None else f"has {list(before.shape)}"
            raise ValueError(
                f"{adapter.folder} is an adapter of another model than {base}: it changes {name} "
                f"{list(change.shape)}, of which the base {shown}."
            )
        after = before + np.float32(adapter.scale(module, rank)) * change
        if MAGNITUDE in matrices:
            magnitude = matrices[MAGNITUDE].reshape(-1, 1)
            if len(magnitude) != len(after):
                raise ValueError(
                    f"{adapter.folder}: {MAGNITUDE} of {module} has {len(magnitude)} numbers, "
                    f"expected {len(after)}."
                )
            # DoRA: the direction of each row from the sum, its length from the adapter.
            after = magnitude / np.linalg.norm(after, axis=1, keepdims=True) * after
        merged[name] = after.astype(np.float32)
    whole = {name_in_base(name): value for name, value in adapter.weights.items()}
    for module in adapter.values.get("modules_to_save") or ():
        for name in base_weights:
            if f".{module}." in f".{name}" and name not in whole:
                raise ValueError(
                    f"{adapter.folder / ADAPTER_CONFIG}: modules_to_save has {module!r}, but the "
                    f"adapter lacks {name}; configuration and weights belong to different adapters."
                )
    return merged | whole


def _check_dora(adapter: LoraAdapter, module: str, matrices: Weights) -> None:
    """Raises ValueError unless the matrices have lengths of rows exactly where use_dora says so."""
    path = adapter.folder / ADAPTER_CONFIG
    use_dora = bool(json_field(adapter.values, "use_dora", bool, path, nullable=True))
    has_lengths = any(MAGNITUDE in other for other in adapter.matrices.values())
    if use_dora != (MAGNITUDE in matrices) and (use_dora or has_lengths):
        shown = "has" if MAGNITUDE in matrices else "lacks"
        raise ValueError(
            f"{path}: use_dora is {use_dora}, but {module} {shown} a {MAGNITUDE}; configuration "
            "and matrices belong to different adapters."
        )


def _product(adapter: LoraAdapter, module: str, matrices: Weights) -> tuple[np.ndarray, int]:
    """Returns the product of a module's matrices, in the shape of its weight, and their rank.

    fan_in_fan_out is not read: it concerns layers of other models, and PEFT ignores it for these.
    """
    kinds = set(matrices)
    is_table = kinds == {"lora_embedding_A", "lora_embedding_B"}
    if not is_table and kinds - {MAGNITUDE} != {"lora_A", "lora_B"}:
        raise ValueError(
            f"{adapter.folder} holds {sorted(matrices)} of {module}, expected lora_A and lora_B."
        )
    start = "lora_embedding_" if is_table else "lora_"
    down = matrices[f"{start}A"]  # [rank, inputs]
    up = matrices[f"{start}B"]  # [outputs, rank]
    if down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
        raise ValueError(
            f"{adapter.folder}: {module} has {start}A {list(down.shape)} and {start}B "
            f"{list(up.shape)}, which cannot be multiplied."
        )
    product = up @ down  # [outputs, inputs]
    # The rows of a table are its inputs.
    return (product.T if is_table else product), down.shape[0]
