"""Checkpoints with both ELECTRA networks, of runs of bert_tf and of google-research/electra.

                   bert_tf                            google-research/electra
    both networks  bert/embeddings/                   electra/embeddings/
    discriminator  bert/encoder/, cls/discriminator/  electra/encoder/, discriminator_predictions/
    generator      generator/encoder/,                generator/encoder/,
                   generator/predictions/             generator_predictions/

In a run with gradient-disentangled sharing generator/embeddings/ are the generator's, and
bert/embeddings/ has the discriminator's LayerNorm and its differences from the generator's tables,
word_embeddings_difference and so on. A separate model has their sums.

A network whose width differs from the embeddings has a projection of them. In the original's
fine-tuned models the names of the heads start with task_specific/TASK/; for squad and squadv1:

    bert_tf   cls/joint_squad/{dense,qa_hidden,dense_1}    cls/answerable/{dense,dense_1}
    original  dense, qa_hidden, dense_1                    dense_2, dense_3

The head of chunk is a dense layer on each token, cls/tagger/. The other tasks have a dense layer on
the first token without a pooler, cls/classifier/. The original's weights are [D, labels].
"""

import re
from collections.abc import Iterable

import numpy as np

from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint, Weights, count_layers, with_prefix
from bert_tf.config import ModelConfig

NETWORKS = ("discriminator", "generator")
GENERATOR_CONFIG = "generator_config.json"
# Prefixes of names: of the original -> of bert_tf.
ORIGINAL = {
    "electra/": "bert/",
    "discriminator_predictions/": "cls/discriminator/",
    "generator_predictions/output_bias": "generator/predictions/output_bias",
    "generator_predictions/": "generator/predictions/transform/",
}
# The layers of the head for SQuAD: name of the original, in the order of creation -> of bert_tf.
JOINT_HEAD = {
    "dense": "cls/joint_squad/dense",
    "qa_hidden": "cls/joint_squad/qa_hidden",
    "dense_1": "cls/joint_squad/dense_1",
    "dense_2": "cls/answerable/dense",
    "dense_3": "cls/answerable/dense_1",
}
SQUAD_TASKS = ("task_specific/squad/", "task_specific/squadv1/")
# The task in the names of each head with labels; the task of a classifier is unknown.
LABEL_TASKS = {"tagger": "chunk", "classifier": "classifier"}
# Ending of the names of the discriminator's differences from the generator's tables.
DIFFERENCE = "_difference"
# Prefixes of the generator: in a file with both networks -> in a separate model.
ALONE = {"generator/predictions/": "cls/predictions/", "generator/": "bert/"}


def has_networks(names: Iterable[str]) -> bool:
    """Returns whether weights have the names of an ELECTRA."""
    return any(name.startswith(("electra/", "generator", "discriminator_pred")) for name in names)


def networks_in(names: Iterable[str]) -> tuple[str, ...]:
    """Returns which of `NETWORKS` have layers in a file."""
    names = tuple(names)
    starts = {
        "discriminator": ("electra/encoder/", "bert/encoder/"),
        "generator": ("generator/encoder/",),
    }
    present = []
    for network in NETWORKS:
        if any(name.startswith(starts[network]) for name in names):
            present.append(network)
    return tuple(present)


def one_network(values: Weights, electra_network: str, source: str) -> Weights:
    """Returns the weights of one network, under the names of a separate model.

    A file that has only the other network is an error.
    """
    values = _with_sums(values)
    starts = dict(ORIGINAL)
    joint = [task for task in SQUAD_TASKS if f"{task}qa_hidden/kernel" in values]
    if len(joint) == 1:  # The names of other heads stay unknown.
        for original, name in JOINT_HEAD.items():
            starts[f"{joint[0]}{original}/"] = f"{name}/"
    values = {_renamed(name, starts): value for name, value in _label_head(values).items()}
    is_generator = {name: name.startswith("generator/") for name in values}
    shared = with_prefix(values, "bert/embeddings/")
    if electra_network == "discriminator":
        selected = {name: v for name, v in values.items() if not is_generator[name]}
    else:
        selected = {
            _renamed(name, ALONE): value for name, value in values.items() if is_generator[name]
        }
    if not any("/encoder/" in name for name in selected):
        other = next(name for name in NETWORKS if name != electra_network)
        raise ValueError(
            f"{source} holds only ELECTRA's {other}, but its {electra_network} is needed; give the "
            f"checkpoint that has it."
        )
    return {**shared, **selected}


def _with_sums(values: Weights) -> Weights:
    """Returns the weights with the discriminator's tables instead of their differences."""
    weights = {}
    for name, value in values.items():
        if name.endswith(DIFFERENCE):
            name = name.removesuffix(DIFFERENCE)
            # The generator has the same names behind its prefix.
            value = value + values[name.replace("bert/", "generator/", 1)]
        weights[name] = value
    return weights


def _label_head(values: Weights) -> Weights:
    """Returns the weights with a task's single dense layer renamed to bert_tf's head."""
    names = [name for name in values if name.startswith("task_specific/")]
    found = re.match(r"task_specific/([^/]+)/dense/", names[0]) if names else None
    if not found or set(names) != {f"{found[0]}kernel", f"{found[0]}bias"}:
        return values
    head = HEADS["tagger" if found[1] == LABEL_TASKS["tagger"] else "classifier"]
    kernel, bias = (values[f"{found[0]}{part}"] for part in ("kernel", "bias"))
    rest = {name: value for name, value in values.items() if name not in names}
    kernel = np.ascontiguousarray(kernel.T)
    return {**rest, f"{head}output_weights": kernel, f"{head}output_bias": bias}


def refuse_discriminator(checkpoint: Checkpoint) -> None:
    """Raises ValueError if a masked LM is needed and a checkpoint is ELECTRA's discriminator."""
    if "discriminator" in checkpoint.heads and "masked_lm" not in checkpoint.heads:
        raise ValueError(
            f"{checkpoint.source} holds only ELECTRA's discriminator, but its generator is needed, "
            "which fills in masks; give the generator's folder, or a run, which holds both."
        )


def original_names(weights: Weights, electra_network: str) -> Weights:
    """Returns the weights under google-research/electra's names: the inverse of `one_network`.

    Heads that it does not have keep bert_tf's names, which that program ignores: Hugging Face's
    classifier with its pooler, and the independent head for questions.
    """
    for head, task in LABEL_TASKS.items():
        name = HEADS[head]
        original = f"task_specific/{task}/dense/"
        is_supported = head == "tagger" or not any(n.startswith(HEADS["pooler"]) for n in weights)
        if f"{name}output_weights" in weights and is_supported:
            weights = dict(weights)
            weights[f"{original}kernel"] = weights.pop(f"{name}output_weights").T
            weights[f"{original}bias"] = weights.pop(f"{name}output_bias")
    has_answerable = any(name.startswith("cls/answerable/") for name in weights)
    task = SQUAD_TASKS[0] if has_answerable else SQUAD_TASKS[1]
    starts = {f"{name}/": f"{task}{original}/" for original, name in JOINT_HEAD.items()}
    starts |= {name: original for original, name in ORIGINAL.items()}
    if electra_network == "generator":
        joint = {"bert/embeddings/": "bert/embeddings/"}  # Shared by both networks.
        joint |= {alone: name for name, alone in ALONE.items()}
        weights = {_renamed(name, joint): value for name, value in weights.items()}
    return {_renamed(name, starts): value for name, value in weights.items()}


def _renamed(name: str, starts: dict[str, str]) -> str:
    for start, replacement in starts.items():
        if name.startswith(start):
            return replacement + name.removeprefix(start)
    return name


def infer_config(weights: Weights, source: str) -> ModelConfig:
    """Makes the configuration of a network of google-research/electra, whose files have none.

    Its heads are 64 wide (configure_pretraining.py); a narrower generator has one head.
    """
    try:
        words = weights["bert/embeddings/word_embeddings"].shape
        positions = weights["bert/embeddings/position_embeddings"].shape
        types = weights["bert/embeddings/token_type_embeddings"].shape
        inner = weights["bert/encoder/layer_0/intermediate/dense/kernel"].shape
    except KeyError as error:
        raise ValueError(f"{source} lacks {error}, so it is not an ELECTRA.") from None
    width = inner[0]
    if width > 64 and width % 64:
        raise ValueError(
            f"{source} has no bert_config.json, and its width {width} is not a multiple of 64, the "
            "width of the original's heads; give a configuration as --bert_config_file."
        )
    return ModelConfig(
        vocab_size=words[0],
        embedding_size=0 if words[1] == width else words[1],
        hidden_size=width,
        num_hidden_layers=count_layers(weights),
        num_attention_heads=max(1, width // 64),
        intermediate_size=inner[1],
        max_position_embeddings=positions[0],
        type_vocab_size=types[0],
        hidden_act="gelu_exact",
        pooler_act="gelu_exact",
    )
