"""Fine-tunes BERT to choose how a text goes on: SWAG, or one's own questions with choices.

    python -m bert_tf.run_multiple_choice --flagfile=configs/swag.flags --train_file=train.csv \\
        --eval_file=val.csv --init_checkpoint=uncased_L-12_H-768_A-12.zip

Files have SWAG's columns, or are JSONL with `context`, `question`, `choices`, `label`.
"""

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
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
from bert_tf.fine_tuning_config import ChoiceConfig
from bert_tf.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from bert_tf.tasks.multiple_choice import ChoiceExamples, MultipleChoiceTask

config_flags.define_flags(*FLAG_GROUPS, ChoiceConfig, without=WITHOUT_EFFECT)
config_flags.define_flags(DataConfig, only=DATA_FLAGS)
config_flags.set_defaults(optimizer=DEFAULT_OPTIMIZER)


class MultipleChoice:
    """The program; see `fine_tuning.program.Program`."""

    head = "classifier"
    needs_pooler = True
    panels = {"loss": "loss", "accuracy": "accuracy"}

    def files(self, configs: Configs) -> dict[str, str]:
        return asked_files(configs)

    def read(self, configs: Configs, tokenizer: WordPiece, labels: tuple[str, ...]) -> Examples:
        """Reads the files that the flags ask for."""
        from bert_tf.tasks.multiple_choice import make_examples
        from bert_tf.tasks.swag import read_swag

        made: dict[str, ChoiceExamples] = {}
        for name, path in self.files(configs).items():
            examples = read_swag(path)
            bare = [example.source for example in examples if example.label is None]
            if bare and name != "predict":
                raise ValueError(f"{bare[0]}: no label; expected the place of the right choice.")
            length = configs.data.max_seq_length
            made[name] = make_examples(examples, tokenizer, length)
            logging.info(
                "%s: %d examples of %d choices; %d texts cut to %d pieces.",
                *(name, len(examples), len(examples[0].choices), made[name].num_cut, length),
            )
        return Examples(
            made.get("train"),
            {"": made["eval"]} if "eval" in made else {},
            {"": made["predict"]} if "predict" in made else {},
            (),
        )

    def make_task(
        self, configs: Configs, examples: Examples, buckets: list[int], **options: Any
    ) -> "MultipleChoiceTask":
        """Makes the model and its task."""
        from bert_tf.modeling.multiple_choice import BertMultipleChoice
        from bert_tf.tasks.multiple_choice import MultipleChoiceTask

        return MultipleChoiceTask(
            BertMultipleChoice(configs.model, **options),
            examples.train.rows if examples.train else None,
            next(iter(examples.eval.values()), None),
            buckets,
            configs.data.random_seed,
        )

    def report(
        self,
        folder: pathlib.Path,
        task: "MultipleChoiceTask",
        name: str,
        examples: "ChoiceExamples",
        outputs: Any,
    ) -> None:
        """Writes worst_errors.tsv: wrong answers, the highest loss first."""
        answers = np.stack(outputs["logits"]).argmax(axis=-1)
        losses = np.array(outputs["loss"])
        wrong = np.flatnonzero(answers != examples.labels)
        order = wrong[np.argsort(-losses[wrong], kind="stable")][:50]
        with atomic_write(folder / "worst_errors.tsv") as file:
            file.write("loss\tlabel\tanswer\tsource\tcontext\tright\tchosen\n")
            for index in order:
                example = examples.examples[index]
                right, chosen = examples.labels[index], answers[index]
                cells = (
                    *(f"{losses[index]:.4f}", str(right), str(chosen), example.source),
                    *(f"{example.context} {example.start}", example.choices[right]),
                    example.choices[chosen],
                )
                file.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")

    def write_predictions(
        self,
        folder: pathlib.Path,
        task: "MultipleChoiceTask",
        name: str,
        examples: "ChoiceExamples",
        outputs: Any,
    ) -> None:
        """Writes predictions.tsv: the number of the chosen ending, and all scores."""
        logits = np.stack(outputs["logits"])
        with atomic_write(folder / "predictions.tsv") as file:
            file.write("id\tanswer\tscores\n")
            for example, row in zip(examples.examples, logits, strict=True):
                scores = " ".join(f"{value:.6f}" for value in row)
                file.write(f"{example.id}\t{row.argmax()}\t{scores}\n")
        logging.info("Wrote %s", folder / "predictions.tsv")


def main(_: list[str]) -> int:
    return run(MultipleChoice(), ChoiceConfig)


if __name__ == "__main__":
    config_flags.run(main)
