"""What our models compute on the inputs of a golden file, under that file's names.

The files are described in the README of the fixtures: Hugging Face transformers' own outputs.
"""

import json
import pathlib
import re
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.families import FAMILIES
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.weight_names import to_file_names
from bert_tf.config import DISENTANGLED_POSITIONS
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.electra import ElectraDiscriminator
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier

MODELS = {
    "masked_lm": BertPretrainer,
    "discriminator": ElectraDiscriminator,
    "classifier": BertClassifier,
    "tagger": BertTokenClassifier,
    "squad": BertSpanLabeler,
}
IGNORED = -100


def encoder_inputs(golden: dict, start: str = "in_") -> dict[str, np.ndarray]:
    ids = golden[f"{start}input_ids"]
    return {
        "input_word_ids": ids,
        "input_mask": golden[f"{start}attention_mask"],
        "input_type_ids": golden.get(f"{start}token_type_ids", np.zeros_like(ids)),
        "masked_lm_positions": np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1)),
    }


def cross_entropy(logits: tf.Tensor, labels: np.ndarray) -> tf.Tensor:
    """Returns the mean over the labels that are not ignored."""
    kept = labels != IGNORED
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(np.where(kept, labels, 0), logits)
    return tf.reduce_sum(tf.where(kept, losses, 0.0)) / float(kept.sum())


def padding_of_deberta(model: BertSpanLabeler, inputs: dict[str, np.ndarray]) -> tf.Tensor:
    """Returns the scores of padding in transformers' DeBERTa, [B, 2], which its loss counts.

    The embeddings of padding are 0 there, and its context is the mean of all values of the row.
    """
    real = inputs["input_mask"][..., None].astype(np.float32)  # [B, T, 1]
    length = real.shape[1]
    num_padding = length - real.sum(axis=1)  # [B, 1]
    states = model.bert(inputs)["encoder_outputs"]
    padding = tf.zeros_like(states[0][:, 0])  # [B, D]
    for layer, state in zip(model.bert.encoder_layers, states, strict=False):
        value = layer.self_attention.value
        total = tf.reduce_sum(value(state) * real, axis=1) + num_padding * value(padding)
        padding = layer.after_attention(padding, total / length, None)
        padding = layer.transform(padding, None)
    return model._score(padding, None)


def span_logits(model, inputs: dict, outputs: dict) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the logits of starts and ends, where padding has those of transformers."""
    start, end = outputs["start_logits"], outputs["end_logits"]
    if model.config.position_type in DISENTANGLED_POSITIONS:
        padding = padding_of_deberta(model, inputs)
        is_real = inputs["input_mask"] == 1
        start = tf.where(is_real, start, padding[:, :1])
        end = tf.where(is_real, end, padding[:, 1:])
    return start, end


def family_outputs(folder: pathlib.Path, golden: dict) -> tuple[dict[str, Any], Any]:
    """Returns outputs, loss and gradients by the names of the golden file, and the model."""
    checkpoint = read_checkpoint(folder)
    checkpoint.check()
    purpose = next((head for head in reversed(MODELS) if head in checkpoint.heads), "encoder")
    model = {**MODELS, "encoder": BertEncoder}[purpose].from_checkpoint(checkpoint)
    inputs = encoder_inputs(golden)
    encoder = getattr(model, "bert", model)
    encoded = encoder(inputs)
    received = {
        "out_hidden_states": np.stack([np.asarray(x) for x in encoded["encoder_outputs"]]),
        "out_last_hidden_state": np.asarray(encoded["sequence_output"]),
    }
    if "pooled_output" in encoded:
        received["out_pooler_output"] = np.asarray(encoded["pooled_output"])
    if purpose == "encoder":
        return received, model
    variables = checkpoint_variables(model)
    with tf.GradientTape() as tape:
        outputs = model(inputs)
        if purpose == "squad":
            start, end = span_logits(model, inputs, outputs)
            received |= {"out_start_logits": start, "out_end_logits": end}
            loss = cross_entropy(start, golden["in_start_positions"])
            loss = (loss + cross_entropy(end, golden["in_end_positions"])) / 2
        elif purpose == "discriminator":
            logits = received["out_logits"] = outputs["replaced_logits"]
            labels, is_real = golden["in_labels"], golden["in_attention_mask"].astype("float32")
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels.astype("float32"), logits)
            loss = tf.reduce_sum(losses * is_real) / is_real.sum()
        else:
            logits = outputs["masked_lm_logits"] if purpose == "masked_lm" else outputs
            received["out_logits"] = received["out_prediction_logits"] = logits
            loss = cross_entropy(logits, golden["in_labels"])
            if "in_sentence_order_label" in golden:
                received["out_sop_logits"] = outputs["next_sentence_logits"]
                order = golden["in_sentence_order_label"]
                loss += cross_entropy(outputs["next_sentence_logits"], order)
    found = tape.gradient(loss, {name: variable.value for name, variable in variables.items()})
    gradients = {k: tf.convert_to_tensor(v).numpy() for k, v in found.items() if v is not None}
    config = json.loads((folder / "config.json").read_text())
    family = FAMILIES[config["model_type"]]
    if family.variant is not None:
        family = family.variant(config, ())
    rows = family.rows(model.config.num_hidden_layers, purpose)
    named = to_file_names(rows, gradients, model.config.num_attention_heads)
    received |= {f"grad_{name}": value for name, value in named.items()}
    received["out_loss"] = loss
    return {name: np.asarray(value) for name, value in received.items()}, model


def differences(received: dict, golden: dict, pad_id: int) -> dict[str, float]:
    """Returns the largest difference by name, as part of the largest expected value."""
    real = golden["in_attention_mask"].astype(bool)
    result = {}
    for name, expected in golden.items():
        if not name.startswith(("out_", "grad_")) or "left_padded" in name or "_long_" in name:
            continue
        if name == "out_loss_valid_positions_only":  # No output of ours.
            continue
        value = received[name]
        is_table = re.search(r"(word|position|tok)_embeddings.weight$", name)
        if is_table and name.startswith("grad_") and not expected[pad_id].any():
            # PyTorch's tables have no gradient in the row of padding, whose scores count here.
            value = np.where(np.arange(len(value))[:, None] == pad_id, 0, value)
        assert value.shape == expected.shape, name
        if "out_start" not in name and "out_end" not in name and name.startswith("out_"):
            where = 1 if name == "out_hidden_states" else 0
            if expected.shape[where : where + 2] == real.shape:
                rest = [1] * (expected.ndim - where - real.ndim)
                value = value * real.reshape(*[1] * where, *real.shape, *rest)
        result[name] = float(np.abs(value - expected).max() / np.abs(expected).max())
    return result
