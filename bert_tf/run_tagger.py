"""Fine-tunes BERT to tag words: named entities, parts of speech.

    python -m bert_tf.run_tagger --flagfile=configs/ner.flags \\
        --train_file=train.conll --eval_file=dev.conll --init_checkpoint=cased_L-12_H-768_A-12.zip
    python -m bert_tf.run_tagger --do_predict --output_dir=runs/ner --predict_file=test.conll

Files have a word a line with its tag in columns, and blank lines between sentences (CoNLL), or are
CoNLL-U. The first piece of a word carries its label; long sentences are cut in windows, and each
word is tagged once. The predictions are the input again, with a tag behind each word.
"""

import pathlib
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf import config_flags
from bert_tf.config import DataConfig
from bert_tf.files import atomic_write
from bert_tf.fine_tuning.program import (
    DATA_FLAGS,
    DEFAULT_OPTIMIZER,
    FLAG_GROUPS,
    WITHOUT_EFFECT,
    Configs,
    Examples,
    asked_files,
)
from bert_tf.fine_tuning.run import run
from bert_tf.fine_tuning_config import TaggerConfig
from bert_tf.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from bert_tf.tasks.tagging import TaggedExamples, TaggingTask

config_flags.define_flags(*FLAG_GROUPS, TaggerConfig, without=WITHOUT_EFFECT)
config_flags.define_flags(DataConfig, only=DATA_FLAGS)
config_flags.set_defaults(optimizer=DEFAULT_OPTIMIZER)


class Tagger:
    """The program; see `fine_tuning.program.Program`."""

    head = "tagger"
    needs_pooler = False
    panels = {"loss": "loss", "accuracy": "accuracy", "f1": "F1 of entities (%)"}

    def files(self, configs: Configs) -> dict[str, str]:
        return asked_files(configs)

    def read(self, configs: Configs, tokenizer: WordPiece, labels: tuple[str, ...]) -> Examples:
        """Reads the files that the flags ask for."""
        from bert_tf.tasks.tagging import make_examples
        from bert_tf.tasks.tagging_features import truncation_report
        from bert_tf.tasks.tagging_files import read_tagged, tag_names

        given, length = configs.task, configs.data.max_seq_length
        sentences = {}
        for name, path in self.files(configs).items():
            tag_column = None if name == "predict" else column_of(given.tag_column)
            sentences[name] = read_tagged(path, given.word_column, tag_column)
            cut = truncation_report(sentences[name], tokenizer, length)
            logging.info(
                "%s: %d sentences, %d words; %d sentences in windows of %d, %d words cut, %d "
                "without a piece.",
                *(name, len(sentences[name]), sum(len(s.words) for s in sentences[name])),
                *(cut.sentences_windowed, length, cut.words_cut, cut.words_without_pieces),
            )
        self.predict_file, self.word_column = configs.tuning.predict_file, given.word_column
        if "train" in sentences or not labels:
            labelled = sentences.get("train") or sentences.get("eval")
            if labelled is None:
                raise ValueError(
                    "The weights name no tags, so predictions would be numbers: give a model with "
                    "labels.txt."
                )
            found = tag_names(labelled)
            labels = labels if sorted(found) == sorted(labels) else found
        made = {
            name: make_examples(chosen, labels, tokenizer, length, name != "predict")
            for name, chosen in sentences.items()
        }
        return Examples(
            made.get("train"),
            {"": made["eval"]} if "eval" in made else {},
            {"": made["predict"]} if "predict" in made else {},
            labels,
        )

    def make_task(
        self, configs: Configs, examples: Examples, buckets: list[int], **options: Any
    ) -> "TaggingTask":
        """Makes the tagger and its task."""
        from bert_tf.modeling.models import BertTokenClassifier
        from bert_tf.tasks.tagging import TaggingTask

        return TaggingTask(
            BertTokenClassifier(configs.model, len(examples.labels), **options),
            examples.train.rows if examples.train else None,
            next(iter(examples.eval.values()), None),
            buckets,
            configs.data.random_seed,
            labels=examples.labels,
        )

    def report(
        self,
        folder: pathlib.Path,
        task: "TaggingTask",
        name: str,
        examples: "TaggedExamples",
        outputs: Any,
    ) -> None:
        """Writes report.txt (conlleval's, or of each tag) and worst_errors.tsv."""
        from bert_tf.metrics.entities import format_conlleval
        from bert_tf.tasks.tagging_report import tag_report_text, worst_sentences_text

        tags = task.answers(examples, outputs)
        if task.best_metric == "f1":
            text = format_conlleval(task.entity_report(examples, tags))
        else:
            text = tag_report_text(examples.sentences, tags, task.labels)
        with atomic_write(folder / "report.txt") as file:
            file.write(text)
        with atomic_write(folder / "worst_errors.tsv") as file:
            file.write(worst_sentences_text(examples.sentences, tags))

    def write_predictions(
        self,
        folder: pathlib.Path,
        task: "TaggingTask",
        name: str,
        examples: "TaggedExamples",
        outputs: Any,
    ) -> None:
        """Writes the input again, with a tag behind each word."""
        from bert_tf.tasks.tagging_files import write_tagged

        tags = task.answers(examples, outputs)
        path = folder / "predictions.txt"
        write_tagged(self.predict_file, path, tags, self.word_column)
        logging.info("Wrote %s", path)


def column_of(text: str) -> int | str:
    """Returns a column's number where it is one, else its name."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def main(_: list[str]) -> int:
    return run(Tagger(), TaggerConfig)


if __name__ == "__main__":
    config_flags.run(main)
