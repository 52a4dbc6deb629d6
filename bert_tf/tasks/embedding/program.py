"""The retriever program: reads texts that belong together; trains and evaluates an embedder."""

import dataclasses
import functools
import pathlib
from typing import Any

from absl import logging

from bert_tf import config_flags
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig, read_embedding, write_embedding
from bert_tf.config import DataConfig, ModelConfig
from bert_tf.fine_tuning.program import Examples, Program, RowsTaskData
from bert_tf.fine_tuning.teacher import read_known, teacher_outputs
from bert_tf.fine_tuning_config import RetrieverConfig, comma_numbers
from bert_tf.metrics.trec import run_lines
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.task import (
    EmbeddingTask,
    RankingExamples,
    TextPacker,
    make_ranking_examples,
    make_scored_examples,
    make_training_examples,
)
from bert_tf.text.tokenization import Tokenizer

IN_BATCH = ("in_batch", "symmetric")
OF_SCORES = ("cosent", "cosine", "margin_mse")
OF_NEGATIVES = ("triplet", "margin_mse")


class Retriever(Program):
    """See `Program`."""

    task_class = EmbeddingTask
    head = "embedding"
    needs_pooler = False
    needs_head = False
    results_start = ""
    plot_titles = {
        "loss": "loss",
        "teacher_loss": "distance from the teacher",
        "accuracy": "positives found in the batch",
        "ndcg@10": "nDCG@10",
        "recall@100": "recall@100",
        "mrr@10": "MRR@10",
        "map@100": "MAP@100",
        "spearman": "Spearman's correlation",
    }

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Finds how the model embeds: as it states, unless flags say otherwise."""
        task: RetrieverConfig = self.configs.task
        config, data = self.configs.model, self.configs.data
        if weights is None:
            own = read_embedding(pathlib.Path(self.configs.training.output_dir))
        else:
            own = weights.embedding
        longest = config.longest_row
        embedding = own or EmbeddingConfig(max_seq_length=min(data.max_seq_length, longest))
        changed: dict[str, Any] = {}
        if task.embedding_pooling:
            if own and own.pooling != (task.embedding_pooling,):
                raise ValueError(
                    f"--embedding_pooling={task.embedding_pooling}, but the model pools by "
                    f"{', '.join(own.pooling)}; leave it out."
                )
            changed["pooling"] = (task.embedding_pooling,)
        elif own is None:
            logging.warning("The model does not state its pooling: the mean of the pieces is used.")
        if "max_seq_length" in config_flags.given(DataConfig):
            changed["max_seq_length"] = data.max_seq_length
        prompts = {"query": task.query_prompt, "document": task.document_prompt}
        if given := {side: text for side, text in prompts.items() if text}:
            changed["prompts"] = {**embedding.prompts, **given}
        self.embedding = dataclasses.replace(embedding, **changed)
        logging.info(
            "Embeddings of %d numbers: %s%s, %d dense layers, texts up to %d pieces, compared by "
            "%s.",
            *(self.embedding.dimension(config.hidden_size), ", ".join(self.embedding.pooling)),
            *(", normalized" if self.embedding.normalize else "", len(self.embedding.dense)),
            *(self.embedding.max_seq_length, self.embedding.similarity),
        )
        length = dataclasses.replace(data, max_seq_length=self.embedding.max_seq_length)
        self.configs = self.configs._replace(data=length)

    def write_record(self, folder: pathlib.Path) -> None:
        """Writes embedder.json."""
        write_embedding(folder, self.embedding)

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        """Makes rows of the texts."""

        def packer() -> TextPacker:
            return TextPacker(tokenizer, self.embedding)

        made: dict[str, Any] = {}
        if "train" in self.files:
            made["train"] = self.read_training(packer())
        if "eval" in self.files:
            if self.configs.data.eval_file:
                scored = self.inputs["eval"]
                made["eval"] = make_scored_examples(packer(), scored)
                shown: tuple[Any, ...] = (len(scored), "scored pairs", len(made["eval"].rows))
            else:
                beir = self.inputs["eval"]
                made["eval"] = make_ranking_examples(packer(), beir)
                shown = (len(beir.queries), "queries", len(made["eval"].rows))
            logging.info(
                "eval: %d %s, %d texts (%d cut to %d pieces).",
                *(*shown, made["eval"].num_cut, self.embedding.max_seq_length),
            )
        return Examples.of_files(made)

    def read_training(self, packer: TextPacker) -> Any:
        """Makes what to train on: an object with `rows`."""
        task: RetrieverConfig = self.configs.task
        examples = self.inputs["train"]
        self.loss_name = task.retrieval_loss or natural_loss(examples)
        check_examples(examples, self.loss_name)
        self.check_dropout(examples, packer)
        most = max(len(example.negatives) for example in examples)
        count = min(task.num_negatives, most)
        if self.loss_name in OF_NEGATIVES and not count:
            raise ValueError(f"--num_negatives=0, but {self.loss_name} needs negatives.")
        made = make_training_examples(packer, examples, count, self.loss_name in IN_BATCH)
        logging.info(
            "train: %d examples of a query, a positive and up to %d negatives, %d texts (%d "
            "cut to %d pieces); loss %s.",
            *(len(examples), count, len(made.rows.rows), made.num_cut),
            *(self.embedding.max_seq_length, self.loss_name),
        )
        return made

    def check_dropout(self, examples: list[EmbeddingExample], packer: TextPacker) -> None:
        """Raises ValueError if most texts are their own positive, and have but one embedding."""
        config, prompts = self.configs.model, set(packer.prompts.values())
        same = [example for example in examples if example.query == example.positive]
        has_dropout = config.hidden_dropout_prob or config.attention_probs_dropout_prob
        if not self.configs.task.learn_labels:  # The teacher's embedding is learned.
            return
        if 2 * len(same) > len(examples) and not has_dropout and len(prompts) == 1:
            raise ValueError(
                f"{same[0].source} is a text alone, whose two embeddings differ by dropout alone "
                "(SimCSE), and the model has none; give --hidden_dropout_prob=0.1."
            )

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Any
    ) -> None:
        """Adds `teacher_embedding` float32 [R, D] to the texts, as the teacher embeds them."""
        path, own = self.configs.task.teacher, self.embedding
        teacher = read_known(self.configs, tokenizer, head="")
        given = teacher.embedding or dataclasses.replace(own, dense=())
        sizes = (
            given.dimension(teacher.config.hidden_size),
            own.dimension(self.configs.model.hidden_size),
        )
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"--teacher={path} embeds in {sizes[0]} numbers, the student in {sizes[1]}; give a "
                "student of the same size, for example some of the teacher's layers."
            )
        if given.prompts != own.prompts:
            raise ValueError(
                f"--teacher={path} has the prompts {given.prompts}, the student {own.prompts}; "
                "give it the same ones: --query_prompt, --document_prompt."
            )
        options: dict[str, Any] = {"use_pooler": False, "unpad": True, "dtype": "float32"}
        model = BertEmbedder.from_checkpoint(teacher, embedding=given, **options)
        rows = examples.train.rows.rows
        found = teacher_outputs(model, teacher, rows, self.configs, strategy)
        rows.labels["teacher_embedding"] = found

    def make_task(
        self, config: ModelConfig, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> EmbeddingTask:
        """Makes the model and its task."""
        self.check_rows()
        model = self.make_model(config, **options)
        is_trained = "train" in self.files
        return self.task_class(
            model,
            *data,
            loss=self.make_loss(model) if is_trained else None,
            is_ranking=is_trained and self.loss_name in IN_BATCH,
            best_metric="spearman" if self.configs.data.eval_file else "ndcg@10",
            ignore_identical_ids=self.configs.task.ignore_identical_ids,
            teacher=self.configs.task,
        )

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Makes the model."""
        return BertEmbedder(config, self.embedding, **options)

    def make_loss(self, model: Any) -> losses.Loss:
        """Returns the loss that the model is trained with."""
        return make_loss(self.loss_name, self.configs.task, model)

    def check_rows(self) -> None:
        """Raises ValueError if rows are to be packed."""
        if self.configs.training.do_train and self.configs.training.pack_rows:
            raise ValueError("--pack_rows is not for embeddings; leave it out.")

    def report(self, task: EmbeddingTask, examples: Any, outputs: Any) -> dict[str, str]:
        """Returns run.trec, the documents found in a collection, for `search.trec` and others."""
        if not isinstance(examples, RankingExamples):
            return {}
        run = task.search(examples, outputs)
        try:
            return {"run.trec": "".join(run_lines(run))}
        except ValueError as error:
            logging.warning("No run.trec is written: %s", error)
            return {}

    def write_predictions(
        self, folder: pathlib.Path, task: Any, name: str, examples: Any, outputs: Any
    ) -> None:
        """Nothing is predicted; see `run_retriever.find_files`."""
        raise NotImplementedError


def natural_loss(examples: list[EmbeddingExample]) -> str:
    """Returns the default loss for a form of examples."""
    if not examples[0].scores:
        return "in_batch"
    return "margin_mse" if any(example.negatives for example in examples) else "cosent"


def check_examples(examples: list[EmbeddingExample], loss: str) -> None:
    """Raises ValueError naming an example that lacks what a loss needs."""
    for example in examples:
        if loss in OF_NEGATIVES and not example.negatives:
            raise ValueError(f"{example.source} has no negative, which the loss {loss} needs.")
        if loss in OF_SCORES and not example.scores:
            raise ValueError(f"{example.source} has no score, which the loss {loss} needs.")
        if loss in ("cosent", "cosine") and example.negatives:
            raise ValueError(
                f"{example.source} has negatives, but the loss {loss} is for pairs; leave them out."
            )
        if loss == "cosine" and not -1.0 <= example.scores[0] <= 1.0:
            raise ValueError(
                f"{example.source}: the score is {example.scores[0]}, expected a cosine, -1 to 1; "
                "divide by the highest score, or give --retrieval_loss=cosent, which accepts any "
                "score."
            )


def make_loss(name: str, task: RetrieverConfig, model: BertEmbedder) -> losses.Loss:
    """Returns the loss with a name, configured by the flags.

    Raises:
      ValueError: if --matryoshka_dims has a size that the model does not have.
    """
    loss = make_losses(task)[name]
    if not task.matryoshka_dims:
        return loss
    sizes = comma_numbers(task.matryoshka_dims, "--matryoshka_dims")
    weights = comma_numbers(task.matryoshka_weights, "--matryoshka_weights")
    factors = weights or [1.0] * len(sizes)
    wrong = [size for size in sizes if size > model.dimension]
    if wrong:
        raise ValueError(
            f"--matryoshka_dims: {wrong[0]:g} is not a size for embeddings of {model.dimension} "
            f"numbers."
        )
    return losses.matryoshka(loss, [int(size) for size in sizes], factors)


def make_losses(task: RetrieverConfig, similarity: str = "cosine") -> dict[str, losses.Loss]:
    """Returns all losses by name, with what the flags say of them.

    Args:
      task: the flags.
      similarity: of the losses over a batch, cosine or dot.
    """
    in_batch = functools.partial(
        losses.in_batch_negatives, scale=task.loss_scale_factor, similarity=similarity
    )
    return {
        "in_batch": in_batch,
        "symmetric": functools.partial(in_batch, symmetric=True),
        "cosent": functools.partial(losses.cosent, scale=task.loss_scale_factor),
        "cosine": losses.cosine_similarity,
        "triplet": functools.partial(
            losses.triplet, margin=task.triplet_margin, distance=task.triplet_distance
        ),
        "margin_mse": losses.margin_mse,
    }
