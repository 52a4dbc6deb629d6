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

from absl import flags

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
    print(describe(checkpoint))
    for head in left_out(checkpoint, TO.value):
        print(f"left out: {head}: {TO.value} has no such head")
    write_checkpoint(checkpoint, OUTPUT.value, TO.value)
    written = read_checkpoint(OUTPUT.value)
    written.check()
    print(compare_weights(checkpoint, written))
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


def compare_weights(before: "Checkpoint", after: "Checkpoint") -> str:
    """Returns how many weights were read back.

    Raises:
      ValueError: if one of them has not the same bits.
    """
    import numpy as np

    kept = [name for name in before.weights if name in after.weights]
    changed = [n for n in kept if not np.array_equal(before.weights[n], after.weights[n])]
    if changed:
        raise ValueError(f"{after.source}: read back with other values: {changed}.")
    return f"read back: {len(kept)} weights, the same to the bit"


def compare_outputs(before: "Checkpoint", after: "Checkpoint", form: str) -> str:
    """Returns the largest difference of each output on a fixed batch.

    The written model is computed as the programs of its form do, which is not always how it was.
    """
    import numpy as np

    from bert_tf.checkpoints.formats import as_computed

    other = dataclasses.replace(after, config=as_computed(after.config, form))
    ours, theirs = outputs_of(before), outputs_of(other)
    lines = ["largest difference of outputs on a fixed batch, before and after:"]
    for name in theirs:
        difference = float(np.abs(ours[name] - theirs[name]).max())
        lines.append(f"  {name:24} {difference:.2e}")
    if other.config != after.config:
        lines.append(
            f"note: {form} computes {other.config.hidden_act} and epsilon "
            f"{other.config.layer_norm_eps:g}; this model was made with {after.config.hidden_act} "
            f"and {after.config.layer_norm_eps:g}"
        )
    if form == "keras_hub" and "masked_lm" in after.heads:
        lines.append("note: keras-hub's MLM head computes exact GELU and epsilon 1e-5 instead")
    return "\n".join(lines)


def outputs_of(checkpoint: "Checkpoint") -> "dict[str, np.ndarray]":
    """Runs every model class that the checkpoint has the head of on a fixed batch.

    Returns:
      By name of the output: float32 arrays; the encoder's are there in any case.
    """
    import numpy as np

    from bert_tf.modeling import models
    from bert_tf.modeling.encoder import BertEncoder

    classes: dict[str, Any] = {
        "masked_lm": models.BertPretrainer,
        "classifier": models.BertClassifier,
        "tagger": models.BertTokenClassifier,
        "squad": models.BertSpanLabeler,
    }
    batch = fixed_batch(checkpoint.config)
    outputs: dict[str, Any] = {}
    encoder = None
    for head in set(classes) & set(checkpoint.heads):
        model = classes[head].from_checkpoint(checkpoint)
        result = model(batch)
        outputs |= result if isinstance(result, dict) else {f"{head}_logits": result}
        encoder = model.bert
    encoded = (encoder or BertEncoder.from_checkpoint(checkpoint))(batch)
    for name in ("sequence_output", "pooled_output"):
        if name in encoded:
            outputs[name] = encoded[name]
    return {name: np.asarray(value) for name, value in sorted(outputs.items())}


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
