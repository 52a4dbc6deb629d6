"""Looks at a corpus, at prepared data or at a run, and says what is wrong with it.

    python -m bert_tf.doctor 'my_text/*.txt' --vocab_file=vocab.txt
    python -m bert_tf.doctor runs/my_bert --report_file=my_bert.html
    python -m bert_tf.doctor runs/my_bert runs/bert_tf_cache --measure

Prints one screen, the worst first: what was measured, what was expected, what to do. The page
named by --report_file has all of it, with plots. Which of the three a place is, it finds out.

Exit status: 0 if no finding is serious, 2 if one is, 1 if something could not be looked at.
"""

import sys
from collections.abc import Sequence

from absl import flags, logging

from bert_tf import config_flags
from bert_tf.config import DataConfig, MaskingConfig, ModelConfig
from bert_tf.files import atomic_write

config_flags.define_flags(ModelConfig, only=("do_lower_case",))
config_flags.define_flags(DataConfig, only=("vocab_file", "input_format", "text_field"))
config_flags.define_flags(
    MaskingConfig, only=("masked_lm_prob", "max_predictions_per_seq", "do_whole_word_mask")
)
flags.DEFINE_string(
    "paths",
    "",
    "Comma-separated: text as of --input_file, folders of TFRecords, run directories; these may "
    "stand alone.",
)
flags.DEFINE_string("report_file", "doctor.html", "HTML page to write; empty: none.")
flags.DEFINE_bool(
    "measure",
    False,
    "Time the input of prepared data; with a run among the places, its steps on them, too.",
)
FLAGS = flags.FLAGS
SERIOUS_STATUS = 2


def main(_: list[str]) -> int:
    if not FLAGS.paths:
        raise ValueError("Name what to look at: python -m bert_tf.doctor runs/my_bert")
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)

    from bert_tf.diagnosis.findings import Severity
    from bert_tf.diagnosis.places import diagnose
    from bert_tf.diagnosis.report import page, screen

    diagnoses = diagnose(
        FLAGS.paths,
        config_flags.from_flags(DataConfig),
        config_flags.from_flags(MaskingConfig),
        FLAGS.do_lower_case,
        FLAGS.measure,
    )
    print(screen(diagnoses, sys.stdout.isatty()))
    if FLAGS.report_file:
        with atomic_write(FLAGS.report_file) as file:
            file.write(page(diagnoses))
        print(f"Report: {FLAGS.report_file}")
    findings = [finding for diagnosis in diagnoses for finding in diagnosis.findings]
    is_serious = any(finding.severity == Severity.SERIOUS for finding in findings)
    return SERIOUS_STATUS if is_serious else 0


def gather_paths(arguments: Sequence[str]) -> list[str]:
    """Returns the program's arguments with the words that stand alone as one flag, --paths."""
    FLAGS.set_gnu_getopt(True)  # flags may follow such a word
    try:
        program, *rest = FLAGS(arguments, known_only=True)
    except flags.Error:  # the program says so when it parses them again
        return list(arguments)
    FLAGS.unparse_flags()
    words = [word for word in rest if not word.startswith("-")]
    if not words:
        return list(arguments)
    others = _without(arguments[1:], words)
    return [program, *others, f"--paths={','.join(words)}"]


def _without(arguments: Sequence[str], words: Sequence[str]) -> list[str]:
    """Returns the arguments less the last of each word: what a flag takes stands before it."""
    kept = list(arguments)
    for word in reversed(words):
        del kept[len(kept) - 1 - kept[::-1].index(word)]
    return kept


if __name__ == "__main__":
    sys.argv = gather_paths(sys.argv)
    config_flags.run(main)
