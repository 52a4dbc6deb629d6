"""Fine-tunes BERT to answer questions about a text, and answers them: SQuAD 1.1 and 2.0.

    python -m bert_tf.run_squad --flagfile=configs/squad_v1.flags --train_file=train-v1.1.json \\
        --predict_file=dev-v1.1.json --init_checkpoint=uncased_L-12_H-768_A-12.zip

Flags, defaults and output files (predictions.json, nbest_predictions.json, null_odds.json) are
those of google-research/bert's run_squad.py. --do_eval judges like the official scripts; for
version 2 it also looks for the best threshold. Files may be tfds:squad/v1.1 or tfds:squad/v2.0.
"""

import dataclasses
import json
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
from bert_tf.fine_tuning_config import SquadConfig
from bert_tf.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from bert_tf.tasks.squad import SquadExamples, SquadTask

config_flags.define_flags(*FLAG_GROUPS, SquadConfig, without=WITHOUT_EFFECT)
config_flags.define_flags(DataConfig, only=DATA_FLAGS)
config_flags.set_defaults(max_seq_length=384, optimizer=DEFAULT_OPTIMIZER)


class Squad:
    """The program; see `fine_tuning.program.Program`."""

    head = "squad"
    needs_pooler = False
    panels = {
        "loss": "loss",
        "f1": "F1 (%)",
        "exact_match": "exact match (%)",
        "exact": "exact match (%)",
        "best_f1": "F1 at the best threshold (%)",
    }

    def files(self, configs: Configs) -> dict[str, str]:
        """An evaluation without a file judges the predictions."""
        evaluated = configs.data.eval_file or configs.tuning.predict_file
        return asked_files(
            configs._replace(data=dataclasses.replace(configs.data, eval_file=evaluated))
        )

    def read(self, configs: Configs, tokenizer: WordPiece, labels: tuple[str, ...]) -> Examples:
        """Reads the files that the flags ask for."""
        from bert_tf.tasks.squad import make_examples
        from bert_tf.tasks.squad_features import read_squad

        files = self.files(configs)
        made: dict[str, SquadExamples] = {}
        for name, path in files.items():
            if name == "predict" and "eval" in made and path == files["eval"]:
                made[name] = made["eval"]
                continue
            version_2 = configs.task.version_2_with_negative
            questions = read_squad(path, name == "train", version_2)
            length = configs.data.max_seq_length
            made[name] = make_examples(questions, tokenizer, length, configs.task)
            logging.info(
                "%s: %d questions, %d windows of up to %d pieces.",
                *(name, len(questions), len(made[name].features), length),
            )
        if "eval" in made:
            check_answers(made["eval"], files["eval"], configs.task)
        return Examples(
            made.get("train"),
            {"": made["eval"]} if "eval" in made else {},
            {"": made["predict"]} if "predict" in made else {},
            (),
        )

    def make_task(
        self, configs: Configs, examples: Examples, buckets: list[int], **options: Any
    ) -> "SquadTask":
        """Makes the model and its task."""
        from bert_tf.modeling.models import BertSpanLabeler
        from bert_tf.tasks.squad import SquadTask

        return SquadTask(
            BertSpanLabeler(configs.model, **options),
            examples.train.rows if examples.train else None,
            next(iter(examples.eval.values()), None),
            buckets,
            configs.data.random_seed,
            config=configs.task,
        )

    def report(
        self,
        folder: pathlib.Path,
        task: "SquadTask",
        name: str,
        examples: "SquadExamples",
        outputs: Any,
    ) -> None:
        """Writes worst_errors.tsv: the questions with the lowest F1."""
        from bert_tf.tasks.squad_report import worst_answers_text

        found = task.answers(examples, outputs)
        with atomic_write(folder / "worst_errors.tsv") as file:
            file.write(worst_answers_text(examples.questions, found))

    def write_predictions(
        self,
        folder: pathlib.Path,
        task: "SquadTask",
        name: str,
        examples: "SquadExamples",
        outputs: Any,
    ) -> None:
        """Writes the three files of the original."""
        found = task.answers(examples, outputs)
        files = {"predictions.json": found.predictions, "nbest_predictions.json": found.nbest}
        if task.config.version_2_with_negative:
            files["null_odds.json"] = found.null_odds
        for file_name, values in files.items():
            with atomic_write(folder / file_name) as file:
                file.write(json.dumps(values, indent=4) + "\n")
        logging.info("Wrote %s", ", ".join(str(folder / file_name) for file_name in files))


def check_answers(examples: "SquadExamples", path: str, config: SquadConfig) -> None:
    """Raises ValueError if a file cannot be judged."""
    if not examples.has_answers:
        raise ValueError(f"{path} has no answers to judge by; leave --do_eval out.")
    bare = [question.id for question in examples.questions if not question.answers]
    if bare and not config.version_2_with_negative:
        raise ValueError(
            f"{path}, question {bare[0]}: no answer to judge by; if it has none, give "
            "--version_2_with_negative."
        )


def main(_: list[str]) -> int:
    return run(Squad(), SquadConfig)


if __name__ == "__main__":
    config_flags.run(main)
