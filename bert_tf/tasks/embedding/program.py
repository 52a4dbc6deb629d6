"""The retriever program: reads texts that belong together; trains and evaluates an embedder."""

import dataclasses
import pathlib
from typing import Any

from absl import logging

from bert_tf import config_flags
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import EmbeddingConfig, read_embedding, write_embedding
from bert_tf.config import DataConfig, ModelConfig
from bert_tf.fine_tuning.program import Examples, Program, RowsTaskData
from bert_tf.fine_tuning.teacher import read_known, teacher_outputs
from bert_tf.fine_tuning_config import RetrieverConfig
from bert_tf.metrics.trec import run_lines
from bert_tf.tasks.embedding import losses
from bert_tf.tasks.embedding.features import (
    RankingExamples,
    TextPacker,
    make_ranking_examples,
    make_scored_examples,
    prepare_training,
)
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.task import EmbeddingTask
from bert_tf.text.tokenization import Tokenizer
from bert_tf.type_names import Model, Outputs, Strategy


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
            logging.warning("The model does not state its pooling: the mean of the tokens is used.")
        if "max_seq_length" in config_flags.given(DataConfig):
            changed["max_seq_length"] = data.max_seq_length
        prompts = {"query": task.query_prompt, "document": task.document_prompt}
        if given := {side: text for side, text in prompts.items() if text}:
            changed["prompts"] = {**embedding.prompts, **given}
        self.embedding = dataclasses.replace(embedding, **changed)
        logging.info(
            "Embeddings of %d numbers: %s%s, %d dense layers, texts up to %d tokens, compared by "
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
                "eval: %d %s, %d texts (%d cut to %d tokens).",
                *(*shown, made["eval"].num_cut, self.embedding.max_seq_length),
            )
        return Examples.of_files(made)

    def read_training(self, packer: TextPacker) -> Any:
        """Makes what to train on: an object with `rows`."""
        config = self.configs.model
        has_dropout = bool(config.hidden_dropout_prob or config.attention_probs_dropout_prob)
        made, self.loss_name = prepare_training(
            packer, self.inputs["train"], self.configs.task, has_dropout
        )
        return made

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
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
            is_ranking=is_trained and self.loss_name in losses.IN_BATCH,
            best_metric="spearman" if self.configs.data.eval_file else "ndcg@10",
            ignore_identical_ids=self.configs.task.ignore_identical_ids,
            teacher=self.configs.task,
        )

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Makes the model."""
        return BertEmbedder(config, self.embedding, **options)

    def make_loss(self, model: Model) -> losses.Loss:
        """Returns the loss that the model is trained with."""
        return losses.make_loss(self.loss_name, self.configs.task, model.dimension)

    def check_rows(self) -> None:
        """Raises ValueError if rows are to be packed."""
        if self.configs.training.do_train and self.configs.training.pack_rows:
            raise ValueError("--pack_rows is not for embeddings; leave it out.")

    def report(self, task: EmbeddingTask, examples: Any, outputs: Outputs) -> dict[str, str]:
        """Returns run.trec, the documents found in a collection, for `search.trec` and others."""
        if not isinstance(examples, RankingExamples):
            return {}
        run = task.search(examples, outputs)
        try:
            return {"run.trec": "".join(run_lines(run))}
        except ValueError as error:
            logging.warning("No run.trec is written: %s", error)
            return {}
