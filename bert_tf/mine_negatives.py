"""Finds hard negatives: documents that a model ranks high although they are not answers.

    python -m bert_tf.mine_negatives --init_checkpoint=all-MiniLM-L6-v2 --data_dir=scifact \\
        --output_file=mined.jsonl
    python -m bert_tf.mine_negatives --init_checkpoint=all-MiniLM-L6-v2 --train_file=pairs.csv \\
        --relative_margin=0.05 --output_file=mined.jsonl

For a BEIR folder the documents are its corpus; for a file of pairs, all positives and negatives in
it. Each line of the output has a query, its positives, and its negatives, the nearest first, as
`run_retriever --train_file` reads them. With --write_margins each positive has its own line, with
the margins for the loss margin_mse.

A document may be an unmarked answer. --absolute_margin and --relative_margin (.05 is NV-Retriever's
choice, Moreira et al. 2024) leave out documents too close to the positive, and --range_min leaves
out the first ranks. With --reranker the scores of a cross-encoder, which are more accurate, replace
those of the embeddings.
"""

import pathlib

from absl import flags

from bert_tf.config import DataConfig, TrainingConfig, config_flags
from bert_tf.config.fine_tuning_config import FineTuningConfig
from bert_tf.config.given_flags import check_given, check_new_file
from bert_tf.config.ranking_config import RetrieverConfig

FLAGS = flags.FLAGS


def define_program_flags() -> None:
    config_flags.define_flags(DataConfig, only=("max_seq_length", "random_seed"))
    config_flags.define_flags(TrainingConfig, only=("init_checkpoint",))
    config_flags.define_flags(FineTuningConfig, only=("train_file",))
    names = ("data_dir", "train_split", "query_column", "positive_column")
    config_flags.define_flags(RetrieverConfig, only=names)
    flags.DEFINE_string("output_file", "", "JSONL file to write; it must not exist.")
    flags.DEFINE_integer(
        "negatives_per_query", 4, "Maximum number of negatives per query.", lower_bound=1
    )
    flags.DEFINE_integer(
        "range_min",
        0,
        "Number of nearest documents to leave out, not counting positives.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "range_max",
        50,
        "Number of nearest documents to consider, not counting positives.",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "absolute_margin", None, "Negatives must score at least this much less than the positive."
    )
    flags.DEFINE_float(
        "relative_margin",
        None,
        "Negatives must score at most (1 - this) times the positive's score.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_float("min_score", None, "Negatives must score at least this.")
    flags.DEFINE_float("max_score", None, "Negatives must score at most this.")
    flags.DEFINE_enum(
        "sampling",
        "top",
        ("top", "random"),
        "Which of the remaining documents to take: the nearest, or random ones.",
    )
    flags.DEFINE_string(
        "reranker", "", "Cross-encoder with one label, whose scores replace the embeddings'."
    )
    flags.DEFINE_bool("write_margins", False, "Also write the margins to the negatives.")
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)


def main(_: list[str]) -> None:
    check_flags()

    from bert_tf.search import mining

    mining.mine(
        FLAGS.init_checkpoint,
        str(pathlib.Path(FLAGS.output_file).expanduser()),
        mining.Collection.read(
            FLAGS.data_dir,
            FLAGS.train_split,
            FLAGS.train_file,
            (FLAGS.query_column, FLAGS.positive_column),
        ),
        mining.Rules(
            FLAGS.negatives_per_query,
            FLAGS.range_min,
            FLAGS.range_max,
            FLAGS.absolute_margin,
            FLAGS.relative_margin,
            FLAGS.min_score,
            FLAGS.max_score,
            FLAGS.sampling == "random",
            FLAGS.random_seed,
        ),
        max_seq_length=FLAGS.max_seq_length if FLAGS["max_seq_length"].present else 0,
        reranker=FLAGS.reranker,
        write_margins=FLAGS.write_margins,
        batch_size=FLAGS.batch_size,
    )


def check_flags() -> None:
    """Raises ValueError for errors that can be found before a model is read."""
    check_given("init_checkpoint", "output_file")
    check_new_file("output_file")
    if bool(FLAGS.data_dir) == bool(FLAGS.train_file):
        raise ValueError("Give either a BEIR folder as --data_dir, or pairs as --train_file.")
    if FLAGS.range_max <= FLAGS.range_min:
        raise ValueError(
            f"--range_max={FLAGS.range_max} is not above --range_min={FLAGS.range_min}; make it "
            f"larger."
        )


if __name__ == "__main__":
    define_program_flags()
    config_flags.run(main)
