"""A fine-tuning run: examples, model, training, evaluation, predictions.

    flags, --init_checkpoint --> vocabulary, labels --> examples in memory --> model with its head
        --> training (resumable) --> evaluation, reports --> predictions

A program such as `run_classifier.py` defines its examples and the evaluation of its model; see
`Program`.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

import keras
from absl import logging

from bert_tf.checkpoints import run_record
from bert_tf.checkpoints.google import write_labels
from bert_tf.checkpoints.run_checkpoints import record_identity
from bert_tf.checkpoints.start import starts_of_names
from bert_tf.system.type_names import Strategy
from bert_tf.tasks.base.examples.known_texts import KnownTexts
from bert_tf.tasks.base.examples.rows import TaskExamples, length_buckets
from bert_tf.tasks.base.programs import defaults
from bert_tf.tasks.base.programs.defaults import with_sizes
from bert_tf.tasks.base.programs.fine_tuner import FineTuner
from bert_tf.tasks.base.programs.initial_state import fit_head, load_initial_state
from bert_tf.tasks.base.programs.program import Configs, Examples, Program
from bert_tf.tasks.base.programs.results import ending_of, results_text, write_texts
from bert_tf.tasks.base.programs.rows_task import CollectedOutputs
from bert_tf.text.text_counts import Remedy, TextCounts
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.typed_tokens import CountingTokenizer
from bert_tf.training.curves import draw_curves
from bert_tf.training.distribution import is_chief, make_strategy
from bert_tf.training.evaluator import note_evaluation
from bert_tf.training.layer_rates import freeze
from bert_tf.training.metrics_log import line_interval, read_metrics
from bert_tf.training.optimizers import build_optimizer
from bert_tf.training.precision import choose_precision
from bert_tf.training.reporting import Progress
from bert_tf.training.seeds import write_summary
from bert_tf.training.stopping import Stopped


def run_program(program: Program, configs: Configs) -> int:
    """Runs once for each seed; returns the exit status.

    For several seeds, it writes the mean and the spread of the results.
    """
    if configs.tuning.num_seeds == 1:
        return Run(program, configs).execute()
    folder = pathlib.Path(configs.training.output_dir)
    first = configs.data.random_seed
    results: dict[int, dict[str, float]] = {}
    # All runs share a strategy: TensorFlow confuses the all-reduces of several in one process.
    strategy = None
    for seed in range(first, first + configs.tuning.num_seeds):
        logging.info("Seed %d (%d of %d)", seed, len(results) + 1, configs.tuning.num_seeds)
        output_dir = str(folder / f"seed-{seed}")
        seed_configs = configs._replace(
            data=dataclasses.replace(configs.data, random_seed=seed),
            training=dataclasses.replace(configs.training, output_dir=output_dir),
            tuning=dataclasses.replace(configs.tuning, num_seeds=1),
        )
        seed_run = Run(program, seed_configs)
        if status := seed_run.execute(strategy):
            return status
        results[seed] = seed_run.results
        strategy = seed_run.strategy
    write_summary(folder, results)
    return 0


class Run:
    """One run of a program with one seed.

    Attributes:
      results: the results of the final evaluation.
      strategy: the strategy that the run used.
    """

    def __init__(self, program: Program, configs: Configs) -> None:
        self.program = program
        configs = defaults.with_recorded(configs)
        self.folder = pathlib.Path(configs.training.output_dir)
        self.start = load_initial_state(configs, program)
        program.configs = configs._replace(model=self.start.config)
        program.receive_weights(self.start.weights)
        self.configs = program.configs
        self.results: dict[str, float] = {}
        self.strategy: Strategy | None = None

    def execute(self, strategy: Strategy | None = None) -> int:
        """Trains, evaluates and predicts; returns the exit status. Creates a strategy if None."""
        strategy = strategy or make_strategy(self.configs.training)
        self.strategy = strategy
        with contextlib.ExitStack() as stack:
            if self.configs.training.do_train and is_chief(strategy):
                stack.enter_context(run_record.only_training(self.configs.training.output_dir))
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

    def prepare(self, strategy: Strategy) -> tuple[FineTuner, Examples]:
        """Reads the examples and builds model, optimizer and trainer."""
        start = self.start
        tokenizer = CountingTokenizer(make_tokenizer(start.vocab, start.config.do_lower_case))
        examples = self.read_examples(tokenizer)
        start = fit_head(start, examples.labels, self.configs.training)
        self.start = start
        self.set_sizes(examples, strategy)
        training = self.configs.training
        if training.do_train:
            run_record.check_same_run(training.output_dir, *self.configs)
        # Taken before the teacher adds its outputs, whose last bits may differ in another run.
        fingerprint = examples.train.rows.fingerprint() if examples.train else ""
        task_config = self.configs.task
        if training.do_train and "teacher" in task_config.names() and task_config.teacher:
            self.program.compute_teacher_outputs(examples, tokenizer, strategy)
        trainer = self.make_trainer(examples, strategy, fingerprint)
        self.load_weights(trainer)
        # The record is written last: a run that is rejected above leaves no record.
        if training.do_train and is_chief(strategy):
            write_labels(self.folder, examples.labels)
            self.program.write_record()
            run_record.write_run_record(training.output_dir, start.vocab, *self.configs)
            record_identity(self.folder)
        return trainer, examples

    def read_examples(self, tokenizer: CountingTokenizer) -> Examples:
        """Reads the examples, and chooses the settings that depend on them."""
        labels = self.start.labels
        if self.start.num_labels > 1 and not labels and not self.configs.training.do_train:
            # A head from elsewhere without names: the labels are their indices.
            labels = tuple(map(str, range(self.start.num_labels)))
        least, most = self.program.default_lengths or (0, 0)
        chosen = defaults.settings_to_choose(self.configs) if most else set()
        weights = self.start.weights
        self.configs = defaults.before_reading(chosen, most, self.configs, weights)
        self.program.configs = self.configs
        examples = self.program.read(tokenizer, labels)
        tokenizer.typed.log()
        log_known_texts(examples)
        # A tagger's labels belong to words, of which each text has many, so they do not count here.
        num_classes = len(examples.labels) if self.program.head == "classifier" else 0
        self.configs = defaults.after_reading(chosen, least, self.configs, examples, num_classes)
        self.program.configs = self.configs
        return examples

    def set_sizes(self, examples: Examples, strategy: Strategy) -> None:
        """Sets the precision, and the steps and batch sizes that depend on the examples."""
        training = choose_precision(self.configs.training, strategy)
        self.configs = with_sizes(
            self.configs._replace(training=training),
            num_rows=len(examples.train.rows) if examples.train else 0,
            strategy=strategy,
            texts_per_row=texts_per_row(examples.train),
            predictions_per_row=getattr(examples.train, "predictions_per_row", 0),
        )

    def make_trainer(self, examples: Examples, strategy: Strategy, fingerprint: str) -> FineTuner:
        """Builds model, task, optimizer and trainer."""
        _, data, optimization, training, tuning, _ = self.configs
        # The seed and the order in which layers are made determine the initial weights.
        keras.utils.set_random_seed(data.random_seed)
        keras.mixed_precision.set_global_policy(training.precision)
        # XLA compiles packed rows for each number of rows, so there is only one length.
        has_one_length = tuning.pad_to_max_length or training.pack_rows and training.jit_compile
        buckets = length_buckets(data.max_seq_length, training.jit_compile, has_one_length)
        # XLA needs fixed lengths. Without XLA, only attention computes on padding.
        is_padded = training.jit_compile or tuning.pad_to_max_length
        rows = examples.train.rows if examples.train else None
        eval_examples = next(iter(examples.eval.values()), None)
        with strategy.scope():
            task = self.program.make_task(
                examples.labels,
                (rows, eval_examples, buckets, data.random_seed),
                recompute=training.recompute,
                unpad=not is_padded,
            )
            freeze(task.model, tuning.frozen_layers)
            optimizer = build_optimizer(optimization)
            optimizer.build(task.model.trainable_variables)
        self.program.task = task
        interval = line_interval(training.log_steps, optimization.num_train_steps)
        return FineTuner(
            task,
            optimizer,
            strategy,
            dataclasses.replace(training, log_steps=interval),
            num_train_steps=optimization.num_train_steps,
            random_seed=data.random_seed,
            progress=make_progress(self.configs, examples),
            data_fingerprint=fingerprint,
        )

    def load_weights(self, trainer: FineTuner) -> None:
        """Loads the run's newest checkpoint, or else the initial weights."""
        training = self.configs.training
        if self.start.weights is None:
            if not trainer.restore() and not training.do_train:
                raise ValueError(
                    f"{self.folder} has no checkpoint; train first, or give a fine-tuned model "
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
        # The arrays are as large as the model, so they are freed before training.
        without_arrays = dataclasses.replace(self.start.weights, weights={})
        self.start = self.start._replace(weights=without_arrays)

    def train_and_use(self, trainer: FineTuner, examples: Examples) -> None:
        """Trains, then evaluates and predicts with the best or the last checkpoint."""
        _, _, _, training, tuning, _ = self.configs
        if training.do_train:
            if trainer.is_chief and not trainer.is_finished():
                # Chosen for the weights before.
                (self.folder / run_record.CALIBRATION_NAME).unlink(missing_ok=True)
            self.train(trainer, examples)
        # Only evaluations during training score checkpoints, and only those of this run.
        has_scores = training.eval_steps if training.do_train else self.start.weights is None
        if tuning.use_best_checkpoint and has_scores:
            if step := trainer.directory.restore_best():
                logging.info("Using the best checkpoint, of step %d.", step)
                trainer.step = step
        # By the id() of the examples, because a file may be evaluated and predicted.
        outputs: dict[int, CollectedOutputs] = {}

        def compute(dataset: Any) -> CollectedOutputs:
            if id(dataset) not in outputs:
                outputs[id(dataset)] = trainer.predict(dataset.rows, training.eval_batch_size)
            return outputs[id(dataset)]

        self.program.before_evaluation(examples, compute, trainer.is_chief)
        if training.do_eval:
            if not examples.eval:
                raise ValueError("--do_eval needs examples with labels; give --eval_file.")
            for dataset in examples.eval.values():
                compute(dataset)
            self.results = self.evaluate(trainer, "eval", examples.eval, outputs)
        if tuning.do_predict:
            self.predict(trainer, examples.predict, outputs)

    def train(self, trainer: FineTuner, examples: Examples) -> None:
        """Trains to the last step; a subclass may find the weights in another way."""
        trainer.train()

    def predict(
        self, trainer: FineTuner, datasets: dict[str, Any], outputs: dict[int, CollectedOutputs]
    ) -> None:
        """Writes predictions, and evaluates labelled examples that are not evaluated yet."""
        labelled = {}
        for name, dataset in datasets.items():
            if dataset.is_labelled and id(dataset) not in outputs:
                labelled[name] = dataset
            if id(dataset) not in outputs:
                batch_size = self.configs.tuning.predict_batch_size
                outputs[id(dataset)] = trainer.predict(dataset.rows, batch_size)
            if trainer.is_chief:
                self.program.write_predictions(name, dataset, outputs[id(dataset)])
        if labelled:
            self.evaluate(trainer, "predict", labelled, outputs)

    def evaluate(
        self,
        trainer: FineTuner,
        use: str,
        datasets: dict[str, Any],
        outputs: dict[int, CollectedOutputs],
    ) -> dict[str, float]:
        """Evaluates the examples of a file, writes the results, and returns metrics by name.

        The name of examples, unless it is "", is a prefix. `outputs` are those of the model, by the
        id() of the examples. The results of the run's evaluation file are also drawn.
        """
        file = self.program.files[use]
        results: dict[str, float] = {}
        ending = ending_of(self.folder, file, use)
        for name, examples in datasets.items():
            prefix = f"{name}_" if name else ""
            for key, value in trainer.task.metrics(examples, outputs[id(examples)]).items():
                results[prefix + key] = value
            if trainer.is_chief:
                texts = self.program.report(examples, outputs[id(examples)])
                if "report.txt" in texts:
                    texts["report.txt"] = f"{file}, step {trainer.step}\n{texts['report.txt']}"
                ending_of_name = f"{ending}_{name}" if name else ending
                write_texts(self.folder, texts, ending_of_name)
        if trainer.is_chief:
            text = results_text(file, trainer.step, results, self.program.results_start)
            write_texts(self.folder, {"eval_results.txt": text}, ending)
            if not ending:
                self.add_to_curves(trainer.step, results)
            shown = None if ending else results
            for name, examples in datasets.items():
                of_name = f"{ending}_{name}" if name else ending
                self.program.after_evaluation(of_name, examples, outputs[id(examples)], shown)
                shown = None
            logging.info("Evaluation of %s at step %d:", file, trainer.step)
            for name, value in results.items():
                logging.info("  %-24s %.4f", name, value)
        return results

    def add_to_curves(self, step: int, results: dict[str, float]) -> None:
        """Records an evaluation of the run's evaluation file, and draws curves.png."""
        if self.configs.training.do_train:
            # The evaluations before were without temperature, and so is this point of the curve.
            loss = results.get("uncalibrated_loss", results.get("loss"))
            note_evaluation(
                self.folder, step, results if loss is None else {**results, "loss": loss}
            )
        draw_curves(
            self.folder / "curves.png",
            self.program.plot_titles,
            training=read_metrics(self.folder / "metrics.jsonl"),
            evaluation=read_metrics(self.folder / "eval_metrics.jsonl"),
            baseline={},
        )


def log_known_texts(examples: Examples) -> None:
    """Logs how many texts to evaluate or to predict the training examples contain."""
    if examples.train is None:
        return
    known = KnownTexts(examples.train)
    compared: set[int] = set()
    for use, datasets in (("dev", examples.eval), ("test", examples.predict)):
        for name, dataset in datasets.items():
            if id(dataset) in compared:  # a file that is both evaluated and predicted
                continue
            compared.add(id(dataset))
            counts = TextCounts()
            counts.num_known, counts.num_compared = known.count(dataset)
            counts.log(f"{use} {name}".strip(), Remedy())


def texts_per_row(train: TaskExamples | None) -> int:
    """Returns the number of texts in a training example: choices, documents, or sides of a pair."""
    stated = getattr(train, "texts_per_row", 0)
    return stated or getattr(getattr(train, "rows", None), "num_choices", 0) or 1


def make_progress(configs: Configs, examples: Examples) -> Progress:
    """Returns the report of rates, which counts tokens without padding."""
    rows = examples.train.rows if examples.train else None
    return Progress(
        configs.optimizer.num_train_steps,
        configs.training.train_batch_size,
        tokens=rows.num_tokens / len(rows) if rows else 0,
        flops=0.0,
        peak=0.0,
    )
