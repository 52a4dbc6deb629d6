"""Fills in masked words: shows the most likely tokens for each [MASK] in a sentence.

    python -m bert_tf.fill_mask --output_dir=runs/quickstart --text='The [MASK] returns a list.'
    python -m bert_tf.fill_mask --init_checkpoint=uncased_L-12_H-768_A-12.zip

Several masks together, or a gap of unknown length, are filled in as whole texts:

    python -m bert_tf.fill_mask --output_dir=runs/mine --num_fillings=3 --text='She [GAP:1-4] home.'
    python -m bert_tf.fill_mask --output_dir=runs/mine --rounds=10 --text='The [MASK] [MASK].'

The model is a run directory, or a checkpoint in any format that `run_pretraining` takes. Without
--text, sentences are read from the terminal, one per line.
"""

import typing

from absl import flags

from bert_tf.config import DataConfig, TrainingConfig, config_flags
from bert_tf.system.files import typed_lines
from bert_tf.system.printable import escaped, message, show

config_flags.define_flags(
    TrainingConfig, only=("output_dir", "init_checkpoint", "bert_config_file", "allow_unexpected")
)
config_flags.define_flags(DataConfig, only=("vocab_file",))
TEXT = flags.DEFINE_multi_string("text", [], "A sentence with [MASK]; may be given several times.")
TOP_K = flags.DEFINE_integer("top_k", 5, "Predictions shown for each mask.", lower_bound=1)
NUM_FILLINGS = flags.DEFINE_integer(
    "num_fillings",
    0,
    "Number of filled-in texts to show, the best first; 0: fill in each mask independently.",
    lower_bound=0,
)
ROUNDS = flags.DEFINE_integer(
    "rounds",
    0,
    "Rounds of mask-predict: fill in all masks, then the least certain again; 0: no rounds.",
    lower_bound=0,
)
TEMPERATURE = flags.DEFINE_float(
    "temperature",
    0.0,
    "Sampling temperature; 0: no sampling.",
    lower_bound=0.0,
)
TOP_P = flags.DEFINE_float(
    "top_p", 1.0, "Sample from the most likely tokens with this total probability.", 0.0, 1.0
)
SEED = flags.DEFINE_integer("seed", 0, "Seed of the sampling.", lower_bound=0)


def main(_: list[str]) -> None:
    training = config_flags.from_flags(TrainingConfig)
    path = training.init_checkpoint or training.output_dir
    if not path:
        raise ValueError("Give the --output_dir of a run, or a model as --init_checkpoint.")
    if ROUNDS.value and TEMPERATURE.value:
        raise ValueError("--rounds fills in without sampling; leave out --rounds or --temperature.")
    for flag in (TOP_P, SEED):
        if flag.present and not TEMPERATURE.value:
            raise ValueError(f"--{flag.name} has no effect without sampling; give --temperature.")
    if ROUNDS.value and NUM_FILLINGS.value > 1:
        raise ValueError("--rounds gives one text; leave out --rounds or --num_fillings.")
    has_gaps = bool(TEXT.value) and all("[GAP:" in text for text in TEXT.value)
    if TOP_K.present and not TEMPERATURE.value and (ROUNDS.value or NUM_FILLINGS.value or has_gaps):
        raise ValueError(
            "--top_k has no effect on whole texts without sampling; give --temperature, or "
            "--num_fillings for more of them."
        )

    from bert_tf.pretraining.masked_words import gap_filling

    masked = gap_filling.MaskedModel.read(
        path,
        training.bert_config_file,
        config_flags.from_flags(DataConfig).vocab_file,
        training.allow_unexpected,
    )
    sampling = None
    if TEMPERATURE.value:
        top_k = TOP_K.value if TOP_K.present else 0
        sampling = gap_filling.Sampling(TEMPERATURE.value, top_k, TOP_P.value, SEED.value)
    for text in TEXT.value or typed_lines("Type a sentence with [MASK]; an empty line ends."):
        is_whole = NUM_FILLINGS.value or ROUNDS.value or sampling or gap_filling.GAP.search(text)
        try:
            if is_whole:
                count = NUM_FILLINGS.value or 1
                found = gap_filling.fill_text(masked, text, count, ROUNDS.value, sampling)
                lines = [f"{one.share:.3f}  {one.mean:7.3f}  {one.text}" for one in found]
            else:
                (masks,) = masked.fill_mask([text], TOP_K.value)
                lines = list(map(line_of, masks))
        except ValueError as error:
            if TEXT.value:
                raise
            show(message(str(error)))
            continue
        show(escaped(text))
        for line in lines:
            show(f"    {escaped(line)}")


def line_of(answers: list[dict[str, typing.Any]]) -> str:
    """Returns the tokens of a mask with their probabilities as a line."""
    return "  ".join(f"{answer['piece']} {answer['score']:.3f}" for answer in answers)


if __name__ == "__main__":
    config_flags.run(main, written=())
