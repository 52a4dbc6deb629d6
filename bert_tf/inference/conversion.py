"""Converts a model to another format, and reports the result and differences of outputs."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints import formats
from bert_tf.checkpoints.adapt import adapt, state_casing
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.electra_networks import refuse_discriminator
from bert_tf.checkpoints.families import find_family
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.checkpoints.start import merge, starts_of_names
from bert_tf.checkpoints.trim_vocabulary import count_parameters, trim_vocabulary
from bert_tf.config import ModelConfig
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.heads import gather_positions
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.system.printable import escaped, show
from bert_tf.tasks.base.examples.tables import read_every_text
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier


def convert(
    path: str,
    output: str,
    form: str,
    *,
    config_file: str,
    tower: str,
    allow_unexpected: str,
    positions: int,
    vocab_file: str,
    added_words_file: str,
    do_lower_case: bool | None = None,
    complete: Callable[[pathlib.Path, Checkpoint], None] | None = None,
    text_files: Sequence[str] = (),
    base_model: str = "",
) -> Checkpoint:
    """Reads a model, adapts it, writes it as `form` into the folder `output`, and prints a report.

    The folder appears when all files are written and compared; for `complete` see
    `write_checkpoint`.

    `tower` selects ELECTRA's generator or discriminator; "": both if the form stores both in one
    file, otherwise the discriminator. `do_lower_case` is the casing of a model whose files do not
    state it; None: determined from the vocabulary. With `text_files` the vocabulary keeps only the
    tokens that their texts need, and the words of `added_words_file`. The other arguments are those
    of `read_checkpoint` and `adapt`.

    Returns:
      The checkpoint that was written.

    Raises:
      ValueError: if it cannot be read, or cannot be written in that format.
    """
    output = str(pathlib.Path(output).expanduser())  # Shells do not expand ~ in --output=~/x.
    network = tower or ("both" if form == "google" else "")
    source = formats.read_checkpoint(path, config_file, network, base_model)
    check_tower(source, tower)
    source.check(starts_of_names(allow_unexpected))

    def adapted(part: Checkpoint) -> Checkpoint:
        # Added words come after trimming, which would otherwise remove them.
        part = adapt(with_casing(part, do_lower_case), vocab_file=vocab_file)
        if text_files:
            part = trim_vocabulary(part, lambda: read_every_text(text_files))
        return adapt(part, positions, added_words_file=added_words_file)

    checkpoint = adapted(source)
    if source.generator:
        source.generator.check(starts_of_names(allow_unexpected))
        checkpoint = dataclasses.replace(checkpoint, generator=adapted(source.generator))
    logging.set_verbosity(logging.WARNING)  # The report contains the notes about each model.
    show(describe(checkpoint))
    if checkpoint.generator:
        show(describe(checkpoint.generator))
    for head in formats.left_out(checkpoint, form):
        is_second = (form, head) == ("keras_hub", "masked_lm") and "classifier" in checkpoint.heads
        where = " in addition to a classifier" if is_second else ""
        show(f"left out: {head}: {form} has no such head{where}")

    def compare(inner: pathlib.Path, written: Checkpoint) -> None:
        show(f"read back: {len(written.weights)} weights, bit-identical")
        show(compare_outputs(checkpoint, written, form))
        if complete:
            complete(inner, written)

    written = formats.write_checkpoint(checkpoint, output, form, compare)
    names = sorted(path.name for path in pathlib.Path(output).iterdir())
    show(f"wrote {escaped(output)}: {escaped(', '.join(names))}")
    return written


def with_casing(source: Checkpoint, do_lower_case: bool | None) -> Checkpoint:
    """Returns a checkpoint with the casing that the user gave, if any.

    Raises:
      ValueError: if the files state the other casing, or the vocabulary contradicts it.
    """
    if do_lower_case is None:
        return source
    is_free = source.stated_casing is None
    merge(source.config, {"do_lower_case": do_lower_case}, source.source, is_free)
    return state_casing(source, do_lower_case)


def check_tower(source: Checkpoint, tower: str) -> None:
    """Raises ValueError if a checkpoint is not the requested generator or discriminator."""
    if tower == "generator":
        refuse_discriminator(source)
    is_other = tower == "discriminator" and "masked_lm" in source.heads
    if tower and (source.family != ELECTRA.title or is_other):
        raise ValueError(
            f"--tower={tower}: {source.source} is not the {tower} of an ELECTRA; its heads are "
            f"{', '.join(source.heads) or 'none'}. Leave --tower out, or give a run, which has "
            "both."
        )


def describe(checkpoint: Checkpoint) -> str:
    """Describes a checkpoint: format, size, heads, tokenizer, notes, unused names."""
    config = checkpoint.config
    weights = checkpoint.weights
    family = find_family(config)
    count = count_parameters(checkpoint)
    kind = "uncased" if config.do_lower_case else "cased"
    if checkpoint.vocab is not None and not checkpoint.vocab.has_casing:
        kind = checkpoint.vocab.title
    unused = escaped(", ".join(checkpoint.unused)) or "none"
    size = f"{len(checkpoint.vocab)} tokens, {kind}" if checkpoint.vocab else "none"
    lines = [
        f"read {escaped(checkpoint.source)} ({checkpoint.form})",
        f"loaded: {len(weights)} weights, {count:,} parameters",
        f"shape: {config.num_hidden_layers} layers x {config.hidden_size}, "
        f"{config.num_attention_heads} heads, {config.hidden_act}, epsilon "
        f"{config.layer_norm_eps:g}",
        f"family: {family.title if family else 'none that Hugging Face has'}",
        f"heads: {', '.join(checkpoint.heads) or 'none'}",
        f"vocabulary: {size}",
        f"missing: none; mismatched: none; unused: {unused}",
    ]
    return "\n".join([*lines, *(f"note: {escaped(note)}" for note in checkpoint.notes)])


def compare_outputs(before: Checkpoint, after: Checkpoint, form: str) -> str:
    """Describes the largest difference of each output on a fixed batch.

    The written model is computed as the programs of its format do, which may differ from before.
    """
    config = formats.as_computed(after.config, form, after.family)
    head = formats.head_as_computed(after.config, form, after.family)
    outputs_before = outputs_of(before, before.config, before.config)
    outputs_after = outputs_of(after, config, head)
    lines = ["largest difference of outputs on a fixed batch, before and after:"]
    for name in sorted(set(outputs_before) & set(outputs_after)):
        difference = float(np.abs(outputs_before[name] - outputs_after[name]).max())
        lines.append(f"  {name:24} {difference:.2e}")
    training = (
        f"this model was trained with {after.config.hidden_act}, {after.config.layer_norm_eps:g}"
    )
    for part, computed in (("", config), ("'s MLM head", head)):
        has_part = not part or "masked_lm" in after.heads
        if has_part and computed != after.config:
            lines.append(
                f"note: {form}{part} computes {computed.hidden_act} and epsilon "
                f"{computed.layer_norm_eps:g}; {training}"
            )
    if "pooler" not in before.heads and form == "keras_hub":
        lines.append(
            "note: keras-hub requires a pooler; this model has no pooler, so zeros were written"
        )
    return "\n".join(lines)


def outputs_of(
    checkpoint: Checkpoint, config: ModelConfig, head_config: ModelConfig
) -> dict[str, np.ndarray]:
    """Runs a model class for each head of the checkpoint on a fixed batch.

    Args:
      config: configuration that the encoder is computed with.
      head_config: configuration that the MLM head is computed with.

    Returns:
      float32 arrays by the name of the output, always including the encoder's outputs.
    """
    batch = fixed_batch(config)
    checkpoint = dataclasses.replace(checkpoint, config=config, problem_type="")  # Of scores alone.
    encoder = BertEncoder.from_checkpoint(checkpoint)
    encoded = encoder(batch)
    outputs = {
        name: encoded[name] for name in ("sequence_output", "pooled_output") if name in encoded
    }
    if {"masked_lm", "next_sentence"} & set(checkpoint.heads):
        with_head = dataclasses.replace(checkpoint, config=head_config)
        # Only the heads of this model are used, on the vectors of the encoder above.
        model = BertPretrainer.from_checkpoint(with_head, allow_missing=["cls/predictions/"])
        if "masked_lm" in checkpoint.heads:
            predicted = gather_positions(encoded["sequence_output"], batch["masked_lm_positions"])
            table = encoder.embeddings.word_embeddings
            outputs["masked_lm_logits"] = model.predictions(predicted, table)
        if "next_sentence" in checkpoint.heads:
            outputs["next_sentence_logits"] = model.seq_relationship(encoded["pooled_output"])
    classes: dict[str, Any] = {
        "classifier": BertClassifier,
        "tagger": BertTokenClassifier,
        "squad": BertSpanLabeler,
        "joint_squad": BertJointSpanLabeler,
    }
    for head, model_class in classes.items():
        if head in checkpoint.heads:
            result = model_class.from_checkpoint(checkpoint)(batch)
            outputs |= result if isinstance(result, dict) else {f"{head}_logits": result}
    return {name: np.asarray(value) for name, value in outputs.items()}


def fixed_batch(config: ModelConfig) -> dict[str, np.ndarray]:
    """Returns two sequences of ids spread over the vocabulary; half of the second is padding."""
    length = min(16, config.max_position_embeddings, config.longest_row)
    # Multiples of a prime spread the ids over the vocabulary.
    ids = np.arange(2 * length).reshape(2, length) * 7919 % config.vocab_size
    mask = np.ones((2, length), np.int32)
    mask[1, (length + 1) // 2 :] = 0
    # Parts of equal length have the types 0, 1, ..
    types = np.arange(length) * config.type_vocab_size // length
    positions = np.tile(np.arange(min(2, length)), (2, 1))
    return {
        "input_word_ids": np.where(mask, ids, config.pad_token_id).astype(np.int32),
        "input_mask": mask,
        "input_type_ids": (types * mask).astype(np.int32),
        "masked_lm_positions": positions.astype(np.int32),
    }
