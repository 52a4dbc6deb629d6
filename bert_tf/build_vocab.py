"""Trains a WordPiece, byte-level BPE or SentencePiece Unigram vocabulary on raw text.

    python -m bert_tf.build_vocab --input_file='wiki/*.jsonl.xz' --vocab_file=vocab.txt
    python -m bert_tf.build_vocab --input_file='wiki/*.jsonl.xz' --tokenizer=byte_bpe \\
        --vocab_file=tokenizer.json
    python -m bert_tf.build_vocab --input_file='wiki/*.jsonl.xz' --tokenizer=unigram \\
        --vocab_file=tokenizer.json

Without --input_file the built-in corpus is used. See `text/vocab_training.py`,
`text/bpe_training.py` and `text/unigram_training.py` for the methods.
"""

import os
import pathlib
import tempfile

from absl import logging

from bert_tf.config import DataConfig, ModelConfig, config_flags
from bert_tf.config.given_flags import check_new_file
from bert_tf.corpus import builtin_corpus, corpus
from bert_tf.corpus.preparation import train_vocabulary
from bert_tf.text.kinds import VOCABULARY_FILES
from bert_tf.text.vocab import WORDPIECE

DATA_FLAGS = ("input_file", "input_format", "text_field", "vocab_file", "num_workers")
MODEL_FLAGS = ("vocab_size", "tokenizer", "do_lower_case")


def main(_: list[str]) -> None:
    data = config_flags.from_flags(DataConfig)
    model = config_flags.from_flags(ModelConfig)
    if not data.vocab_file:
        raise ValueError("--vocab_file is empty; expected the name of the vocabulary to write.")
    check_new_file("vocab_file")  # Models may have been trained with an existing one.
    target = pathlib.Path(data.vocab_file).expanduser()
    is_json = model.tokenizer != WORDPIECE
    if is_json:
        refuse_flags_of_wordpiece(model.tokenizer)
    if (target.suffix == ".json") != is_json:  # `read_vocab` distinguishes the kinds in this way.
        raise ValueError(
            f"--vocab_file {data.vocab_file} with --tokenizer={model.tokenizer} could not be read "
            "again: the names of wordpiece vocabularies do not end in .json, all others do; "
            f"name it {VOCABULARY_FILES[is_json]}, or change --tokenizer."
        )
    with tempfile.TemporaryDirectory() as folder:
        input_file = data.input_file
        input_format = data.input_format
        if not input_file:
            logging.info("No --input_file: the vocabulary is trained on the built-in corpus.")
            path = pathlib.Path(folder, "embedded.txt")
            input_file = os.fspath(builtin_corpus.gather_builtin_corpus(path))
            input_format = "lines"
        parts = corpus.list_parts(input_file, input_format, data.text_field)
        vocab = train_vocabulary(
            parts, model.vocab_size, model.tokenizer, model.do_lower_case, data.num_workers
        )
    vocab.write(target)
    logging.info("Wrote %d rows to %s.", len(vocab), target)


def refuse_flags_of_wordpiece(tokenizer: str) -> None:
    """Raises ValueError for a given flag that another kind of vocabulary does not use."""
    given = config_flags.given(DataConfig) | config_flags.given(ModelConfig)
    # A false do_lower_case is accepted, because flagfiles contain it.
    wrong = [name for name in ("do_lower_case", "num_workers") if given.get(name)]
    if wrong:
        raise ValueError(
            f"--{wrong[0]}={str(given[wrong[0]]).lower()} has no effect with "
            f"--tokenizer={tokenizer}, which keeps the case and is trained in one process; leave "
            "it out."
        )


if __name__ == "__main__":
    config_flags.define_flags(DataConfig, only=DATA_FLAGS)
    config_flags.define_flags(ModelConfig, only=MODEL_FLAGS)
    config_flags.run(main, written=("vocab_file",))
