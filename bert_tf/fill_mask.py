"""Fills in masked words: type a sentence with [MASK], see the likeliest pieces.

    python -m bert_tf.fill_mask --output_dir=runs/quickstart --text='The [MASK] returns a list.'
    python -m bert_tf.fill_mask --init_checkpoint=uncased_L-12_H-768_A-12.zip

The model is a run of ours, or a checkpoint in any form that `run_pretraining` takes. Without
--text, sentences are read from the terminal, one a line.
"""

import sys
from collections.abc import Iterable

from absl import flags

from bert_tf import config_flags
from bert_tf.config import DataConfig, TrainingConfig

config_flags.define_flags(
    TrainingConfig, only=("output_dir", "init_checkpoint", "bert_config_file", "may_ignore")
)
config_flags.define_flags(DataConfig, only=("vocab_file",))
TEXT = flags.DEFINE_multi_string("text", [], "A sentence with [MASK]; may be given several times.")
TOP_K = flags.DEFINE_integer("top_k", 5, "Predictions shown for each mask.", lower_bound=1)


def main(_: list[str]) -> None:
    training = config_flags.from_flags(TrainingConfig)
    path = training.init_checkpoint or training.output_dir
    if not path:
        raise ValueError("Give the --output_dir of a run, or a model as --init_checkpoint.")

    from bert_tf.tasks import mask_filling

    model, tokenizer = mask_filling.read_model(
        path,
        training.bert_config_file,
        config_flags.from_flags(DataConfig).vocab_file,
        training.may_ignore,
    )
    for text in TEXT.value or _typed():
        try:
            masks = mask_filling.fill_mask(model, tokenizer, text, TOP_K.value)
        except ValueError as error:
            if TEXT.value:
                raise
            print(error)
            continue
        print(text)
        for candidates in masks:
            print("   ", "  ".join(f"{c.piece} {c.probability:.3f}" for c in candidates))


def _typed() -> Iterable[str]:
    if sys.stdin.isatty():
        print("Type a sentence with [MASK]; an empty line ends.")
    for line in sys.stdin:
        if not line.strip():
            return
        yield line.strip()


if __name__ == "__main__":
    config_flags.run(main)
