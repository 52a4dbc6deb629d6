"""Examines a corpus, a labelled table, prepared data or a run, and reports problems.

    python -m bert_tf.doctor 'my_text/*.txt' --vocab_file=vocab.txt
    python -m bert_tf.doctor train.csv --label_column=topic
    python -m bert_tf.doctor runs/my_bert runs/bert_tf_cache --report_file=my_bert.html

It prints one screen with the worst problems first: measurement, expectation and remedy. The page
given by --report_file has all findings, with plots. The kind of each input is detected.

Exit status: 0 if no finding is serious, 2 if one is, 1 if something could not be examined.
"""

import glob
import pathlib
import sys
from collections.abc import Sequence

from absl import flags, logging

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, config_flags
from bert_tf.config.fine_tuning_config import ClassifierConfig
from bert_tf.corpus.corpus_format import is_tfrecord
from bert_tf.diagnosis.corpus import diagnose_corpus
from bert_tf.diagnosis.findings import Diagnosis, Severity
from bert_tf.diagnosis.labelled_table import Columns, diagnose_table, is_labelled_table
from bert_tf.diagnosis.report import page, screen
from bert_tf.diagnosis.run import diagnose_run, is_run
from bert_tf.system.files import atomic_write, check_writable
from bert_tf.system.printable import escaped, show
from bert_tf.text.tokenization import AnyVocab, make_tokenizer, read_vocab

config_flags.define_flags(ModelConfig, only=("do_lower_case",))
config_flags.define_flags(
    DataConfig, only=("vocab_file", "input_format", "text_field", "sentence_language")
)
config_flags.define_flags(ClassifierConfig, only=("text_column", "text_b_column", "label_column"))
SHARES = ("masked_lm_prob", "masked_lm_prob_to", "masked_lm_prob_end")
config_flags.define_flags(MaskingConfig, only=(*SHARES, "max_predictions_per_seq"))
flags.DEFINE_list(
    "paths",
    [],
    "Text as for --input_file, labelled tables, folders of TFRecords, run directories; also "
    "without --paths=.",
)
flags.DEFINE_string("report_file", "", "HTML page with plots to write; empty: no page.")
FLAGS = flags.FLAGS
SERIOUS_STATUS = 2


def main(_: list[str]) -> int:
    if not FLAGS.paths:
        raise ValueError("Name what to examine: python -m bert_tf.doctor runs/my_bert")
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if FLAGS.report_file:
        check_writable(FLAGS.report_file, "report_file")
    vocab = read_vocab(FLAGS.vocab_file) if FLAGS.vocab_file else None
    diagnoses: list[Diagnosis] = []
    for name in FLAGS.paths:
        diagnoses += diagnose(name, vocab)
    show(screen(diagnoses))
    if FLAGS.report_file:
        with atomic_write(pathlib.Path(FLAGS.report_file).expanduser()) as file:
            file.write(page(diagnoses))
        show(f"Report: {escaped(FLAGS.report_file)}")
    else:
        show("For a page with plots and all details, give --report_file=doctor.html.")
    for diagnosis in diagnoses:
        if Severity.SERIOUS in [finding.severity for finding in diagnosis.findings]:
            return SERIOUS_STATUS
    return 0


def diagnose(name: str, vocab: AnyVocab | None) -> list[Diagnosis]:
    """Examines a path; a folder of several seeds, or of folders of records, has several parts.

    Raises:
      ValueError: if it does not exist, or cannot be examined.
    """
    path = pathlib.Path(name)
    if is_run(path):
        seeds = sorted(filter(is_run, path.glob("seed-*")))
        return list(map(diagnose_run, (path, *seeds)))
    if folders := record_folders(name):
        # TensorFlow takes seconds to load, and text and runs do not need it.
        from bert_tf.diagnosis.examples import diagnose_examples

        masking = config_flags.from_flags(MaskingConfig)
        is_given = FLAGS["max_predictions_per_seq"].present > 0
        return [
            diagnose_examples(folder, files, vocab, masking, is_given)
            for folder, files in folders.items()
        ]
    text = f"{name}/*" if path.is_dir() else name
    columns = Columns(FLAGS.text_column, FLAGS.text_b_column, FLAGS.label_column)
    # A given format says that the files are text, not tables.
    files = sorted(glob.glob(text)) if FLAGS.input_format == "auto" else []  # noqa: PTH207
    tables = [file for file in files if is_labelled_table(pathlib.Path(file), columns)]
    diagnoses = [diagnose_table(table, columns) for table in tables]
    texts = [text]
    if tables:
        texts = [file for file in files if file not in tables]
    tokenizer = make_tokenizer(vocab, FLAGS.do_lower_case) if vocab else None
    data = config_flags.from_flags(DataConfig)
    return diagnoses + [diagnose_corpus(source, data, tokenizer) for source in texts]


def record_folders(name: str) -> dict[str, list[pathlib.Path]]:
    """Returns the TFRecord files of a path by folder; {} if it has no such files."""
    path = pathlib.Path(name)
    if not path.is_dir():
        files = list(map(pathlib.Path, sorted(glob.glob(name))))  # noqa: PTH207
        if files and all(map(_holds_records, files)):
            return {name: files}
        return {}
    by_folder = {}
    for folder in (path, *sorted(sub for sub in path.iterdir() if sub.is_dir())):
        if files := sorted(filter(_holds_records, folder.iterdir())):
            by_folder[str(folder)] = files
    return by_folder


def _holds_records(path: pathlib.Path) -> bool:
    """Returns whether a file has TFRecords, by its first bytes or, if damaged, by its name."""
    if not path.is_file() or path.name.startswith(".") or path.suffix == ".json":
        return False
    # A record begins with 8 bytes of length and 4 of their checksum.
    with path.open("rb") as file:
        return is_tfrecord(file.read(12)) or ".tfrecord" in path.name


def gather_paths(arguments: Sequence[str]) -> list[str]:
    """Parses the program's arguments; words that are not flags become --paths.

    Returns:
      The arguments left to parse: the program's name, or all arguments if a flag is wrong or
        belongs to absl (--help), so that the program reports it when it parses them again.
    """
    FLAGS.set_gnu_getopt(True)  # Flags may follow words.
    try:
        program, *words = FLAGS(list(arguments))
    except flags.Error:
        return list(arguments)
    FLAGS["paths"].value = [*FLAGS.paths, *words]
    return [program]


if __name__ == "__main__":
    sys.argv = gather_paths(sys.argv)
    config_flags.run(main)
