"""Fills in masked words: type a sentence with [MASK], see the likeliest pieces.

    python -m bert_tf.fill_mask --output_dir=runs/quickstart --text='The [MASK] returns a list.'
    python -m bert_tf.fill_mask --init_checkpoint=uncased_L-12_H-768_A-12.zip

The model is a run of ours, or a checkpoint in any form that `run_pretraining` takes. Without
--text, sentences are read from the terminal, one a line.
"""

import sys
import typing
from collections.abc import Iterable
from typing import NamedTuple

from absl import flags

from bert_tf import config_flags
from bert_tf.config import DataConfig, TrainingConfig

if typing.TYPE_CHECKING:
    from bert_tf.modeling.models import BertPretrainer
    from bert_tf.text.tokenizer import BertTokenizer
    from bert_tf.text.vocab import Vocab

config_flags.define_flags(
    TrainingConfig, only=("output_dir", "init_checkpoint", "bert_config_file", "may_ignore")
)
config_flags.define_flags(DataConfig, only=("vocab_file",))
TEXT = flags.DEFINE_multi_string("text", [], "A sentence with [MASK]; may be given several times.")
TOP_K = flags.DEFINE_integer("top_k", 5, "Predictions shown for each mask.", lower_bound=1)


class Candidate(NamedTuple):
    """A piece and its probability."""

    piece: str
    probability: float


def main(_: list[str]) -> None:
    training = config_flags.from_flags(TrainingConfig)
    path = training.init_checkpoint or training.output_dir
    if not path:
        raise ValueError("Give the --output_dir of a run, or a model as --init_checkpoint.")

    from bert_tf.checkpoints.start import read_start, starts_of_names
    from bert_tf.modeling.models import BertPretrainer
    from bert_tf.text.tokenizer import BertTokenizer

    checkpoint = read_start(
        path,
        given={},
        heads=["masked_lm"],
        config_file=training.bert_config_file,
        vocab_file=config_flags.from_flags(DataConfig).vocab_file,
        may_ignore=starts_of_names(training.may_ignore),
    )
    vocab = typing.cast("Vocab", checkpoint.vocab)
    model = BertPretrainer.from_checkpoint(checkpoint)
    tokenizer = BertTokenizer(vocab, checkpoint.config.do_lower_case)
    for text in TEXT.value or _typed():
        try:
            masks = fill_mask(model, tokenizer, vocab, text, TOP_K.value)
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


def fill_mask(
    model: "BertPretrainer", tokenizer: "BertTokenizer", vocab: "Vocab", text: str, top_k: int = 5
) -> list[list[Candidate]]:
    """Returns the likeliest pieces for each [MASK] of the text, best first.

    Args:
      model: with the MLM head.
      tokenizer: as the model was trained with.
      vocab: the tokenizer's.
      text: holds `[MASK]` at least once.
      top_k: pieces a mask.

    Raises:
      ValueError: if the text holds no [MASK] or is longer than the model's positions.
    """
    import numpy as np
    import tensorflow as tf

    # [MASK] is no word of the text: the parts around it are tokenized, it is put in between.
    parts = text.split("[MASK]")
    pieces = tokenizer.tokenize(tf.constant(parts)).merge_dims(1, 2).to_list()
    ids = [vocab.cls_id, *pieces[0]]
    for part in pieces[1:]:
        ids += [vocab.mask_id, *part]
    ids += [vocab.sep_id]
    positions = [index for index, piece in enumerate(ids) if piece == vocab.mask_id]
    longest = model.config.max_position_embeddings
    if not positions:
        raise ValueError(f"No [MASK] in {text!r}; write [MASK] where a word is to be filled in.")
    if len(ids) > longest:
        raise ValueError(f"The text has {len(ids)} pieces, more than the model's {longest}.")
    batch = {
        "input_word_ids": np.array([ids], np.int32),
        "input_mask": np.ones([1, len(ids)], np.int32),
        "input_type_ids": np.zeros([1, len(ids)], np.int32),
        "masked_lm_positions": np.array([positions], np.int32),
    }
    logits = model(batch, training=False)["masked_lm_logits"][0]  # [P, V]
    top = tf.math.top_k(tf.nn.softmax(logits), k=min(top_k, len(vocab)))
    return [
        [Candidate(vocab.tokens[i], float(p)) for i, p in zip(row_ids, row_values, strict=True)]
        for row_ids, row_values in zip(top.indices.numpy(), top.values.numpy(), strict=True)
    ]


if __name__ == "__main__":
    config_flags.run(main)
