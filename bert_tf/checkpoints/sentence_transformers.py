"""sentence-transformers folders: an encoder and the modules that make one embedding per text.

    modules.json                        the modules in order, each with a type and a path
    config.json  model.safetensors ..   the Transformer, a Hugging Face folder (or in 0_Transformer)
    sentence_bert_config.json           max_seq_length, do_lower_case
    config_sentence_transformers.json   prompts, similarity
    1_Pooling/config.json               pooling, as one name or as switches
    2_Dense/config.json, model.safetensors    sizes, activation; linear.weight [out, in]
    2_Normalize/                        nothing, or an empty configuration

Releases from 5.7 on have new type names and also read the old ones; we write the old ones, which
all releases read. The weights of pre-training heads are left out. Reference: sentence-transformers
6.2.0, base/modules and sentence_transformer/modules.
"""

import dataclasses
import itertools
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

from bert_tf.bounded_files import parse_json, read_bytes
from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint, Weights
from bert_tf.checkpoints.embedding import HEAD, SIMILARITIES, DenseStep, EmbeddingConfig
from bert_tf.checkpoints.families.family import expect
from bert_tf.checkpoints.huggingface import read_huggingface, write_huggingface
from bert_tf.checkpoints.tokenizer_files import model_max_length
from bert_tf.checkpoints.weight_files import read_weight_file
from bert_tf.files import json_field, read_json, read_optional_json, write_json

MODULES = "modules.json"
CONFIG = "config_sentence_transformers.json"
SIZES = "sentence_bert_config.json"
# Early releases use the family's name instead of bert's.
FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TYPES = ("Transformer", "Pooling", "Dense", "Normalize")
# Models of the same library that embed nothing here: their encoder and heads are read alone.
OTHER_MODELS = ("CrossEncoder", "SparseEncoder")
SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu_exact",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}
KEPT_HEADS = ("pooler", "embedding")


def sizes_file(transformer: pathlib.Path) -> pathlib.Path:
    """Returns the file with max_seq_length in a Transformer's folder, under the name it has."""
    paths = [transformer / f"sentence_{family}_config.json" for family in FAMILIES]
    return next(filter(pathlib.Path.is_file, paths), transformer / SIZES)


def is_sentence_transformers(path: pathlib.Path) -> bool:
    """True for a folder with a modules.json."""
    return (path / MODULES).is_file()


def read_sentence_transformers(path: pathlib.Path) -> Checkpoint:
    """Reads a folder.

    Raises:
      ValueError: if it has modules that are not computed here, or its files contradict each other.
    """
    modules = _modules(path)
    transformer = _inside(path, modules[0][1])
    # Embeddings equal sentence-transformers' only if special tokens written in a text do too.
    checkpoint = read_huggingface(transformer, as_transformers=True)
    checkpoint = dataclasses.replace(checkpoint, source=str(path))
    config_path = path / CONFIG
    values = read_optional_json(config_path)
    if values.get("model_type") in OTHER_MODELS:
        return checkpoint
    types = [kind for kind, _ in modules]
    steps = types[2:]
    if (
        types[:2] != ["Transformer", "Pooling"]
        or not set(steps) <= {"Dense", "Normalize"}
        or "Normalize" in steps[:-1]
    ):
        raise ValueError(
            f"{path / MODULES} lists {types}; expected Transformer, Pooling, any number of Dense "
            f"and optionally Normalize, in this order."
        )
    folder = _inside(path, modules[1][1])
    pooling, include_prompt = _read_pooling(folder, checkpoint.config.hidden_size)
    dense: list[DenseStep] = []
    weights: Weights = {}
    for kind, name in modules[2:]:
        if kind == "Dense":
            step, found = _read_dense(_inside(path, name), len(dense))
            dense.append(step)
            weights |= found
    sizes_path = sizes_file(transformer)
    sizes = read_optional_json(sizes_path)
    prompts, default_prompt = _read_prompts(values, config_path)
    similarity = json_field(values, "similarity_fn_name", str, config_path, nullable=True)
    if similarity is None:
        similarity = "cosine"
    if similarity not in SIMILARITIES:
        raise ValueError(
            f"{config_path}: similarity_fn_name is {similarity!r}, expected one of "
            f"{list(SIMILARITIES)}."
        )
    embedding = EmbeddingConfig(
        pooling=pooling,
        dense=tuple(dense),
        normalize="Normalize" in steps,
        max_seq_length=_max_seq_length(
            transformer, sizes, sizes_path, checkpoint.config.longest_row
        ),
        prompts=prompts,
        default_prompt=default_prompt,
        include_prompt=include_prompt,
        similarity=similarity,
        lower_case_texts=json_field(sizes, "do_lower_case", bool, sizes_path, nullable=True)
        or False,
    )
    embedding.check(checkpoint.config.hidden_size, str(path))
    return dataclasses.replace(
        checkpoint, embedding=embedding, weights={**checkpoint.weights, **weights}
    )


def _read_prompts(values: dict[str, Any], path: pathlib.Path) -> tuple[dict[str, str], str | None]:
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


def splade_length(path: pathlib.Path, longest_row: int) -> int:
    """Returns the maximum text length of a SparseEncoder's folder, or 0 for another folder.

    Raises:
      ValueError: if it turns scores into weights in another way than `splade_model.py`.
    """
    modules = _modules(path) if is_sentence_transformers(path) else []
    pooling = [name for kind, name in modules if kind == "SpladePooling"]
    if not pooling:
        return 0
    file = _inside(path, pooling[0]) / "config.json"
    values = read_optional_json(file)
    for key, expected in (("pooling_strategy", "max"), ("activation_function", "relu")):
        if (found := values.get(key, expected)) != expected:
            raise ValueError(
                f"{file}: {key} is {found!r}, expected {expected!r}, the only one that bert_tf "
                "supports."
            )
    transformer = _inside(path, modules[0][1])
    sizes_path = sizes_file(transformer)
    sizes = read_optional_json(sizes_path)
    return _max_seq_length(transformer, sizes, sizes_path, longest_row)


def _modules(path: pathlib.Path) -> list[tuple[str, str]]:
    """Returns (type without its package, path) of the modules in order.

    Raises:
      ValueError: if modules.json has another form, or does not begin with a Transformer.
    """
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
    if not modules or modules[0][0].rpartition(".")[2] not in ("Transformer", "MLMTransformer"):
        raise ValueError(f"{file} must begin with a Transformer, but begins with {modules[:1]}.")
    # Types of other packages are code in the folder, which is never run.
    if foreign := [kind for kind, _ in modules if not kind.startswith("sentence_transformers.")]:
        raise ValueError(
            f"{file} names {foreign[0]}, code that is not sentence-transformers' own; expected "
            f"{', '.join(TYPES)}."
        )
    return [(kind.rpartition(".")[2], name) for kind, name in modules]


def _inside(path: pathlib.Path, name: str) -> pathlib.Path:
    folder = path / name
    # A path in the file must not lead out of the model's folder.
    if ".." in pathlib.PurePath(name).parts or pathlib.PurePath(name).is_absolute():
        raise ValueError(f"{path / MODULES}: the path {name!r} lies outside the folder.")
    return folder


def _read_pooling(folder: pathlib.Path, hidden_size: int) -> tuple[tuple[str, ...], bool]:
    """Returns the poolings in order, and whether a prompt counts."""
    path = folder / "config.json"
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
    try:
        EmbeddingConfig(pooling=tuple(names))
    except ValueError as error:
        raise ValueError(f"{path}: pooling_mode: {error}") from None
    return tuple(names), json_field(values, "include_prompt", bool, path) is not False


def _read_dense(folder: pathlib.Path, index: int) -> tuple[DenseStep, Weights]:
    path = folder / "config.json"
    values = read_json(path)
    act = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(act, str) or act not in ACTIVATIONS:
        raise ValueError(
            f"{path}: activation_function is {act!r}, expected one of {[*ACTIVATIONS]}."
        )
    for key, expected in (
        ("module_input_name", "sentence_embedding"),
        ("module_output_name", "sentence_embedding"),
        ("use_residual", False),
    ):
        expect(values, path, nullable=key == "module_output_name", **{key: expected})
    sizes = {key: json_field(values, key, int, path) for key in ("in_features", "out_features")}
    for key, size in sizes.items():
        if size is None or size < 1:
            shown = "missing" if size is None else size
            raise ValueError(f"{path}: {key} is {shown}, expected a number above 0.")
    step = DenseStep(
        **sizes,
        use_bias=json_field(values, "bias", bool, path) is not False,
        activation=ACTIVATIONS[act],
    )
    file = next(
        (folder / name for name in ("model.safetensors", "pytorch_model.bin")
         if (folder / name).is_file()),
        None,
    )  # fmt: skip
    if file is None:
        raise ValueError(f"{folder} has neither model.safetensors nor pytorch_model.bin.")
    file_weights = read_weight_file(file)
    weights = {}
    for name, key, shape in (
        ("linear.weight", "kernel", (step.out_features, step.in_features)),
        ("linear.bias", "bias", (step.out_features,)),
    ):
        if key == "bias" and not step.use_bias:
            continue
        if name not in file_weights or file_weights[name].shape != shape:
            found = list(file_weights[name].shape) if name in file_weights else "missing"
            raise ValueError(f"{file}: {name} is {found}, expected {list(shape)}.")
        # [out, in] -> [in, out]; the transpose of a bias is the bias.
        weights[f"{HEAD}dense_{index}/{key}"] = np.ascontiguousarray(
            file_weights[name].T, np.float32
        )
    return step, weights


def _max_seq_length(
    folder: pathlib.Path, sizes: dict[str, Any], path: pathlib.Path, longest_row: int
) -> int:
    """Returns the maximum length of texts: stated, else the tokenizer's, else the model's."""
    length = json_field(sizes, "max_seq_length", int, path, nullable=True)
    if length is not None and length < 1:
        raise ValueError(f"{path}: max_seq_length is {length}, expected at least 1.")
    if length is None:
        length = model_max_length(folder)
    if length is None:
        return longest_row
    return min(length, longest_row)


def write_sentence_transformers(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Writes a model as a sentence-transformers folder, with the types and keys of old releases.

    Raises:
      ValueError: if the model does not say how it embeds, or no family of Hugging Face can hold it.
    """
    embedding = checkpoint.embedding
    if embedding is None:
        raise ValueError(
            f"{checkpoint.source} does not say how it embeds texts: sentence_transformers cannot "
            "hold it. Write it as huggingface, or save a BertEmbedder."
        )
    pooling = _pooling_values(embedding, checkpoint.config.hidden_size)
    # Such a folder cannot hold the heads of pre-training and of other tasks.
    starts = tuple(start for head, start in HEADS.items() if head not in KEPT_HEADS)
    encoder = {
        name: value
        for name, value in checkpoint.weights.items()
        if not name.startswith((*starts, HEAD))
    }
    write_huggingface(
        dataclasses.replace(checkpoint, weights=encoder, labels=(), embedding=None), folder
    )
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules += [("Dense", f"{2 + index}_Dense") for index in range(len(embedding.dense))]
    if embedding.normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    for _, path in modules[1:]:
        (folder / path).mkdir()
    listed = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (kind, path) in enumerate(modules)
    ]
    sizes = {
        "max_seq_length": embedding.max_seq_length,
        "do_lower_case": embedding.lower_case_texts,
    }
    config = {
        "model_type": "SentenceTransformer",
        "prompts": embedding.prompts,
        "default_prompt_name": embedding.default_prompt,
        "similarity_fn_name": embedding.similarity,
    }
    write_json(folder / MODULES, listed)
    write_json(folder / SIZES, sizes)
    write_json(folder / CONFIG, config)
    write_json(folder / "1_Pooling" / "config.json", pooling)
    for index, step in enumerate(embedding.dense):
        _write_dense(folder / f"{2 + index}_Dense", index, step, checkpoint.weights)


def _pooling_values(embedding: EmbeddingConfig, size: int) -> dict[str, Any]:
    """Returns the config.json of Pooling.

    Raises:
      ValueError: if its switches cannot express the order of the poolings.
    """
    # The vectors are concatenated in the order of the switches.
    if tuple(name for name in SWITCHES.values() if name in embedding.pooling) != embedding.pooling:
        raise ValueError(
            f"pooling {list(embedding.pooling)}: sentence-transformers' switches know only the "
            f"order {list(SWITCHES.values())}."
        )
    switches = {key: name in embedding.pooling for key, name in SWITCHES.items()}
    return {
        "word_embedding_dimension": size,
        **switches,
        "include_prompt": embedding.include_prompt,
    }


def _write_dense(folder: pathlib.Path, index: int, step: DenseStep, weights: Weights) -> None:
    """Writes a Dense module; `index` counts those of the model."""
    names = {name: path for path, name in ACTIVATIONS.items()}
    config = {
        "in_features": step.in_features,
        "out_features": step.out_features,
        "bias": step.use_bias,
        "activation_function": names[step.activation],
    }
    write_json(folder / "config.json", config)
    start = f"{HEAD}dense_{index}/"
    file_weights = {"linear.weight": np.ascontiguousarray(weights[f"{start}kernel"].T)}
    if step.use_bias:
        file_weights["linear.bias"] = weights[f"{start}bias"]
    safetensors.numpy.save_file(
        file_weights, folder / "model.safetensors", metadata={"format": "pt"}
    )
