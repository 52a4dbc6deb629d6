"""Default settings of fine-tuning that follow the model and the data.

`fit` of the models and the programs call these functions for what the user did not set:

- The learning rate follows the width of the encoder: narrow models need longer steps.
- The number of epochs follows the number of examples: the new head and the encoder need some
  hundred steps, so a small set needs more passes. Many classes need more steps than two.
- The length of a sequence follows the longest text, up to what the model can read.

The constants were chosen by `benchmarks/default_settings.py`; its tables are in
`docs/fine_tuning.md`, the reasons in `docs/decisions/0018-defaults-follow-the-data.md`.
"""

import math

BASE_WIDTH = 768
BASE_RATE = 5e-5  # of an encoder as wide as BERT-Base
RATE_POWER = 2.0
MOST_RATE = 5e-4
# Epochs for two classes are EPOCH_FACTOR / sqrt(number of examples), within these limits.
EPOCH_FACTOR = 400
LEAST_EPOCHS = 3
MOST_EPOCHS = 30
# Texts up to the first length are never cut by default. Memory for attention grows with the square
# of the length, so beyond the second one the user has to ask for more.
LEAST_LENGTH = 128
MOST_LENGTH = 512
SPAN_LENGTH = 384  # of windows for question answering, as in google-research/bert
LENGTH_STEP = 8
BATCH_SIZE = 32  # Keras' own default, and run_classifier's.
LEAST_BATCH_SIZE = 8


def default_learning_rate(hidden_size: int) -> float:
    """Returns the peak learning rate of AdamW with batches of 32, to two digits.

    Args:
      hidden_size: width of the encoder.
    """
    rate = BASE_RATE * (BASE_WIDTH / hidden_size) ** RATE_POWER
    return float(f"{min(rate, MOST_RATE):.1e}")


def default_epochs(num_examples: int, num_classes: int = 2) -> int:
    """Returns the number of passes over the examples.

    Args:
      num_examples: to train on.
      num_classes: of texts; 2 or less where there are no classes: 200 take twice the epochs.
    """
    for_classes = 1 + math.log10(max(2, num_classes) / 2) / 2
    epochs = math.ceil(for_classes * EPOCH_FACTOR / math.sqrt(max(1, num_examples)))
    return min(max(epochs, LEAST_EPOCHS), MOST_EPOCHS)


def default_batch_size(longest: int) -> int:
    """Returns the examples of a training step in `fit`: fewer for long texts, to save memory.

    The programs keep batches of 32 and split them where memory requires it.

    Args:
      longest: tokens of the longest text.
    """
    size = BATCH_SIZE
    while size > LEAST_BATCH_SIZE and size * longest > BATCH_SIZE * LEAST_LENGTH:
        size //= 2
    return size


def most_default_length(num_positions: int, most: int = MOST_LENGTH) -> int:
    """Returns the length that texts are cut to by default.

    Args:
      num_positions: the longest sequence that the model can read.
      most: limit for models that can read more.
    """
    return min(num_positions, most)


def default_length(longest: int, most: int, least: int = LEAST_LENGTH) -> int:
    """Returns the length of a sequence for texts of which the longest has `longest` tokens.

    Args:
      longest: tokens of the longest text, special tokens included.
      most: see `most_default_length`.
      least: a shorter one is not returned, unless `most` is.
    """
    rounded = math.ceil(longest / LENGTH_STEP) * LENGTH_STEP
    return min(max(rounded, least), most)


def cut_texts_message(
    num_cut: int,
    num_texts: int,
    longest: int,
    length: int,
    num_positions: int,
    set_length: str,
    kept: str = "head",
    read_all: str = "",
) -> str:
    """Returns a warning of texts that were cut, with what to do about it.

    Args:
      num_cut: texts that lost tokens.
      num_texts: texts in all.
      longest: tokens of the longest text, special tokens included, before it was cut.
      length: what texts were cut to.
      num_positions: the longest sequence that the model can read.
      set_length: what sets another length, with {} in place of the number.
      kept: which part of a text is kept.
      read_all: what makes the model read all of a text; "": nothing does.
    """
    remedies = []
    if length < num_positions:
        remedies.append(set_length.format(min(longest, num_positions)))
    if read_all:
        remedies.append(f"{read_all} to read all of every text")
    remedy = ", or ".join(remedies) or "a model with more positions"
    return (
        f"{num_cut:,} of {num_texts:,} texts are longer than max_seq_length={length} tokens, the "
        f"longest has {longest:,}: only their {kept} is kept. Give {remedy}."
    )
