"""A fine-tuning run: examples, model, training, evaluation, predictions.

    flags, --init_checkpoint --> vocabulary, labels --> examples in memory --> model with its head
        --> training (resumable) --> evaluation, reports --> predictions

A program (such as `run_classifier.py`) defines its examples and how its model is evaluated; see
`Program`.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

import keras
from absl import logging

from bert_tf.checkpoints.google import write_labels
from bert_tf.checkpoints.run_checkpoints import record_identity
from bert_tf.checkpoints.start import starts_of_names
from bert_tf.examples.rows import length_buckets
from bert_tf.fine_tuning.defaults import after_reading, before_reading, settings_to_choose
from bert_tf.fine_tuning.initial_state import fit_head, load_initial_state
from bert_tf.fine_tuning.program import Configs, Examples, Program
from bert_tf.fine_tuning.results import ending_of, results_text, write_texts
from bert_tf.fine_tuning.sizes import with_sizes
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.run_record import check_same_run, only_training, write_run_record
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.typed_tokens import CountingTokenizer
from bert_tf.training.curves import draw_curves
from bert_tf.training.distribution import is_chief, make_strategy
from bert_tf.training.fine_tuner import FineTuner, Outputs
from bert_tf.training.freezing import freeze
from bert_tf.training.metrics_log import line_interval, read_metrics
from bert_tf.training.precision import choose_precision
from bert_tf.training.reporting import Progress
from bert_tf.training.seeds import write_summary
from bert_tf.training.stopping import Stopped
from bert_tf.training.trainer import note_evaluation


def run_program(program: Program, configs: Configs) -> int:
    """Runs once for each seed; returns the exit status.

    For several seeds, writes the mean and the spread of the results.
    """
    if configs.tuning.num_seeds == 1:
        return Run(program, configs).execute()
    folder, first = pathlib.Path(configs.training.output_dir), configs.data.random_seed
    results: dict[int, dict[str, float]] = {}
    strategy = None  # One for all: TensorFlow mixes up the all-reduces of several in one process.
    for seed in range(first, first + configs.tuning.num_seeds):
        logging.info("Seed %d (%d of %d)", seed, len(results) + 1, configs.tuning.num_seeds)
        output_dir = str(folder / f"seed-{seed}")
        one = Run(
            program,
            configs._replace(
                data=dataclasses.replace(configs.data, random_seed=seed),
                training=dataclasses.replace(configs.training, output_dir=output_dir),
                tuning=dataclasses.replace(configs.tuning, num_seeds=1),
            ),
        )
        if status := one.execute(strategy):
            return status
        results[seed], strategy = one.results, one.strategy
    write_summary(folder, results)
    return 0


class Run:
    """One run of a program with one seed.

    Attributes:
      results: of the evaluation at the end.
      strategy: what it ran under.
    """

    def __init__(self, program: Program, configs: Configs) -> None:
        self.program = program
        self.folder = pathlib.Path(configs.training.output_dir)
        self.start = load_initial_state(configs, program)
        program.configs = configs._replace(model=self.start.config)
        program.receive_weights(self.start.weights)
        self.configs = program.configs
        self.results: dict[str, float] = {}
        self.strategy: Any = None

    def execute(self, strategy: Any = None) -> int:
        """Trains, evaluates, predicts; returns the exit status. Without a strategy it makes one."""
        self.strategy = strategy = strategy or make_strategy(self.configs.training)
        with contextlib.ExitStack() as stack:
            if self.configs.training.do_train and is_chief(strategy):
                stack.enter_context(only_training(self.configs.training.output_dir))
            trainer, examples = self.prepare(strategy)
            try:
                self.train_and_use(trainer, examples)
            except Stopped as stop:
                logging.info(
                    "Saved at step %d; run the same command again to resume.", trainer.step
                )
                return stop.exit_status
            except FloatingPointError as error:
                raise ValueError(error) from error
        return 0

    def prepare(self, strategy: Any) -> tuple[FineTuner, Examples]:
        """Reads the examples and builds model, optimizer and trainer."""
        start = self.start
        tokenizer = CountingTokenizer(make_tokenizer(start.vocab, start.config.do_lower_case))
        labels = start.labels
        if start.num_labels > 1 and not labels and not self.configs.training.do_train:
            labels = tuple(map(str, range(start.num_labels)))  # Somebody's head without names.
        following = settings_to_choose(self.configs, self.program.default_lengths)
        self.configs = self.program.configs = before_reading(following, self.configs)
        examples = self.program.read(tokenizer, labels)
        tokenizer.typed.log()
        # The labels of a tagger are those of words, of which each text has many examples.
        num_classes = len(examples.labels) if self.program.head == "classifier" else 0
        self.configs = self.program.configs = after_reading(
            following, self.configs, examples, num_classes
        )
        start = self.start = fit_head(start, examples.labels, self.configs.training)
        num_rows = len(examples.train.rows) if examples.train else 0
        training = choose_precision(self.configs.training, strategy)
        self.configs = self.configs._replace(training=training)
        texts = texts_per_row(examples.train)
        predictions = getattr(examples.train, "predictions_per_row", 0)
        configs = self.configs = with_sizes(self.configs, num_rows, strategy, texts, predictions)
        model, data, optimization, training, tuning, _ = configs
        if training.do_train:
            check_same_run(training.output_dir, *configs)
        # Before the teacher adds its outputs, whose last bits may differ when they are made again.
        fingerprint = examples.train.rows.fingerprint() if examples.train else ""
        if training.do_train and "teacher" in configs.task.names() and configs.task.teacher:
            self.program.compute_teacher_outputs(examples, tokenizer, strategy)
        keras.utils.set_random_seed(data.random_seed)
        keras.mixed_precision.set_global_policy(training.precision)
        # XLA compiles packed rows anew for each number of them: one length is enough.
        is_plain = tuning.pad_to_max_length or training.pack_rows and training.jit_compile
        buckets = length_buckets(data.max_seq_length, training.jit_compile, is_plain)
        with strategy.scope():
            # XLA needs fixed lengths; without it padding is left out of all but attention.
            is_padded = training.jit_compile or tuning.pad_to_max_length
            options = {"recompute": training.recompute, "unpad": not is_padded}
            rows = examples.train.rows if examples.train else None
            watched = next(iter(examples.eval.values()), None)
            data_of_task = rows, watched, buckets, data.random_seed
            task = self.program.make_task(model, examples.labels, data_of_task, **options)
            freeze(task.model, tuning.frozen_layers)
            optimizer = build_optimizer(optimization)
            optimizer.build(task.model.trainable_variables)
        interval = line_interval(training.log_steps, optimization.num_train_steps)
        trainer = FineTuner(
            task,
            optimizer,
            strategy,
            dataclasses.replace(training, log_steps=interval),
            num_train_steps=optimization.num_train_steps,
            random_seed=data.random_seed,
            progress=make_progress(configs, examples),
            data_fingerprint=fingerprint,
        )
        self.load_weights(trainer)
        if training.do_train and is_chief(strategy):  # What is refused above leaves no record.
            write_labels(self.folder, examples.labels)
            self.program.write_record(self.folder)
            write_run_record(training.output_dir, start.vocab, *configs)
            record_identity(self.folder)
        return trainer, examples

    def load_weights(self, trainer: FineTuner) -> None:
        """Loads the run's newest checkpoint, else the weights to start from."""
        training = self.configs.training
        if self.start.weights is None:
            if not trainer.restore() and not training.do_train:
                raise ValueError(
                    f"{self.folder} holds no checkpoint; train first, or give a fine-tuned model "
                    f"as --init_checkpoint."
                )
            return
        allow_missing = starts_of_names(training.allow_missing)
        if not self.start.num_labels:
            if not training.do_train and self.program.needs_head:
                raise ValueError(
                    f"{training.init_checkpoint} has no {self.program.head} head: train first, or "
                    f"give the --output_dir of a run."
                )
            allow_missing += ("cls/",)
        self.program.load_initial_weights(trainer.task.model, self.start.weights, allow_missing)
        # Arrays as large as the model: not kept while it trains.
        self.start = self.start._replace(
            weights=dataclasses.replace(self.start.weights, weights={})
        )

    def train_and_use(self, trainer: FineTuner, examples: Examples) -> None:
        """Trains, then evaluates and predicts with the chosen checkpoint."""
        _, _, _, training, tuning, _ = self.configs
        if training.do_train:
            trainer.train()
        is_judged = training.eval_steps if training.do_train else self.start.weights is None
        if tuning.use_best_checkpoint and is_judged:
            if step := trainer.directory.restore_best():
                logging.info("Using the best checkpoint, of step %d.", step)
                trainer.step = step
        outputs: dict[int, Outputs] = {}  # By the id() of the examples: a file may be both.
        if training.do_eval:
            if not examples.eval:
                raise ValueError("--do_eval needs examples with labels; give --eval_file.")
            for chosen in examples.eval.values():
                outputs[id(chosen)] = trainer.predict(chosen.rows, training.eval_batch_size)
            self.results = self.judge(trainer, "eval", examples.eval, outputs)
        labelled = {}
        for name, chosen in examples.predict.items() if tuning.do_predict else ():
            if chosen.is_labelled and id(chosen) not in outputs:
                labelled[name] = chosen
            found = outputs.get(id(chosen)) or trainer.predict(
                chosen.rows, tuning.predict_batch_size
            )
            outputs[id(chosen)] = found
            if trainer.is_chief:
                self.program.write_predictions(self.folder, trainer.task, name, chosen, found)
        if labelled:
            self.judge(trainer, "predict", labelled, outputs)

    def judge(
        self, trainer: FineTuner, use: str, chosen: dict[str, Any], outputs: dict[int, Outputs]
    ) -> dict[str, float]:
        """Evaluates the examples of a file; writes its results, and curves.png for the run's own
        file.

        Args:
          trainer: whose step the results are of.
          use: eval or predict.
          chosen: examples by name.
          outputs: of the model, by the id() of the examples.

        Returns:
          Metrics by name, those of the second examples and so on behind the examples' name.
        """
        file = self.program.files[use]
        results: dict[str, float] = {}
        ending = ending_of(self.folder, file, use)
        for name, examples in chosen.items():
            found = trainer.task.metrics(examples, outputs[id(examples)])
            results |= {f"{name}_{key}" if name else key: value for key, value in found.items()}
            if trainer.is_chief:
                texts = self.program.report(trainer.task, examples, outputs[id(examples)])
                if "report.txt" in texts:
                    texts["report.txt"] = f"{file}, step {trainer.step}\n{texts['report.txt']}"
                write_texts(self.folder, texts, f"{ending}_{name}" if name else ending)
        if trainer.is_chief:
            start = self.program.results_start
            text = results_text(file, trainer.step, results, start)
            write_texts(self.folder, {"eval_results.txt": text}, ending)
            if not ending:
                self.note(trainer.step, results)
            logging.info("Evaluation of %s at step %d:", file, trainer.step)
            for name, value in results.items():
                logging.info("  %-24s %.4f", name, value)
        return results

    def note(self, step: int, results: dict[str, float]) -> None:
        """Adds an evaluation of the run's own file to those during training, in curves.png."""
        if self.configs.training.do_train:
            note_evaluation(self.folder, step, results)
        names = ("metrics.jsonl", "eval_metrics.jsonl")
        steps, evaluations = (read_metrics(self.folder / name) for name in names)
        draw_curves(self.folder / "curves.png", self.program.plot_titles, steps, evaluations, {})


def texts_per_row(train: Any) -> int:
    """Returns how many texts a row to train on holds: choices, documents of a list, a pair's."""
    own = getattr(train, "texts_per_row", 0)
    return own or getattr(getattr(train, "rows", None), "num_choices", 0) or 1


def make_progress(configs: Configs, examples: Examples) -> Progress:
    """Makes the report of rates; tokens are pieces without padding."""
    steps, batch_size = configs.optimizer.num_train_steps, configs.training.train_batch_size
    rows = examples.train.rows if examples.train else None
    tokens = rows.num_pieces / len(rows) if rows else 0
    return Progress(steps, batch_size, tokens, 0.0, 0.0)
