"""Converts a BERT between the forms of bert_tf, google-research/bert, Hugging Face and keras-hub.

    python -m bert_tf.convert_checkpoint --input=uncased_L-12_H-768_A-12.zip --to=huggingface \\
        --output=bert-base-uncased

All heads come along that the other side has. The report says what was loaded, what the other side
has no place for, and how far outputs of the two differ on a fixed batch.
"""

import dataclasses
import pathlib
import typing
from typing import Any

from absl import flags, logging

from bert_tf import config_flags
from bert_tf.config import DataConfig, ModelConfig, TrainingConfig

if typing.TYPE_CHECKING:
    import numpy as np

    from bert_tf.checkpoints.checkpoint import Checkpoint

config_flags.define_flags(
    ModelConfig,
    DataConfig,
    TrainingConfig,
    only=(
        "max_position_embeddings",
        "vocab_file",
        "added_words_file",
        "bert_config_file",
        "may_ignore",
    ),
)
FORMS = ("bert_tf", "google", "huggingface", "keras_hub")
INPUT = flags.DEFINE_string("input", "", "Model to read, in any form; it is told by looking.")
OUTPUT = flags.DEFINE_string("output", "", "Folder to write; it must not exist.")
TO = flags.DEFINE_enum("to", "bert_tf", FORMS, "Form to write.")


def main(_: list[str]) -> None:
    if not INPUT.value or not OUTPUT.value:
        raise ValueError("Give the model as --input and a new folder as --output.")

    from bert_tf.checkpoints.adapt import adapt
    from bert_tf.checkpoints.formats import left_out, read_checkpoint, write_checkpoint
    from bert_tf.checkpoints.start import starts_of_names

    data = config_flags.from_flags(DataConfig)
    training = config_flags.from_flags(TrainingConfig)
    source = read_checkpoint(INPUT.value, training.bert_config_file)
    source.check(starts_of_names(training.may_ignore))
    positions = config_flags.given(ModelConfig).get("max_position_embeddings", 0)
    checkpoint = adapt(source, positions, data.vocab_file, data.added_words_file)
    logging.set_verbosity(logging.WARNING)  # The report says what is left out of each model.
    print(describe(checkpoint))
    for head in left_out(checkpoint, TO.value):
        print(f"left out: {head}: {TO.value} has no such head")
    written = write_checkpoint(checkpoint, OUTPUT.value, TO.value)
    print(f"read back: {len(written.weights)} weights, the same to the bit")
    print(compare_outputs(checkpoint, written, TO.value))
    names = sorted(path.name for path in pathlib.Path(OUTPUT.value).iterdir())
    print(f"wrote {OUTPUT.value}: {', '.join(names)}")


def describe(checkpoint: "Checkpoint") -> str:
    """Returns what was read: form, size, heads, tokenizer, notes, unused names."""
    config, weights = checkpoint.config, checkpoint.weights
    count = sum(value.size for value in weights.values())
    casing = "uncased" if config.do_lower_case else "cased"
    size = f"{len(checkpoint.vocab)} pieces, {casing}" if checkpoint.vocab else "none"
    lines = [
        f"read {checkpoint.source} ({checkpoint.form})",
        f"loaded: {len(weights)} weights, {count:,} parameters",
        f"shape: {config.num_hidden_layers} layers x {config.hidden_size}, "
        f"{config.num_attention_heads} heads, {config.hidden_act}, epsilon "
        f"{config.layer_norm_eps:g}",
        f"heads: {', '.join(checkpoint.heads) or 'none'}",
        f"vocabulary: {size}",
        f"missing: none; mismatched: none; unused: {', '.join(checkpoint.unused) or 'none'}",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in checkpoint.notes)])


def compare_outputs(before: "Checkpoint", after: "Checkpoint", form: str) -> str:
    """Returns the largest difference of each output on a fixed batch.

    The written model is computed as the programs of its form do, which is not always how it was.
    """
    import numpy as np

    from bert_tf.checkpoints.formats import as_computed, head_as_computed

    config = as_computed(after.config, form)
    head = head_as_computed(after.config, form)
    ours = outputs_of(before, before.config, before.config)
    theirs = outputs_of(after, config, head)
    lines = ["largest difference of outputs on a fixed batch, before and after:"]
    for name in sorted(set(ours) & set(theirs)):
        difference = float(np.abs(ours[name] - theirs[name]).max())
        lines.append(f"  {name:24} {difference:.2e}")
    made = f"this model was made with {after.config.hidden_act}, {after.config.layer_norm_eps:g}"
    for part, computed in (("", config), ("'s MLM head", head)):
        has_part = not part or "masked_lm" in after.heads
        if has_part and computed != after.config:
            lines.append(
                f"note: {form}{part} computes {computed.hidden_act} and epsilon "
                f"{computed.layer_norm_eps:g}; {made}"
            )
    if "pooler" not in before.heads and form == "keras_hub":
        lines.append("note: keras-hub always has a pooler; this model has none, it is zero there")
    return "\n".join(lines)


def outputs_of(
    checkpoint: "Checkpoint", config: ModelConfig, head_config: ModelConfig
) -> "dict[str, np.ndarray]":
    """Runs every model class that the checkpoint has the head of on a fixed batch.

    Args:
      checkpoint: the weights.
      config: how the encoder is computed.
      head_config: how the MLM head is computed.

    Returns:
      By name of the output: float32 arrays; the encoder's are there in any case.
    """
    import numpy as np

    from bert_tf.modeling import models
    from bert_tf.modeling.encoder import BertEncoder

    batch = fixed_batch(config)
    checkpoint = dataclasses.replace(checkpoint, config=config)
    encoder = BertEncoder.from_checkpoint(checkpoint)
    encoded = encoder(batch)
    outputs = {
        name: encoded[name] for name in ("sequence_output", "pooled_output") if name in encoded
    }
    if {"masked_lm", "next_sentence"} & set(checkpoint.heads):
        with_head = dataclasses.replace(checkpoint, config=head_config)
        model = models.BertPretrainer.from_checkpoint(with_head, may_miss=["cls/predictions/"])
        if "masked_lm" in checkpoint.heads:
            outputs["masked_lm_logits"] = model.predictions(
                encoded["sequence_output"],
                batch["masked_lm_positions"],
                encoder.embeddings.word_embeddings,
            )
        if "next_sentence" in checkpoint.heads:
            outputs["next_sentence_logits"] = model.seq_relationship(encoded["pooled_output"])
    classes: dict[str, Any] = {
        "classifier": models.BertClassifier,
        "tagger": models.BertTokenClassifier,
        "squad": models.BertSpanLabeler,
    }
    for head, model_class in classes.items():
        if head in checkpoint.heads:
            result = model_class.from_checkpoint(checkpoint)(batch)
            outputs |= result if isinstance(result, dict) else {f"{head}_logits": result}
    return {name: np.asarray(value) for name, value in outputs.items()}


def fixed_batch(config: ModelConfig) -> "dict[str, np.ndarray]":
    """Returns two rows of ids that spread over the vocabulary, the second padded by a half."""
    import numpy as np

    length = min(16, config.max_position_embeddings)
    ids = np.arange(2 * length).reshape(2, length) * 7919 % config.vocab_size
    mask = np.ones((2, length), np.int32)
    mask[1, (length + 1) // 2 :] = 0
    types = np.arange(length) * config.type_vocab_size // length
    positions = np.tile(np.arange(min(2, length)), (2, 1))
    return {
        "input_word_ids": (ids * mask).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": (types * mask).astype(np.int32),
        "masked_lm_positions": positions.astype(np.int32),
    }


if __name__ == "__main__":
    config_flags.run(main)
