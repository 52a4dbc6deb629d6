"""Converts a model between the formats of bert_tf, google-research/bert, Hugging Face,
sentence-transformers and keras-hub.

    python -m bert_tf.convert_checkpoint --input=uncased_L-12_H-768_A-12.zip --to=huggingface \\
        --output=bert-base-uncased

All heads that the other format supports are converted. The report lists the loaded weights, the
parts that the other format does not support, and the differences of outputs on a fixed batch. A
LoRA adapter of PEFT is merged into its base.
Hugging Face's files come with a model card, README.md, with the scores of the converted run.

--trim_vocab makes a model smaller: it keeps only the tokens that your texts need, and the answers
for these texts stay the same.
"""

import pathlib
import typing

from absl import flags

from bert_tf.config import DataConfig, ModelConfig, TrainingConfig, config_flags
from bert_tf.system.files import new_folder_path
from bert_tf.system.printable import show
from bert_tf.tasks.base.examples.tables import list_tables

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

config_flags.define_flags(
    ModelConfig,
    DataConfig,
    TrainingConfig,
    only=(
        "max_position_embeddings",
        "do_lower_case",
        "vocab_file",
        "added_words_file",
        "bert_config_file",
        "allow_unexpected",
    ),
)
FORMS = ("bert_tf", "google", "huggingface", "sentence_transformers", "model2vec", "keras_hub")
INPUT = flags.DEFINE_string("input", "", "Model to read, in any format, or its name on a hub.")
OUTPUT = flags.DEFINE_string("output", "", "Folder to write; it must not exist.")
TOWER = flags.DEFINE_enum(
    "tower",
    None,
    ("discriminator", "generator"),
    "Part of ELECTRA to convert; by default the discriminator, with --to=google both.",
)
BASE_MODEL = flags.DEFINE_string(
    "base_model",
    "",
    "Model that the LoRA adapter of --input is merged into; by default the one that "
    "adapter_config.json names.",
)
TO = flags.DEFINE_enum("to", "bert_tf", FORMS, "Format to write.")
COLBERT_FORM = flags.DEFINE_enum(
    "colbert_form",
    None,
    ("sentence_transformers", "pylate", "stanford"),
    "Library that a model of late interaction is written for, instead of --to.",
)
TRIM_VOCAB = flags.DEFINE_string(
    "trim_vocab",
    "",
    "Comma-separated files and globs of texts: keep only the tokens that these texts need.",
)


def main(_: list[str]) -> None:
    if not INPUT.value or not OUTPUT.value:
        raise ValueError("Give the model as --input and a new folder as --output.")
    new_folder_path(OUTPUT.value)  # Fail before TensorFlow is loaded, and a large model read.
    text_files = list_tables(TRIM_VOCAB.value, "--trim_vocab") if TRIM_VOCAB.value else []

    from bert_tf.inference.conversion import convert

    data = config_flags.from_flags(DataConfig)
    training = config_flags.from_flags(TrainingConfig)
    given = config_flags.given(ModelConfig)
    form = COLBERT_FORM.value or TO.value
    with_card = form == "huggingface" or COLBERT_FORM.value is not None

    def write_card(folder: pathlib.Path, written: "Checkpoint") -> None:
        from bert_tf.inference.model_card import write_model_card

        write_model_card(folder, written, INPUT.value)

    convert(
        INPUT.value,
        OUTPUT.value,
        form,
        config_file=training.bert_config_file,
        tower=TOWER.value or "",
        allow_unexpected=training.allow_unexpected,
        positions=given.get("max_position_embeddings", 0),
        vocab_file=data.vocab_file,
        added_words_file=data.added_words_file,
        do_lower_case=given.get("do_lower_case"),
        complete=write_card if with_card else None,
        text_files=text_files,
        base_model=BASE_MODEL.value,
    )
    if with_card:
        from bert_tf.checkpoints.hub import local_path
        from bert_tf.inference.model_card import CARD_NAME

        folder = local_path(OUTPUT.value)
        show(f"wrote {folder / CARD_NAME}: state the license there before you publish the model")


if __name__ == "__main__":
    config_flags.run(main)
