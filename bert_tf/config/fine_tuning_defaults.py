"""Default settings of fine-tuning that depend on the model and the data.

`fit` of the models and the programs call these functions for settings that the user did not give:

- The learning rate depends on the width of the encoder: narrow models need a larger one.
- The number of epochs depends on the number of examples: the new head and the encoder need some
  hundred steps, so a small set needs more passes. Many classes need more steps than two.
- The length of a sequence depends on the longest text, up to the limit of the model.

The constants were chosen by the table of default settings in `docs/measurements/fine_tuning.md`;
the reasons are in `docs/decisions/0018-defaults-follow-the-data.md`.
"""

import math

BASE_WIDTH = 768
BASE_RATE = 5e-5  # for an encoder as wide as BERT-Base
RATE_POWER = 2.0
MAX_RATE = 5e-4
# Epochs for two classes are EPOCH_FACTOR / sqrt(number of examples), within these limits.
EPOCH_FACTOR = 400
MIN_EPOCHS = 3
MAX_EPOCHS = 30
# By default, texts up to the first length are never cut. Memory for attention grows with the square
# of the length, so beyond the second length the user has to give --max_seq_length.
LEAST_LENGTH = 128
MOST_LENGTH = 512
SPAN_LENGTH = 384  # for windows of question answering, as in google-research/bert
LENGTH_STEP = 8
BATCH_SIZE = 32  # the default of Keras and of run_classifier
LEAST_BATCH_SIZE = 8


def default_learning_rate(hidden_size: int) -> float:
    """Returns the peak learning rate of AdamW with batches of 32, to two digits."""
    rate = BASE_RATE * (BASE_WIDTH / hidden_size) ** RATE_POWER
    return float(f"{min(rate, MAX_RATE):.1e}")


def default_epochs(num_examples: int, num_classes: int = 2) -> int:
    """Returns the number of passes over the examples.

    Args:
      num_classes: number of classes, 2 or less without classes; 200 classes take twice the epochs.
    """
    for_classes = 1 + math.log10(max(2, num_classes) / 2) / 2
    epochs = math.ceil(for_classes * EPOCH_FACTOR / math.sqrt(max(1, num_examples)))
    return min(max(epochs, MIN_EPOCHS), MAX_EPOCHS)


def default_batch_size(longest: int) -> int:
    """Returns the batch size of `fit`, which is smaller for long texts to save memory.

    The programs always use batches of 32, and split them if memory requires it.
    """
    size = BATCH_SIZE
    while size > LEAST_BATCH_SIZE and size * longest > BATCH_SIZE * LEAST_LENGTH:
        size //= 2
    return size


def default_length(longest: int, most: int, least: int = LEAST_LENGTH) -> int:
    """Returns the length of a sequence for texts with at most `longest` tokens.

    Args:
      longest: tokens of the longest text, special tokens included.
      most: the limit of the model, or of the default for models that read more.
      least: the smallest length to return, unless `most` is smaller.
    """
    rounded = math.ceil(longest / LENGTH_STEP) * LENGTH_STEP
    return min(max(rounded, least), most)
