"""Scores a text word by word with a masked language model, and rewrites unlikely words.

    python -m bert_tf.score_text --output_dir=runs/mine --text='He have a dog.'
    python -m bert_tf.score_text --output_dir=runs/mine --rewrite_rounds=5 --text='He have a dog.'

It prints a line per text with its pseudo-log-likelihood in nats, in total and per word, and then a
line per word; `<-` marks words less likely than --unlikely, with a more likely token. Unknown words
are left out of the sums.
"""

import math
import typing

from absl import flags

from bert_tf.config import DataConfig, TrainingConfig, config_flags
from bert_tf.system.printable import escaped, show

if typing.TYPE_CHECKING:
    from bert_tf.pretraining.masked_words.scores import Word

config_flags.define_flags(
    TrainingConfig, only=("output_dir", "init_checkpoint", "bert_config_file", "allow_unexpected")
)
config_flags.define_flags(DataConfig, only=("vocab_file",))
TEXT = flags.DEFINE_multi_string("text", [], "A text; may be given several times.")
UNLIKELY = flags.DEFINE_float(
    "unlikely", 0.001, "Words with a lower probability are marked.", 0.0, 1.0
)
REWRITE_ROUNDS = flags.DEFINE_integer(
    "rewrite_rounds",
    0,
    "Maximum number of rounds that replace the least likely words; 0: no rounds.",
    lower_bound=0,
)


def main(_: list[str]) -> None:
    training = config_flags.from_flags(TrainingConfig)
    path = training.init_checkpoint or training.output_dir
    if not path or not TEXT.value:
        raise ValueError("Give the --output_dir of a run, or an --init_checkpoint, and a --text.")

    from bert_tf.pretraining.masked_words import gap_filling
    from bert_tf.pretraining.masked_words import scores as text_scores

    model = gap_filling.MaskedModel.read(
        path,
        training.bert_config_file,
        config_flags.from_flags(DataConfig).vocab_file,
        training.allow_unexpected,
    )
    limit = math.log(UNLIKELY.value) if UNLIKELY.value else -math.inf
    for text in TEXT.value:
        words = text_scores.score_words(model, text)
        show(summary(words, text))
        for word in words:
            if not word.is_known:
                show(f"     unknown  {escaped(word.text)}")
                continue
            mark = f"  <- {escaped(word.alternative)}" if word.log_probability < limit else ""
            show(f"    {word.log_probability:8.3f}  {escaped(word.text)}{mark}")
        for version in text_scores.rewrite(model, text, REWRITE_ROUNDS.value):
            show(summary(text_scores.score_words(model, version), version))


def summary(words: list["Word"], text: str) -> str:
    """Returns the line of a text: its score, the score per word, and the number of unknown words.

    Raises:
      ValueError: if no word is known.
    """
    from bert_tf.pretraining.masked_words.scores import pseudo_log_likelihood

    known = sum(word.is_known for word in words)
    if not known:
        raise ValueError(f"The vocabulary knows no word of {text!r}; give another text.")
    total = pseudo_log_likelihood(words)
    left_out = f"  ({len(words) - known} unknown left out)" if known < len(words) else ""
    return f"{total:.3f}  {total / known:.3f} per word  {escaped(text)}{left_out}"


if __name__ == "__main__":
    config_flags.run(main, written=())
