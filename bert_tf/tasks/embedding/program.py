"""The programs of retrievers: read pairs or triplets of texts; train and evaluate an embedder."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf.checkpoints.checkpoint import HEADS, Checkpoint
from bert_tf.checkpoints.embedding import (
    DECODER,
    NUM_SPECIAL,
    EmbeddingConfig,
    read_embedding,
    write_embedding,
)
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.run_record import recorded
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.checkpoints.static_embeddings import MODEL2VEC_LENGTH, NO_LIMIT
from bert_tf.config import DataConfig, ModelConfig, config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.metrics.trec import run_lines
from bert_tf.network.pretrained import assign_checkpoint
from bert_tf.system.type_names import Model, Outputs, Strategy
from bert_tf.tasks.base.programs.program import Examples, Program, RowsTaskData
from bert_tf.tasks.base.programs.teacher import read_known, teacher_outputs
from bert_tf.tasks.embedding import features, losses
from bert_tf.tasks.embedding.inputs import data_sets_of
from bert_tf.tasks.embedding.late_interaction_model import BertLateInteraction, with_token_vectors
from bert_tf.tasks.embedding.loss_names import IN_BATCH, SCALES
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.splade_model import BertSplade, check_head
from bert_tf.tasks.embedding.task import (
    DenoisingTask,
    EmbeddingTask,
    LateInteractionTask,
    SpladeTask,
)
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser, check_blocks
from bert_tf.tasks.embedding.tsdae_noise import DenoisingExamples, make_denoising_examples
from bert_tf.text.text_counts import counting_texts
from bert_tf.text.tokenization import Tokenizer


class Retriever(Program):
    """See `Program`."""

    task_class: type[EmbeddingTask] = EmbeddingTask
    head = "embedding"
    needs_pooler = False
    needs_head = False
    results_start = ""
    similarity = "cosine"  # in losses
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
        """Defines the embedding: as the weights state, with the changes that flags request."""
        task: RetrieverConfig = self.configs.task
        config = self.configs.model
        data = self.configs.data
        if weights is None:
            # A resumed run.
            stated = read_embedding(self.folder)
        else:
            stated = weights.embedding
        embedding = self.choose_layers(stated)
        changed: dict[str, Any] = {}
        if "max_seq_length" in config_flags.given(DataConfig):
            changed["max_seq_length"] = data.max_seq_length
        elif embedding.max_seq_length >= NO_LIMIT:
            # Batches are padded to lengths up to this one.
            changed["max_seq_length"] = MODEL2VEC_LENGTH + NUM_SPECIAL
        prompts = {"query": task.query_prompt, "document": task.document_prompt}
        if given := {side: text for side, text in prompts.items() if text}:
            changed["prompts"] = {**embedding.prompts, **given}
        self.embedding = dataclasses.replace(embedding, **changed)
        logging.info(
            "Embeddings of %d numbers: %s%s, %d dense layers, texts up to %d tokens, compared by "
            "%s.",
            self.embedding.dimension(config.hidden_size),
            "of each token" if self.embedding.tokens else ", ".join(self.embedding.pooling),
            ", normalized" if self.embedding.normalize else "",
            len(self.embedding.dense),
            self.embedding.max_seq_length,
            self.embedding.similarity,
        )
        # The run pads texts to the length of the configuration, so that it must be the embedder's.
        self.set_length(self.embedding.max_seq_length)

    def choose_layers(self, stated: EmbeddingConfig | None) -> EmbeddingConfig:
        """Returns the embedding that the weights state, or else the default, as flags request."""
        pooling = self.configs.task.embedding_pooling
        if stated and stated.tokens:
            raise ValueError(
                "--init_checkpoint is a model of late interaction; give --embedding_type=colbert."
            )
        if stated and pooling and stated.pooling != (pooling,):
            raise ValueError(
                f"--embedding_pooling={pooling}, but the model pools by "
                f"{', '.join(stated.pooling)}; leave the flag out."
            )
        if stated is None and not pooling:
            logging.warning("The model does not state its pooling: the mean of the tokens is used.")
        longest = self.configs.model.longest_row
        length = min(self.configs.data.max_seq_length, longest)
        return stated or EmbeddingConfig((pooling or "mean",), max_seq_length=length)

    def set_length(self, length: int) -> None:
        """Sets the length of the run's rows, and the scale of the loss unless a flag gives it."""
        data = dataclasses.replace(self.configs.data, max_seq_length=length)
        task = self.configs.task
        if "loss_scale_factor" not in config_flags.given(RetrieverConfig):
            # The configuration is recorded, and a resumed run uses it.
            task = dataclasses.replace(task, loss_scale_factor=SCALES[self.similarity])
        self.configs = self.configs._replace(data=data, task=task)

    def write_record(self) -> None:
        """Writes embedder.json."""
        write_embedding(self.folder, self.embedding)

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        self.vocab = tokenizer.vocab
        examples: dict[str, Any] = {}
        remedy = self.text_remedy()
        if "train" in self.files:
            with counting_texts("train", remedy=remedy):
                examples["train"] = self.read_training(
                    features.TextPacker(tokenizer, self.embedding)
                )
        if "eval" in self.files:
            packer = features.TextPacker(tokenizer, self.embedding)
            evaluated: features.ScoredExamples | features.Collections
            with counting_texts("eval", remedy=remedy):
                if self.configs.data.eval_file:
                    scored = self.inputs["eval"]
                    evaluated = features.make_scored_examples(packer, scored)
                    counted = f"{len(scored)} scored pairs"
                else:
                    collections = self.inputs["eval"]
                    evaluated = features.make_collections(packer, collections)
                    num_queries = sum(len(beir.queries) for beir in collections.values())
                    counted = f"{num_queries} queries of {', '.join(collections)}"
            examples["eval"] = evaluated
            logging.info("eval: %s, %d texts.", counted, len(evaluated.rows))
        return Examples.of_files(examples)

    def read_training(self, packer: features.TextPacker) -> Any:
        """Returns the packed training examples, an object with `rows`."""
        config = self.configs.model
        has_dropout = bool(config.hidden_dropout_prob or config.attention_probs_dropout_prob)
        task = self.configs.task
        data_sets = data_sets_of(task, self.inputs)
        examples, self.loss_names = features.prepare_data_sets(packer, data_sets, task, has_dropout)
        return examples

    def compute_teacher_outputs(
        self, examples: Examples, tokenizer: Tokenizer, strategy: Strategy
    ) -> None:
        """Adds the teacher's embeddings of the texts, `teacher_embedding` float32 [R, D]."""
        path = self.configs.task.teacher
        student_embedding = self.embedding
        teacher = read_known(self.configs, tokenizer, head="")
        # A teacher that does not state its pooling is pooled as the student.
        teacher_embedding = teacher.embedding or dataclasses.replace(student_embedding, dense=())
        teacher_size = teacher_embedding.dimension(teacher.config.hidden_size)
        student_size = student_embedding.dimension(self.configs.model.hidden_size)
        if teacher_size != student_size:
            raise ValueError(
                f"--teacher={path} has embeddings of {teacher_size} numbers, the student of "
                f"{student_size}; give a student of the same size, for example some of the "
                "teacher's layers."
            )
        # Teacher and student read the same rows, which include the prompts.
        if teacher_embedding.prompts != student_embedding.prompts:
            raise ValueError(
                f"--teacher={path} has the prompts {teacher_embedding.prompts}, the student "
                f"{student_embedding.prompts}; give the student the same prompts: --query_prompt, "
                "--document_prompt."
            )
        options: dict[str, Any] = {"use_pooler": False, "unpad": True, "dtype": "float32"}
        model = BertEmbedder.from_checkpoint(teacher, embedding=teacher_embedding, **options)
        rows = examples.train.rows.rows
        embeddings = teacher_outputs(model, teacher, rows, self.configs, strategy)
        rows.labels["teacher_embedding"] = embeddings

    def make_task(
        self, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> EmbeddingTask:
        if self.configs.training.do_train and self.configs.training.pack_rows:
            raise ValueError("--pack_rows has no effect on embeddings; leave it out.")
        model = self.make_model(self.configs.model, **options)
        # `read_training` chooses the loss, so that without training there is no name of one.
        is_trained = "train" in self.files
        return self.task_class(
            model,
            *data,
            loss=self.make_loss(model) if is_trained else None,
            similarity=self.similarity,
            is_ranking=is_trained and set(self.loss_names) <= set(IN_BATCH),
            best_metric="spearman" if self.configs.data.eval_file else "ndcg@10",
            ignore_identical_ids=self.configs.task.ignore_identical_ids,
            teacher=self.configs.task,
        )

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        """Creates the model."""
        return BertEmbedder(config, self.embedding, **options)

    def make_loss(self, model: Model) -> losses.Loss:
        """Returns the training loss."""
        task = self.configs.task
        parts = []
        for name in self.loss_names:
            parts.append(losses.make_loss(name, task, model.dimension, self.similarity))
        return parts[0] if len(parts) == 1 else functools.partial(losses.loss_of_data_set, parts)

    def report(self, examples: Any, outputs: Outputs) -> dict[str, str]:
        """Returns run.trec with the documents found in each collection, in TREC's format."""
        if not isinstance(examples, features.Collections):
            return {}
        reports = {}
        for name, collection in examples.parts.items():
            file = f"run.{name}.trec" if len(examples.parts) > 1 else "run.trec"
            try:
                reports[file] = "".join(run_lines(self.task.search(collection, outputs)))
            except ValueError as error:
                logging.warning("No %s is written: %s", file, error)
        return reports


class SparseRetriever(Retriever):
    """See `Program`."""

    task_class = SpladeTask
    head = "masked_lm"
    similarity = "dot"
    plot_titles = Retriever.plot_titles | {
        "pieces_per_query": "weighted tokens per query",
        "pieces_per_document": "weighted tokens per document",
    }

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Checks that there is an MLM head, and sets the maximum length of texts."""
        data = self.configs.data
        longest = self.configs.model.longest_row
        if weights is None:
            # A resumed run.
            stated = int(recorded(self.configs.training.output_dir, "max_seq_length") or 0)
        else:
            check_head(weights)
            stated = splade_length(record_of(weights.source), longest)
        is_given = "max_seq_length" in config_flags.given(DataConfig)
        length = min(data.max_seq_length if is_given or not stated else stated, longest)
        self.embedding = EmbeddingConfig(max_seq_length=length, similarity="dot")
        self.set_length(length)
        logging.info(
            "SPLADE: weights of %s tokens, texts up to %d tokens, compared by dot products.",
            f"{self.configs.model.vocab_size:,}",
            length,
        )

    def write_record(self) -> None:
        """Writes nothing: the checkpoint is that of a model with an MLM head."""

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        return BertSplade(config, **options)

    def make_loss(self, model: Model) -> losses.Loss:
        """Returns the loss with the regularizers, which make the weights sparse."""
        task = self.configs.task
        return losses.sparse(
            super().make_loss(model), task.query_regularizer, task.document_regularizer
        )


class LateInteractionRetriever(Retriever):
    """See `Program`."""

    task_class = LateInteractionTask

    def choose_layers(self, stated: EmbeddingConfig | None) -> EmbeddingConfig:
        """Returns the embedding of the weights, that of another model with token vectors."""
        task = self.configs.task
        config = self.configs.model
        length = min(self.configs.data.max_seq_length, config.longest_row)
        stated = stated or EmbeddingConfig(max_seq_length=length)
        return with_token_vectors(stated, config, task.token_dimension, task.query_length)

    @property
    def similarity(self) -> str:  # type: ignore[override]
        return self.embedding.similarity

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        return BertLateInteraction(config, self.embedding, self.vocab, **options)


class DenoisingRetriever(Retriever):
    """See `Program`."""

    task_class = DenoisingTask
    kept_heads = ("masked_lm",)
    plot_titles = Retriever.plot_titles | {"accuracy": "tokens predicted"}

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Checks that the network fits the decoder; see `Retriever`."""
        check_blocks(self.configs.model)
        super().receive_weights(weights)

    def read_training(self, packer: features.TextPacker) -> DenoisingExamples:
        """Reads texts; see `DamagedTexts`."""
        # Without a file, the examples are the pairs of the BEIR folder.
        if not self.configs.tuning.train_file:
            raise ValueError(
                "--retrieval_loss=denoising learns from texts: give --train_file, for example "
                "the collection's corpus.jsonl."
            )
        examples = self.inputs["train"]
        for example in examples:
            if example.scores:
                raise ValueError(
                    f"{example.source} has a label or a score, which --retrieval_loss=denoising "
                    "does not use; keep the column text alone."
                )
            if example.query != example.positive or example.negatives:
                raise ValueError(
                    f"{example.source}: --retrieval_loss=denoising learns from single texts, in a "
                    "column text, but the file has pairs or triplets. Leave the flag out, or give "
                    "single texts."
                )
        self.loss_names = ["denoising"]
        texts = [example.query for example in examples]
        return make_denoising_examples(packer, texts, self.configs.task.deletion_rate)

    def make_model(self, config: ModelConfig, **options: Any) -> Any:
        return BertDenoiser(config, self.embedding, **options)

    def make_loss(self, model: Model) -> Any:
        """Returns None: the task computes the loss."""

    def load_initial_weights(
        self, model: Any, start: Checkpoint, allow_missing: Sequence[str]
    ) -> None:
        """Initializes the decoder's head from the checkpoint's masked-LM head, if it has one."""
        head = HEADS["masked_lm"]
        weights = {}
        for name, weight in start.weights.items():
            if name.startswith(head):
                name = f"{DECODER}predictions/{name.removeprefix(head)}"
            weights[name] = weight
        start = dataclasses.replace(start, weights=weights)
        # No checkpoint has cross-attention, and not every one has a masked-LM head.
        assign_checkpoint(model, start, (*allow_missing, DECODER))


PROGRAMS: dict[str, type[Retriever]] = {
    "dense": Retriever,
    "splade": SparseRetriever,
    "colbert": LateInteractionRetriever,
}
