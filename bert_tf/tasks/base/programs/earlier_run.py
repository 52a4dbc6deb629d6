"""Settings of data that a training takes over from the run whose weights it starts with."""

from absl import flags, logging

from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import RUN_NAME, read_record, was_recorded_by
from bert_tf.config import Config, TrainingConfig, config_flags

# New data for a model usually have the form of the earlier data.
READING = (
    "text_column",
    "text_b_column",
    "label_column",
    "label_separator",
    "problem_type",
    "word_column",
    "tag_column",
    "query_column",
    "positive_column",
    "delimiter",
    "column_names",
    "skip_unlabelled",
    "long_texts",
    "version_2_with_negative",
)


def reading_of_earlier_run(
    training: TrainingConfig, task_config: type[Config], new_head: bool
) -> dict[str, str]:
    """Returns the recorded settings of READING that no flag gives, and logs them.

    They are those of --init_checkpoint if it is a run of the same program. A new head is for
    another task, whose data have a form of their own.
    """
    if not (training.do_train and training.init_checkpoint) or new_head:
        return {}
    source = record_of(training.init_checkpoint)
    if not was_recorded_by(source / RUN_NAME, task_config):
        return {}
    record = read_record(source)
    given = config_flags.given(task_config)
    taken = {}
    for name in READING:
        if name in task_config.names() and name not in given and name in record:
            # A list of words is read as flags are.
            if flags.FLAGS[name].parser.parse(record[name]) != flags.FLAGS[name].default:
                taken[name] = record[name]
    if taken:
        shown = " ".join(f"--{name}={value}" for name, value in taken.items())
        logging.info("Taken over from %s: %s.", source, shown)
    return taken
