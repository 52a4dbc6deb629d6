"""`run_classifier --few_shot`: contrastive training of an embedder, then a head on its vectors.

    --unlabelled_file --TSDAE--> OUT/domain                   (only if given)
    pairs of training examples --same_label--> OUT/embedder   (a run of run_retriever)
    vectors of training examples --logistic regression--> OUT (a run of run_classifier)

The first two are runs with checkpoints; the same command resumes one that was interrupted.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.run_record import has_checkpoints
from bert_tf.config import OptimizerConfig, TrainingConfig, config_flags
from bert_tf.config.fine_tuning_config import FEW_SHOT_BATCH_SIZE, FEW_SHOT_RATE, FineTuningConfig
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.base.programs.fine_tuner import FineTuner
from bert_tf.tasks.base.programs.program import Configs, Examples
from bert_tf.tasks.base.programs.run import Run
from bert_tf.tasks.classification.few_shot import classifier_config, fit_head
from bert_tf.tasks.classification.inputs import LabelledTexts
from bert_tf.tasks.classification.label_arrays import label_array
from bert_tf.tasks.classification.pairs import pair_batch_size, pair_examples, pair_loss
from bert_tf.tasks.classification.program import Classifier
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.program import DenoisingRetriever, Retriever


class EmbedderOfPairs(Retriever):
    """`Retriever` of a symmetric task: texts have no prompts."""

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """See `Program`; also refuses embedders whose vectors no classifier computes."""
        super().receive_weights(weights)
        self.embedding = dataclasses.replace(self.embedding, prompts={}, default_prompt=None)
        classifier_config(self.configs.model, self.embedding)


class FewShotClassifier(Classifier):
    """`Classifier` with the pooling and the length of its embedder."""

    needs_pooler = False  # The head reads no pooler's output.
    default_lengths: tuple[int, int] | None = None  # The length is the embedder's.

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Takes pooling and length from the embedder."""
        super().receive_weights(weights)
        if weights is None or weights.embedding is None:
            return
        configs = self.configs
        model = classifier_config(configs.model, weights.embedding)
        data = dataclasses.replace(configs.data, max_seq_length=weights.embedding.max_seq_length)
        self.configs = configs._replace(model=model, data=data)


class FewShotRun(Run):
    """The run of the head, on the vectors of the embedder.

    Args:
      embedder: run directory of the embedder, from which an unfinished run starts.
    """

    def __init__(self, program: FewShotClassifier, configs: Configs, embedder: str) -> None:
        super().__init__(program, started_from(configs, embedder))
        self.problem_type = program.kind
        # The record names the weights of the command; pooling and length are the embedder's.
        data = dataclasses.replace(configs.data, max_seq_length=self.configs.data.max_seq_length)
        self.configs = configs._replace(model=self.configs.model, data=data)
        program.configs = self.configs

    def train(self, trainer: FineTuner, examples: Examples) -> None:
        """Fits the head, and saves the classifier as the last checkpoint."""
        if trainer.is_finished():
            return
        fit_head(trainer.task.model, examples.train, self.problem_type)
        # The head is fitted at once, so that the run is at its last step.
        trainer.step = trainer.num_train_steps
        with contextlib.closing(trainer.directory):
            trainer.save()


def run_few_shot(
    configs: Configs,
    files: dict[str, str],
    texts: LabelledTexts,
    unlabelled: list[EmbeddingExample],
) -> int:
    """Trains the embedder and the head, then evaluates and predicts; returns the exit status."""
    folder = pathlib.Path(configs.training.output_dir)
    configs = with_defaults(configs, len(texts.splits["train"]))
    strategy: Any = None  # All runs share one; see `tasks.base.programs.run.run_program`.
    # A saved classifier needs no embedder any more.
    if not has_checkpoints(folder):
        loss = pair_loss(configs.task.pair_sampling)
        stages: dict[str, tuple[type[Retriever], str, list[EmbeddingExample]]] = {}
        if unlabelled:
            stages["domain"] = (DenoisingRetriever, "denoising", unlabelled)
        stages["embedder"] = (EmbedderOfPairs, loss, pairs_of(configs, texts))
        source = configs.training.init_checkpoint
        for name, (program, loss, examples) in stages.items():
            logging.info("Few-shot training: %s, %d examples.", name, len(examples))
            stage = stage_configs(configs, folder / name, source, loss)
            run = Run(program(stage, {"train": name}, {"train": examples}), stage)
            if status := run.execute(strategy):
                return status
            strategy = run.strategy
            # The next stage starts from the weights of this one.
            source = str(folder / name)
    run = FewShotRun(FewShotClassifier(configs, files, texts), configs, str(folder / "embedder"))
    return run.execute(strategy)


def with_defaults(configs: Configs, num_texts: int) -> Configs:
    """Returns the configuration with SetFit's settings where no flag gives others."""
    given = {
        **config_flags.given(OptimizerConfig),
        **config_flags.given(TrainingConfig),
        **config_flags.given(FineTuningConfig),
    }
    optimizer, training, tuning = configs.optimizer, configs.training, configs.tuning
    if "learning_rate" not in given:
        optimizer = dataclasses.replace(optimizer, learning_rate=FEW_SHOT_RATE)
    if "train_batch_size" not in given:
        batch_size = pair_batch_size(FEW_SHOT_BATCH_SIZE, configs.task.pair_sampling, num_texts)
        training = dataclasses.replace(training, train_batch_size=batch_size)
    if "num_train_epochs" not in given:
        tuning = dataclasses.replace(tuning, num_train_epochs=1.0)
    return configs._replace(optimizer=optimizer, training=training, tuning=tuning)


def started_from(configs: Configs, source: str) -> Configs:
    """Returns the configuration of a run that starts from the weights of an earlier stage."""
    # The run directory of the earlier stage has a configuration and a vocabulary.
    training = dataclasses.replace(
        configs.training, init_checkpoint=source, bert_config_file="", keep_layers=""
    )
    return configs._replace(
        data=dataclasses.replace(configs.data, vocab_file=""),
        training=training,
        tuning=dataclasses.replace(configs.tuning, new_head=False),
    )


def stage_configs(configs: Configs, folder: pathlib.Path, source: str, loss: str) -> Configs:
    """Returns the configuration of one training of the embedder."""
    task = configs.task
    # Only the first stage starts from the checkpoint that the command names.
    if source != configs.training.init_checkpoint:
        configs = started_from(configs, source)
    training = dataclasses.replace(configs.training, output_dir=str(folder), do_eval=False)
    tuning = dataclasses.replace(
        configs.tuning,
        train_file=task.unlabelled_file if loss == "denoising" else configs.tuning.train_file,
        predict_file="",
        do_predict=False,
    )
    return configs._replace(
        data=dataclasses.replace(configs.data, eval_file=""),
        training=training,
        tuning=tuning,
        task=RetrieverConfig(retrieval_loss=loss),
    )


def pairs_of(configs: Configs, texts: LabelledTexts) -> list[EmbeddingExample]:
    """Returns the pairs of the training examples; see `pair_examples`."""
    examples = texts.splits["train"]
    targets = label_array(examples, texts.choose_labels(()), texts.kind)
    return pair_examples(
        [example.text_a for example in examples],
        [example.source for example in examples],
        targets,
        configs.task.pair_sampling,
        configs.task.pairs_per_example,
        configs.data.random_seed,
    )
