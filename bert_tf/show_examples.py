"""Prints pre-training examples as readable text, each predicted token with its answer.

    python -m bert_tf.show_examples --input_file=examples.tfrecord --vocab_file=vocab.txt

    Example 0: 12 tokens, 3 predicted; B follows A
      A: the mill stood on the slow [MASK](river)
      B: its wheel(kept) turned play(random, was with) the water

`[MASK](river)` is a masked token with its original; `(kept)` and `(random, was ...)` mark predicted
tokens that were not masked. Records without masks are masked as in the first epoch of training with
the same flags.
"""

import sys

import numpy as np
from absl import flags

from bert_tf.config import DataConfig, MaskingConfig, config_flags
from bert_tf.corpus.tfrecords import RecordFiles, list_record_files
from bert_tf.system.printable import escaped
from bert_tf.text.tokenization import AnyVocab, read_vocab
from bert_tf.text.vocab import CONTINUATION_PREFIX

config_flags.define_flags(DataConfig, only=("input_file", "vocab_file", "random_seed"))
config_flags.define_flags(MaskingConfig, without=("masked_lm_prob_end",))
NUM_EXAMPLES = flags.DEFINE_integer("num_examples", 5, "Examples to print.", lower_bound=1)

RED = "\033[31m"
GREEN = "\033[32m"
YELLOW = "\033[33m"
PLAIN = "\033[0m"


def main(_: list[str]) -> None:
    data = config_flags.from_flags(DataConfig)
    for name in ("input_file", "vocab_file"):
        if not getattr(data, name):
            raise ValueError(f"--{name} is empty; give the records and their vocabulary.")
    records = RecordFiles(list_record_files(data.input_file))
    vocab = read_vocab(data.vocab_file)
    masking = config_flags.from_flags(MaskingConfig)

    from bert_tf.corpus.pipeline import first_examples

    examples = first_examples(records, data.random_seed, masking, vocab, NUM_EXAMPLES.value)
    for number, example in enumerate(examples):
        # `show` would escape the colours; the tokens are escaped individually.
        print(f"Example {number}: {format_example(example, vocab, sys.stdout.isatty())}\n")


def format_example(example: dict[str, np.ndarray], vocab: AnyVocab, use_colour: bool) -> str:
    """Returns one example as text of two or three lines.

    Args:
      example: the features of a PretrainingBatch without the batch axis.
      vocab: the vocabulary of the example.
      use_colour: whether masked tokens are red, kept ones green, random ones yellow.
    """
    length = int(example["input_mask"].sum())
    is_real = example["masked_lm_weights"] > 0
    positions = example["masked_lm_positions"][is_real].tolist()
    answers = dict(zip(positions, example["masked_lm_ids"][is_real].tolist(), strict=True))
    segments = {"A": "", "B": ""}
    names = vocab.token_texts()
    for position, word_id in enumerate(example["input_word_ids"][:length].tolist()):
        original = answers.get(position, word_id)
        if original in (vocab.cls_id, vocab.sep_id):
            continue
        token = escaped(names[word_id].strip())
        # By the original token, because the replacement may come from elsewhere in a word.
        is_continuation = vocab.is_continuation[original]
        if position in answers:
            answer = escaped(names[original].strip())
            token = _mark(token, answer, word_id == vocab.mask_id, use_colour)
        elif is_continuation:
            token = token.removeprefix(CONTINUATION_PREFIX)
        segments["AB"[example["input_type_ids"][position]]] += (
            token if is_continuation else f" {token}"
        )
    title = f"{length} tokens, {len(answers)} predicted"
    if segments["B"]:
        relation = ("B follows A", "B is random")
        title += f"; {relation[example['next_sentence_labels']]}"
    lines = [f"  {name}: {text.strip()}" for name, text in segments.items() if text]
    return "\n".join([title, *lines])


def _mark(token: str, original: str, is_mask: bool, use_colour: bool) -> str:
    """Returns a predicted token with its answer in brackets."""
    if is_mask:
        colour = RED
        marked = f"{token}({original})"
    elif token == original:
        colour = GREEN
        marked = f"{token}(kept)"
    else:
        colour = YELLOW
        marked = f"{token}(random, was {original})"
    return f"{colour}{marked}{PLAIN}" if use_colour else marked


if __name__ == "__main__":
    config_flags.run(main)
