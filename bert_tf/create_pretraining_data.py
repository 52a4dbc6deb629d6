"""Creates pre-training examples, TFRecords in google-research/bert's format, from text.

    python -m bert_tf.create_pretraining_data --input_file='text/*.txt' --vocab_file=vocab.txt \\
        --output_file=examples.tfrecord --num_shards=8

By default masks are drawn by run_pretraining each time the examples are read (dynamic masking),
with the flags of run_pretraining. --masking=static draws them here, dupe_factor times. After a
kill, the same command resumes.
"""

import functools
import pathlib

from absl import flags, logging

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig, config_flags
from bert_tf.config.rules import is_set
from bert_tf.corpus.beam_examples import fill_work_folder
from bert_tf.corpus.example_files import describe, manifest_path, write_examples
from bert_tf.corpus.google_examples import make_google_examples, pad_examples, read_google_documents
from bert_tf.corpus.tfrecords import encode_examples, write_records
from bert_tf.system.files import check_writable
from bert_tf.text.kinds import check_kind
from bert_tf.text.tokenization import make_tokenizer, read_vocab

DATA_FLAGS = (
    "input_file input_format text_field sentence_language vocab_file max_seq_length dupe_factor "
    "short_seq_prob random_seed use_next_sentence sentence_order deduplicate num_workers"
).split()
config_flags.define_flags(DataConfig, only=DATA_FLAGS)
config_flags.define_flags(MaskingConfig, without=("masked_lm_prob_end",))
config_flags.define_flags(ModelConfig, only=("tokenizer",))
flags.DEFINE_string("output_file", "", "Comma-separated TFRecord files to write.")
flags.DEFINE_bool("do_lower_case", True, "Lower-case the text and strip accents (uncased model).")
flags.DEFINE_integer(
    "num_shards",
    0,
    "Write this many files, output_file-00000-of-0000N; 0: the files of output_file.",
    lower_bound=0,
)
flags.DEFINE_bool(
    "google_identical",
    False,
    "Write exactly the examples of google-research/bert's program (statically masked, one "
    "process, all in memory). The files of a glob are sorted here, but come in folder order in the "
    "original: to get the same examples, name the files in that order.",
)
flags.DEFINE_enum(
    "runner",
    "local",
    ("local", "beam"),
    "local: several processes on this machine; beam: an Apache Beam pipeline. Same examples.",
)
flags.DEFINE_string(
    "beam_options",
    "",
    "Beam's options, such as '--runner=FlinkRunner --parallelism=64'; empty: num_workers "
    "processes on this machine.",
)
FLAGS = flags.FLAGS
GOOGLE_LACKS = (  # settings, see `config.rules.Exclusion`
    "use_next_sentence=false sentence_order input_format=prose input_format=jsonl "
    "input_format=tfrecord input_format=tfds deduplicate masked_lm_prob_to span_length "
    "ngram_length masked_share random_share"
)


def main(_: list[str]) -> None:
    data = config_flags.from_flags(DataConfig)
    masking = config_flags.from_flags(MaskingConfig)
    for name in ("input_file", "output_file", "vocab_file"):
        if not FLAGS[name].value:
            hint = " (python -m bert_tf.build_vocab trains one)" if name == "vocab_file" else ""
            raise ValueError(f"--{name} is empty; give it{hint}.")
    output_files = list_output_files(FLAGS.output_file, FLAGS.num_shards)
    for path in output_files:
        check_writable(path, "output_file")
    if FLAGS.google_identical:
        check_google_flags(data, masking)
        write_google_examples(output_files, data, masking)
        return
    check_mask_flags(masking)
    vocab = read_vocab(data.vocab_file)
    check_kind(vocab, config_flags.given(ModelConfig), data.vocab_file)
    by_beam = functools.partial(fill_work_folder, beam_options=FLAGS.beam_options)
    manifest = write_examples(
        output_files,
        data,
        masking,
        # Other tokenizers keep the case.
        do_lower_case=FLAGS.do_lower_case and vocab.has_casing,
        fill_work_folder=by_beam if FLAGS.runner == "beam" else None,
    )
    masks = "masks drawn at reading" if masking.masking != "static" else "masked"
    logging.info(
        "Wrote %s examples (%s; %s tokens) to %d files, %.1f MB; see %s.",
        f"{manifest['examples']:,}",
        masks,
        f"{manifest['tokens']:,}",
        len(output_files),
        manifest["bytes"] / 1e6,
        manifest_path(output_files),
    )
    if data.deduplicate != "none":
        logging.info("Left out %s duplicates.", f"{manifest['duplicates']:,}")
    logging.info("Took %s", describe(manifest["run"]))


def list_output_files(output_file: str, num_shards: int) -> list[pathlib.Path]:
    """Returns the files to write: the named files, or `num_shards` numbered files.

    Raises:
      ValueError: if there are several names to number, or a name occurs twice.
    """
    names = [name.strip() for name in output_file.split(",") if name.strip()]
    if num_shards:
        if len(names) != 1:
            raise ValueError(
                f"--num_shards={num_shards} needs one name in --output_file, received {names}."
            )
        names = [f"{names[0]}-{i:05d}-of-{num_shards:05d}" for i in range(num_shards)]
    if len(set(names)) < len(names):
        raise ValueError(f"--output_file names a file twice: {names}.")
    return [pathlib.Path(name).expanduser() for name in names]


def check_mask_flags(masking: MaskingConfig) -> None:
    """Raises ValueError for flags of masks if masks are not drawn here.

    Defaults are accepted, because commands for google-research/bert's program contain them.
    """
    if masking.masking == "static":
        return
    given = config_flags.given(MaskingConfig) | config_flags.given(DataConfig)
    names = {*MaskingConfig.names(), "dupe_factor"} - {"masking"}
    for name in given:
        if name in names and given[name] != FLAGS[name].default:
            raise ValueError(
                f"--{name}={str(given[name]).lower()} has no effect with "
                f"--masking={masking.masking}: give it to run_pretraining, which draws the masks, "
                "or draw them here, with --masking=static."
            )


def check_google_flags(data: DataConfig, masking: MaskingConfig) -> None:
    """Raises ValueError for flags without a counterpart in google-research/bert's program."""
    given = [setting for setting in GOOGLE_LACKS.split() if is_set([data, masking], setting)]
    if FLAGS["masking"].present and masking.masking != "static":
        given.append("masking")
    if FLAGS.runner != "local":
        given.append("runner")
    if given:
        name = given[0].partition("=")[0]
        raise ValueError(
            f"--{name}={str(FLAGS[name].value).lower()} has no counterpart in "
            "google-research/bert's program; leave it out, or leave out --google_identical."
        )


def write_google_examples(
    output_files: list[pathlib.Path], data: DataConfig, masking: MaskingConfig
) -> None:
    """Writes the examples of the original program, distributed over the files in turn."""
    vocab = read_vocab(data.vocab_file)
    tokenizer = make_tokenizer(vocab, FLAGS.do_lower_case)
    documents = read_google_documents(data.input_file, tokenizer, data.input_format)
    examples = make_google_examples(documents, data, masking, vocab)
    records = encode_examples(
        pad_examples(examples, data.max_seq_length, masking.max_predictions_per_seq, vocab.pad_id)
    )
    # The old manifest describes other examples.
    manifest_path(output_files).unlink(missing_ok=True)
    for number, path in enumerate(output_files):
        # Example i is in file i modulo the number of files, as in the original.
        write_records(path, records[number :: len(output_files)])
    logging.info("Wrote %d examples, masked, as google-research/bert's program.", len(records))


if __name__ == "__main__":
    config_flags.run(main)
