"""Finds out what a place is, a corpus, prepared data or a run, and has it looked at."""

import pathlib

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.diagnosis.corpus import count_corpus, list_readable
from bert_tf.diagnosis.corpus_findings import diagnose_corpus
from bert_tf.diagnosis.findings import Diagnosis
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece


def diagnose(
    paths: str, data: DataConfig, masking: MaskingConfig, do_lower_case: bool
) -> list[Diagnosis]:
    """Looks at each of some places.

    Args:
      paths: comma-separated.
      data: `vocab_file`, and how text is read.
      masking: how examples are, or will be, masked.
      do_lower_case: casing of the vocabulary.

    Raises:
      ValueError: if a place is not there, or is none of what can be looked at.
    """
    vocab = Vocab.read(data.vocab_file) if data.vocab_file else None
    names = [name.strip() for name in paths.split(",") if name.strip()]
    return [_diagnose_place(name, data, vocab, do_lower_case) for name in names]


def _diagnose_place(
    name: str, data: DataConfig, vocab: Vocab | None, do_lower_case: bool
) -> Diagnosis:
    tokenizer = WordPiece(vocab, do_lower_case) if vocab else None
    pattern = f"{name}/*" if pathlib.Path(name).is_dir() else name
    parts, problems = list_readable(pattern, data.input_format, data.text_field)
    counts = count_corpus(parts, tokenizer)
    counts.problems += problems
    return diagnose_corpus(name, counts)
