"""The modules of a sentence-transformers folder: embedders, cross-encoders and sparse encoders.

Each module has a type, a folder and settings. A type or a setting that is unknown here is an error
that names it: its effect on the numbers is unknown as well. Reference: sentence-transformers
6.2.0, base/modules and sentence_transformer/modules.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint, Shapes, Weights
from bert_tf.checkpoints.embedding import HEAD, SIMILARITIES, EmbeddingConfig
from bert_tf.checkpoints.families.family import expect
from bert_tf.checkpoints.tokenizer_files import model_max_length
from bert_tf.checkpoints.weight_files import read_weight_file
from bert_tf.config.pooled_layers import POOLINGS, DenseStep, NormStep, Step, layer_name
from bert_tf.system.bounded_files import parse_json, read_bytes
from bert_tf.system.files import json_field, read_json, read_optional_json

MODULES = "modules.json"
CONFIG = "config_sentence_transformers.json"
SIZES = "sentence_bert_config.json"
# Early releases use the family's name instead of bert's.
FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMERS = ("Transformer", "MLMTransformer")
STATIC = "StaticEmbedding"
SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
DEFAULT_ACTIVATION = "torch.nn.modules.activation.Tanh"
ACTIVATIONS = {
    DEFAULT_ACTIVATION: "tanh",
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu_exact",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
EMBEDDING = "sentence_embedding"
TOKENS = "token_embeddings"
# PyLate's dense layer, which computes what the library's does.
PYLATE_DENSE = "pylate.models.Dense.Dense"
# The settings of a Transformer in front of other modules.
FEATURES = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": TOKENS,
}
# The settings of each type; others must be absent or empty.
SIZE_KEYS = ("embedding_dimension", "word_embedding_dimension")
OF_SIDES = ("query_length", "document_length", "query_expansion")
TRANSFORMER_KEYS = (
    *("max_seq_length", "do_lower_case", "transformer_task", "modality_config"),
    *("module_output_name", "unpad_inputs"),
    *OF_SIDES,
)
KEYS = {
    "Transformer": TRANSFORMER_KEYS,
    "MLMTransformer": TRANSFORMER_KEYS,
    STATIC: (),
    "Pooling": (*SIZE_KEYS, *SWITCHES, "pooling_mode", "include_prompt"),
    "Dense": (
        *("in_features", "out_features", "bias", "activation_function"),
        *("module_input_name", "module_output_name", "use_residual"),
    ),
    "LayerNorm": ("dimension",),
    "Normalize": ("module_input_name", "module_output_name"),
    "Dropout": ("dropout",),
    "MultiVectorMask": ("skiplist_words", "skiplist_tasks", "keep_only_token_ids"),
    "HierarchicalTokenPooling": (
        *("pool_factor", "num_protected_tokens", "normalize_embeddings", "tasks"),
    ),
    "SpladePooling": (*SIZE_KEYS, "pooling_strategy", "activation_function", "chunk_size"),
}
# The types of releases before 5.7, which all releases read.
OLD_TYPES = {kind: f"sentence_transformers.models.{kind}" for kind in KEYS}


class Module(NamedTuple):
    """One module: its type without the package, its folder, and its settings with their file."""

    kind: str
    folder: pathlib.Path
    file: pathlib.Path
    values: dict[str, Any]


def is_sentence_transformers(path: pathlib.Path) -> bool:
    """True for a folder with a modules.json."""
    return (path / MODULES).is_file()


def read_modules(path: pathlib.Path) -> list[Module]:
    """Returns the modules of a folder in order.

    Raises:
      ValueError: if a type, a setting or the order is unknown.
    """
    modules = []
    for kind, name in _listed_modules(path):
        # A path in the file must not lead out of the model's folder.
        if ".." in pathlib.PurePath(name).parts or pathlib.PurePath(name).is_absolute():
            raise ValueError(f"{path / MODULES}: the path {name!r} lies outside the folder.")
        folder = path / name
        file = sizes_file(folder) if kind in TRANSFORMERS else folder / "config.json"
        # The config.json of a folder with a static embedding is that of Model2Vec.
        values = {} if kind == STATIC else read_optional_json(file)
        unknown = [key for key in values if key not in KEYS[kind] and values[key] not in (None, {})]
        if kind in TRANSFORMERS and "do_query_expansion" in values:
            raise ValueError(
                f"{file}: do_query_expansion among the settings of the Transformer is the form of "
                "a pre-release of sentence-transformers 6. Load the model with that release, and "
                "save it with PyLate or with a released sentence-transformers."
            )
        if unknown:
            raise ValueError(
                f"{file}: bert_tf does not know the setting {unknown[0]!r} "
                f"({values[unknown[0]]!r:.80}) of a {kind}, only {', '.join(KEYS[kind])}."
            )
        modules.append(Module(kind, folder, file, values))
    _check_transformer(modules)
    return modules


def _listed_modules(path: pathlib.Path) -> list[tuple[str, str]]:
    """Returns (type without its package, path) of the modules in order."""
    file = path / MODULES
    listed = parse_json(read_bytes(file), file)
    try:
        ordered = sorted(listed, key=lambda module: module["idx"])
        modules = [(module["type"], module["path"]) for module in ordered]
        for name in itertools.chain.from_iterable(modules):
            if not isinstance(name, str):
                raise TypeError(f"a type or path is {name!r}, not a string")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is damaged ({type(error).__name__}: {error}); expected a list of modules with "
            "idx, path and type."
        ) from None
    firsts = (*TRANSFORMERS, STATIC)
    if not modules or modules[0][0].rpartition(".")[2] not in firsts:
        raise ValueError(
            f"{file} must begin with a Transformer or a {STATIC}, but begins with {modules[:1]}."
        )
    for kind, _ in modules:
        # Types of other packages are code in the folder, which is never run.
        if not kind.startswith("sentence_transformers.") and kind != PYLATE_DENSE:
            raise ValueError(
                f"{file} names {kind}, code that is not sentence-transformers' own; expected "
                f"{', '.join(KEYS)}."
            )
        if kind.rpartition(".")[2] not in KEYS:
            raise ValueError(
                f"{file} names {kind}, a module that bert_tf does not support; expected "
                f"{', '.join(KEYS)}."
            )
    return [(kind.rpartition(".")[2], name) for kind, name in modules]


def _check_transformer(modules: Sequence[Module]) -> None:
    """Raises ValueError if the Transformer passes on something else than its last layer."""
    transformer, *others = modules
    modality = json_field(
        transformer.values, "modality_config", dict, transformer.file, nullable=True
    )
    if others and others[0].kind != "SpladePooling":
        given = {**transformer.values, "modality_config": modality or None}
        expect(given, transformer.file, nullable=True, **FEATURES)


def transformer_length(module: Module) -> int | None:
    """Returns the maximum length of texts that a Transformer states, or its tokenizer; or None."""
    length = json_field(module.values, "max_seq_length", int, module.file, nullable=True, least=1)
    return model_max_length(module.folder) if length is None else length


def lowers_texts(module: Module) -> bool:
    """Returns whether a Transformer lower-cases texts before they are tokenized."""
    return bool(json_field(module.values, "do_lower_case", bool, module.file, nullable=True))


def sizes_file(transformer: pathlib.Path) -> pathlib.Path:
    """Returns the file with max_seq_length in a Transformer's folder, under the name it has."""
    paths = [transformer / f"sentence_{family}_config.json" for family in FAMILIES]
    return next(filter(pathlib.Path.is_file, paths), transformer / SIZES)


def read_layers(
    modules: Sequence[Module],
    width: int,
    start: str,
    *,
    scores: bool = False,
    vector: str = EMBEDDING,
) -> tuple[list[Step], Weights]:
    """Reads the modules after the pooling, whose vector has this width.

    Names of weights begin with `start`; with `scores` the last Dense makes the scores of a
    cross-encoder. A Dropout does nothing outside training. `vector` is the modules' name of their
    input, `EMBEDDING` or `TOKENS`.

    Returns:
      The layers in order, and their weights by name.
    """
    steps: list[Step] = []
    weights: Weights = {}
    step: Step
    for module in modules:
        is_last = scores and module is modules[-1]
        if module.kind == "Dense":
            step, found = _read_dense(module, vector, "scores" if is_last else vector)
            width = step.out_features
        elif module.kind == "LayerNorm":
            step, found = _read_norm(module)
            width = step.size
        elif module.kind == "Normalize":
            expect(module.values, module.file, nullable=True, module_input_name=vector)
            expect(module.values, module.file, nullable=True, module_output_name=vector)
            step = NormStep(width, "l2")
            found = {}
        elif module.kind == "Dropout":
            continue
        else:
            raise ValueError(f"{module.folder} is a {module.kind}, which bert_tf does not expect.")
        name = layer_name(len(steps), step)
        weights |= {f"{start}{name}/{key}": value for key, value in found.items()}
        steps.append(step)
    return steps, weights


def read_pooling(module: Module, hidden_size: int) -> tuple[tuple[str, ...], bool]:
    """Returns the poolings in order, and whether a prompt counts."""
    path = module.file
    values = read_json(path)
    for key in ("embedding_dimension", "word_embedding_dimension"):
        size = json_field(values, key, int, path)
        if size not in (None, hidden_size):
            raise ValueError(
                f"{path}: {key} is {size}, but the model has {hidden_size} numbers; they do not "
                "belong together."
            )
    switches = {key: json_field(values, key, bool, path) for key in SWITCHES}
    names = [SWITCHES[key] for key, is_on in switches.items() if is_on] or ["mean"]
    # Newer releases name the poolings instead of switching them on.
    named = values.get("pooling_mode", names)
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{path}: pooling_mode is {named!r}, expected one name or a list of names."
        )
    # "mean" and "mean_tokens" name the same pooling.
    names = [name.removesuffix("_tokens") for name in names]
    wrong = [name for name in names if name not in POOLINGS]
    if wrong or not names:
        raise ValueError(
            f"{path}: pooling_mode is {names}, expected one or more of {list(POOLINGS)}."
        )
    return tuple(names), json_field(values, "include_prompt", bool, path) is not False


def _read_dense(module: Module, vector: str, output: str) -> tuple[DenseStep, Weights]:
    """Returns a Dense and its weights; its input and its result must have these names."""
    path = module.file
    values = read_json(path)
    act = json_field(
        values, "activation_function", str, path, choices=ACTIVATIONS, default=DEFAULT_ACTIVATION
    )
    expect(values, path, module_input_name=vector)
    if output != vector:
        expect(values, path, use_residual=False)
    # Without another name the output replaces the input.
    named = {**values, "module_output_name": values.get("module_output_name") or vector}
    expect(named, path, module_output_name=output)
    sizes = {}
    for key in ("in_features", "out_features"):
        sizes[key] = json_field(values, key, int, path, least=1, default=0)
        if not sizes[key]:
            raise ValueError(f"{path}: {key} is missing, expected a number above 0.")
    step = DenseStep(
        **sizes,
        use_bias=json_field(values, "bias", bool, path) is not False,
        activation=ACTIVATIONS[act],
        residual=json_field(values, "use_residual", bool, path) is True,
    )
    shapes: Shapes = {"linear.weight": (step.out_features, step.in_features)}
    if step.use_bias:
        shapes["linear.bias"] = (step.out_features,)
    if step.has_residual_kernel:
        shapes["residual.weight"] = (step.out_features, step.in_features)
    found = _read_module_weights(module.folder, shapes)
    # [out, in] -> [in, out]
    weights = {"kernel": np.ascontiguousarray(found["linear.weight"].T)}
    if step.has_residual_kernel:
        weights["residual/kernel"] = np.ascontiguousarray(found["residual.weight"].T)
    if step.use_bias:
        weights["bias"] = found["linear.bias"]
    return step, weights


def _read_norm(module: Module) -> tuple[NormStep, Weights]:
    """Returns a LayerNorm and its weights."""
    size = json_field(read_json(module.file), "dimension", int, module.file, least=1)
    if size is None:
        raise ValueError(f"{module.file}: dimension is missing, expected a number above 0.")
    found = _read_module_weights(module.folder, {"norm.weight": (size,), "norm.bias": (size,)})
    return NormStep(size), {"gamma": found["norm.weight"], "beta": found["norm.bias"]}


def _read_module_weights(folder: pathlib.Path, shapes: Shapes) -> Weights:
    """Returns the weights of a module, which must be those of `shapes`, float32."""
    files = [folder / name for name in ("model.safetensors", "pytorch_model.bin")]
    file = next(filter(pathlib.Path.is_file, files), None)
    if file is None:
        raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")
    weights = read_weight_file(file)
    for name, shape in shapes.items():
        if name not in weights or weights[name].shape != shape:
            found = list(weights[name].shape) if name in weights else "missing"
            raise ValueError(f"{file}: {name} is {found}, expected {list(shape)}.")
    if unknown := sorted(set(weights) - set(shapes)):
        raise ValueError(f"{file} has {unknown[:5]}, expected {list(shapes)} alone.")
    return {name: np.ascontiguousarray(weights[name], np.float32) for name in shapes}


def read_prompts(values: dict[str, Any], path: pathlib.Path) -> tuple[dict[str, str], str | None]:
    """Returns the prompts by name, and the name of the default one."""
    given = json_field(values, "prompts", dict, path, nullable=True) or {}
    prompts = {str(name): text for name, text in given.items() if text is not None}
    for name, text in prompts.items():
        if not isinstance(text, str):
            raise ValueError(f"{path}: prompts has {text!r} for {name}, expected a text.")
    default = json_field(values, "default_prompt_name", str, path, nullable=True)
    if default is not None and default not in prompts:
        raise ValueError(
            f"{path}: default_prompt_name is {default!r}, but prompts has {list(prompts)}."
        )
    return prompts, default


def read_layer_settings(
    path: pathlib.Path,
    modules: Sequence[Module],
    width: int,
    values: dict[str, Any],
    vector: str = EMBEDDING,
    similarities: Sequence[str] = SIMILARITIES,
) -> tuple[dict[str, Any], Weights]:
    """Reads the modules after the one that makes a vector of this width.

    Args:
      width: size of the vector.
      values: the content of config_sentence_transformers.json.
      vector: see `read_layers`.
      similarities: the known ones; the first one is the default.

    Returns:
      The fields of `EmbeddingConfig` that they and `values` determine, and the layers' weights.
    """
    config_path = path / CONFIG
    dense, weights = read_layers(modules, width, HEAD, vector=vector)
    # The last norm to length 1 is a field: an export can leave it out.
    normalize = bool(dense) and isinstance(dense[-1], NormStep) and dense[-1].norm == "l2"
    prompts, default_prompt = read_prompts(values, config_path)
    similarity = json_field(
        values,
        "similarity_fn_name",
        str,
        config_path,
        nullable=True,
        choices=similarities,
        default=similarities[0],
    )
    fields = {
        "dense": tuple(dense[:-1] if normalize else dense),
        "normalize": normalize,
        "prompts": prompts,
        "default_prompt": default_prompt,
        "similarity": similarity,
    }
    return fields, weights


def with_embedding(
    checkpoint: Checkpoint, embedding: EmbeddingConfig, weights: Weights, source: str
) -> Checkpoint:
    """Returns the checkpoint of an encoder with the layers of its embeddings."""
    embedding.check(checkpoint.config.hidden_size, source)
    # The length of an embedder is in its own settings.
    settings = {key: text for key, text in checkpoint.settings.items() if key != "max_seq_length"}
    weights = {**checkpoint.weights, **weights}
    return dataclasses.replace(checkpoint, embedding=embedding, weights=weights, settings=settings)
