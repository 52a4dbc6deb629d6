"""Checkpoints of random shape with random weights, for tests."""

import json
import pathlib

import numpy as np
import safetensors.numpy

from bert_tf.checkpoints.checkpoint import LABEL_HEADS, Checkpoint, encoder_shapes, head_shapes
from bert_tf.config import ModelConfig
from bert_tf.text.vocab import SPECIAL_TOKENS, Vocab

PURPOSES = {
    "encoder": (),
    "encoder with pooler": ("pooler",),
    "masked_lm": ("masked_lm",),
    "pretrained": ("pooler", "masked_lm", "next_sentence"),
    "classifier": ("pooler", "classifier"),
    "tagger": ("tagger",),
    "squad": ("squad",),
}


def make_config(rng: np.random.Generator, **changes) -> ModelConfig:
    """Draws a small shape: odd numbers of heads, one to three types, any activation."""
    heads = int(rng.choice([1, 3, 4, 5]))
    values = {
        "vocab_size": int(rng.integers(60, 90)),
        "hidden_size": heads * int(rng.integers(2, 6)),
        "num_hidden_layers": int(rng.choice([1, 2, 3, 11])),
        "num_attention_heads": heads,
        "intermediate_size": int(rng.integers(3, 20)),
        "hidden_act": str(rng.choice(["gelu_tanh", "gelu_exact"])),
        "hidden_dropout_prob": float(rng.choice([0.0, 0.1])),
        "attention_probs_dropout_prob": float(rng.choice([0.0, 0.2])),
        "max_position_embeddings": int(rng.integers(8, 40)),
        "type_vocab_size": int(rng.integers(1, 4)),
        "initializer_range": 0.03,
        "layer_norm_eps": float(rng.choice([1e-12, 1e-5])),
        "do_lower_case": bool(rng.integers(2)),
    }
    return ModelConfig.from_dict({**values, **changes})


def make_vocab(size: int, do_lower_case: bool) -> Vocab:
    """Makes a vocabulary with some [unused] rows; a cased one has capitals."""
    words = ["##a", "##b", "the", "été" if not do_lower_case else "river", "中", "don", "'"]
    letters = [chr((97 if do_lower_case else 65) + i) for i in range(26)]
    tokens = [SPECIAL_TOKENS[0], "[unused0]", "[unused1]", *SPECIAL_TOKENS[1:], *letters, *words]
    tokens += [f"w{i}" for i in range(size - len(tokens))]
    return Vocab(tuple(tokens[:size]))


def make_weights(
    config: ModelConfig, heads: tuple[str, ...], rng: np.random.Generator, num_labels: int = 3
) -> dict[str, np.ndarray]:
    """Draws every weight, also biases and norms, so that a swapped one shows."""
    shapes = encoder_shapes(config)
    for head in heads:
        shapes |= head_shapes(config, head, num_labels)
    weights = {}
    for name, shape in shapes.items():
        value = rng.normal(0, 0.4, shape).astype(np.float32)
        weights[name] = value + 1 if name.endswith("gamma") else value
    return weights


def make_checkpoint(purpose: str, seed: int = 0, **changes) -> Checkpoint:
    """Makes a checkpoint; `changes` are fields of the configuration."""
    rng = np.random.default_rng(seed)
    config = make_config(rng, **changes)
    heads = PURPOSES[purpose]
    labels = ("no", "yes", "vielleicht ü") if set(heads) & set(LABEL_HEADS) else ()
    return Checkpoint(
        source="made",
        form="made",
        config=config,
        weights=make_weights(config, heads, rng),
        vocab=make_vocab(config.vocab_size, config.do_lower_case),
        labels=labels,
    )


def edit(path: pathlib.Path, **values) -> None:
    """Changes keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def rewrite(folder: pathlib.Path, change) -> None:
    """Replaces the weights of a Hugging Face folder by what `change` makes of them."""
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)


def assert_same(received: Checkpoint, expected: Checkpoint) -> None:
    """Everything is the same: names, bits, configuration, vocabulary, labels."""
    assert set(received.weights) == set(expected.weights)
    for name, value in expected.weights.items():
        assert received.weights[name].dtype == np.float32
        np.testing.assert_array_equal(received.weights[name], value, err_msg=name)
    assert received.config == expected.config
    assert received.vocab == expected.vocab
    assert received.labels == expected.labels
    assert not received.unused


def make_batch(config: ModelConfig, rng: np.random.Generator, rows: int = 3) -> dict:
    """Draws a batch with other padding in each row."""
    length = min(8, config.max_position_embeddings)
    lengths = rng.integers(1, length + 1, rows)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, (rows, length)) * mask
    types = rng.integers(0, config.type_vocab_size, (rows, length)) * mask
    positions = np.array([rng.permutation(length)[:2] for _ in range(rows)])
    return {
        "input_word_ids": ids.astype(np.int32),
        "input_mask": mask,
        "input_type_ids": types.astype(np.int32),
        "masked_lm_positions": np.sort(positions).astype(np.int32),
    }
