"""The program of rerankers: reads lists, or BEIR folders with runs; writes scores and runs."""

import dataclasses
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.cross_encoder_settings import stated_length
from bert_tf.checkpoints.hub import record_of
from bert_tf.config import DataConfig, config_flags
from bert_tf.config.ranking_config import POINTWISE_LOSSES
from bert_tf.metrics.ranking import evaluate
from bert_tf.metrics.trec import write_run
from bert_tf.system.type_names import Outputs
from bert_tf.tasks.base.programs.program import Examples, Program, RowsTaskData, read_inputs
from bert_tf.tasks.base.programs.results import table_text, write_texts
from bert_tf.tasks.reranking.examples import is_folder
from bert_tf.tasks.reranking.features import RankingExamples, evaluation_examples, training_rows
from bert_tf.tasks.reranking.model import BertReranker
from bert_tf.tasks.reranking.task import MEASURES, RerankingTask
from bert_tf.text.tokenization import Tokenizer

MAX_ERRORS = 50


class Reranker(Program):
    """See `Program`."""

    head = "classifier"
    needs_pooler = True
    plot_titles = {"loss": "loss", "ndcg@10": "nDCG@10", "mrr@10": "MRR@10", "map": "MAP"}

    def receive_weights(self, weights: Checkpoint | None) -> None:
        """Without training, pairs are cut where the folder of the weights states it."""
        training = self.configs.training
        is_given = "max_seq_length" in config_flags.given(DataConfig)
        if weights is None or training.do_train or is_given:
            return
        folder = record_of(training.init_checkpoint)
        length = min(stated_length(folder), self.configs.model.longest_row)
        data = dataclasses.replace(self.configs.data, max_seq_length=length)
        self.configs = self.configs._replace(data=data)

    def read(self, tokenizer: Tokenizer, labels: tuple[str, ...]) -> Examples:
        given = self.configs.task
        length = self.configs.data.max_seq_length

        def make(use: str, file: str) -> RankingExamples:
            examples = self.inputs[use]
            if use == "train":
                loss = given.ranking_loss
                rows = training_rows(examples, tokenizer, length, loss, given.list_size)
                kind = "documents"
                if loss not in POINTWISE_LOSSES:
                    kind = f"lists of up to {rows.num_choices}"
                logging.info("train: %d queries, %d %s.", len(examples), len(rows), kind)
                return RankingExamples(examples, rows)
            evaluated = evaluation_examples(examples, tokenizer, length)
            logging.info("%s: %d queries, %d documents.", use, len(examples), len(evaluated.rows))
            # nDCG divides by the gain of the best ranking, which is 0 without relevant documents.
            if use == "eval" and not evaluated.is_labelled:
                unlabelled = next(example.source for example in examples if not example.grades)
                raise ValueError(f"{unlabelled} has no relevant document; leave the query out.")
            if use == "eval" and is_folder(file):
                log_first_stage(evaluated)
            return evaluated

        return Examples.of_files(read_inputs(self.files, make, self.text_remedy()))

    def make_task(
        self, labels: tuple[str, ...], data: RowsTaskData, **options: Any
    ) -> RerankingTask:
        given = self.configs.task
        return RerankingTask(
            BertReranker(self.configs.model, **options),
            *data,
            loss=given.ranking_loss,
            pos_weight=given.positive_weight,
            k=given.lambda_k,
        )

    def report(self, examples: RankingExamples, outputs: Outputs) -> dict[str, str]:
        """Returns worst_errors.tsv: the queries whose relevant documents are ranked lowest."""
        run = self.task.run(examples, outputs)
        rows = []
        for example in examples.examples:
            scores = run[example.query_id]
            qrels = {example.query_id: example.grades}
            # The mean over a single query is the nDCG of this query.
            ndcg = evaluate({example.query_id: scores}, qrels, ["ndcg@10"])["ndcg@10"]
            first = max(scores, key=lambda name: scores[name], default="")
            texts = dict(zip(example.document_ids, example.documents, strict=True))
            rows.append((ndcg, example.query_id, example.query, first, texts.get(first, "")))
        rows.sort(key=lambda row: row[0])
        header = "ndcg@10 query_id query first_id first"
        cells = []
        for ndcg, *others in rows[:MAX_ERRORS]:
            cells.append((f"{ndcg:.4f}", *others))
        return {"worst_errors.tsv": table_text(header, cells)}

    def write_predictions(self, name: str, examples: RankingExamples, outputs: Outputs) -> None:
        """Writes predictions.run in TREC's format, and predictions.tsv with the texts."""
        run = self.task.run(examples, outputs)
        write_run(self.folder / "predictions.run", run)
        logging.info("Wrote %s", self.folder / "predictions.run")
        rows = []
        for example in examples.examples:
            scores = np.array([run[example.query_id][name] for name in example.document_ids])
            for rank, index in enumerate(np.argsort(-scores, kind="stable"), 1):
                score = f"{scores[index]:.6f}"
                document = example.documents[index]
                rows.append((example.query_id, rank, score, example.query, document))
        header = "query_id rank score query document"
        write_texts(self.folder, {"predictions.tsv": table_text(header, rows)})


def log_first_stage(examples: RankingExamples) -> None:
    """Logs the metrics of the search before reranking, as a baseline."""
    run = {}
    qrels = {}
    for example in examples.examples:
        # The documents are in the order of the search: a later document gets a lower score.
        scores = {name: -float(rank) for rank, name in enumerate(example.document_ids)}
        run[example.query_id] = scores
        qrels[example.query_id] = example.grades
    metrics = evaluate(run, qrels, MEASURES)
    text = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    logging.info("eval: in the order of the run %s.", text)
