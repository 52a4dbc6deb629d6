"""Configuration of the programs that train a retriever or a reranker."""

import dataclasses
import math

from bert_tf.config import TeacherConfig, option
from bert_tf.config.fine_tuning_config import FolderConfig, TableConfig, of_data

RETRIEVER_LOSSES = (
    "in_batch",
    "symmetric",
    "cosent",
    "cosine",
    "triplet",
    "margin_mse",
    "divergence",
    "denoising",
    "same_label",
)


def comma_list(text: str) -> list[str]:
    """Returns the parts of a comma-separated flag."""
    return [part.strip() for part in text.split(",") if part.strip()]


def comma_numbers(text: str, flag: str) -> list[float]:
    """Returns the numbers of a comma-separated flag.

    Raises:
      ValueError: naming the flag.
    """
    try:
        numbers = list(map(float, comma_list(text)))
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{flag} is {text!r}, expected numbers separated by commas.")
    return numbers


@dataclasses.dataclass(frozen=True)
class RetrieverConfig(FolderConfig, TableConfig, TeacherConfig):
    """Flags of `run_retriever`."""

    train_split: str = of_data("train", "Split of the BEIR folder to train on.")
    eval_split: str = of_data("test", "Split of the BEIR folder to evaluate.", may_change=True)
    query_column: str = of_data("", "Column of the query; empty: found by name.")
    positive_column: str = of_data("", "Column of the positive; empty: found by name.")
    retrieval_loss: str = option(
        "",
        "in_batch: find the positive among all texts of the batch; symmetric: also the query of "
        "each positive; cosent, cosine: for scored pairs; triplet; margin_mse: learn a teacher's "
        "margins; divergence: learn the distribution that they make of a query's documents; "
        "denoising: from single texts, reconstruct a text from the embedding of some of "
        "its words (TSDAE); same_label: for run_classifier --few_shot. Empty: chosen by the form "
        "of the examples. Several, separated by commas: one for each file of train_file.",
    )
    mixing: str = option(
        "",
        "Files of train_file are data sets of their own, and a batch is from one of them: "
        "proportional: in random order, as many batches as each has; in_turn: one after another, "
        "until the smallest is used up. Empty: proportional with several losses; with one loss "
        "all files are one data set.",
        choices=("", "proportional", "in_turn"),
    )
    loss_scale_factor: float = option(20.0, "Scale of the cosines, 1 / temperature.", lower=0.0)
    triplet_margin: float = option(
        5.0,
        "Margin of the triplet loss.",
        lower=0.0,
        needs=("retrieval_loss", "triplet"),
    )
    triplet_distance: str = option(
        "euclidean",
        "Distance of the triplet loss.",
        choices=("euclidean", "cosine"),
        needs=("retrieval_loss", "triplet"),
    )
    deletion_rate: float = option(
        0.6,
        "With denoising, share of a text's words to delete.",
        lower=0.0,
        upper=1.0,
        needs=("retrieval_loss", "denoising"),
    )
    num_negatives: int = option(
        4, "Maximum number of negatives per example; each epoch uses the next ones.", lower=0
    )
    matryoshka_dims: str = option(
        "", "Sizes, for example 384,128,64: train the first N numbers of embeddings as well."
    )
    matryoshka_weights: str = option(
        "",
        "Weights of matryoshka_dims, in the same order; empty: 1 each.",
        needs=("matryoshka_dims",),
    )
    teacher_distance: str = option(
        "squared",
        "Distance of an embedding from the teacher's: squared, or 1 - cosine.",
        choices=("squared", "cosine"),
        needs=("teacher",),
    )
    embedding_pooling: str = option(
        "", "Pooling if the model does not define one; empty: the model's, or else mean."
    )
    embedding_type: str = option(
        "dense",
        "dense: one vector for each text; splade: weights of the vocabulary's tokens, computed by "
        "the masked-LM head; colbert: one vector for each token, compared by MaxSim.",
        choices=("dense", "splade", "colbert"),
    )
    token_dimension: int = option(
        128,
        "With colbert, numbers of a token's vector, if the model does not define them.",
        lower=1,
        needs=("embedding_type", "colbert"),
    )
    query_length: int = option(
        32,
        "With colbert, tokens of a query, if the model does not define them; shorter queries are "
        "expanded by [MASK].",
        lower=4,
        needs=("embedding_type", "colbert"),
    )
    query_regularizer: float = option(
        5e-5,
        "With splade, weight of the FLOPS regularizer of queries.",
        lower=0.0,
        needs=("embedding_type", "splade"),
    )
    document_regularizer: float = option(
        3e-5,
        "With splade, weight of the FLOPS regularizer of documents.",
        lower=0.0,
        needs=("embedding_type", "splade"),
    )
    query_prompt: str = option("", "Prefix of queries, instead of the model's own prompt.")
    document_prompt: str = option("", "Prefix of documents, instead of the model's own prompt.")
    ignore_identical_ids: bool = of_data(
        False, "Leave out the document whose id is the query's (ArguAna, Quora).", may_change=True
    )

    @property
    def losses(self) -> list[str]:
        """The names of `retrieval_loss`; empty without one."""
        return self.retrieval_loss.split(",") if self.retrieval_loss else []

    def losses_of(self, num_sets: int) -> list[str]:
        """Returns the loss of each data set, "" where the form of the examples decides."""
        return self.losses if len(self.losses) > 1 else [self.retrieval_loss] * num_sets

    @property
    def data_dirs(self) -> list[str]:
        """The folders of `data_dir`."""
        return comma_list(self.data_dir)

    @property
    def has_data_sets(self) -> bool:
        """Whether the files to train on are data sets of their own."""
        return bool(self.mixing) or len(self.losses) > 1

    def check(self) -> None:
        super().check()
        self.check_without_scores("embeddings")
        for name in self.losses:
            # The last two losses are for one data set alone.
            known = RETRIEVER_LOSSES[:-2] if self.has_data_sets else RETRIEVER_LOSSES
            if name not in known:
                raise ValueError(
                    f"--retrieval_loss: received {name!r}, expected one of {list(known)}; several "
                    "are separated by commas."
                )
        sizes = comma_numbers(self.matryoshka_dims, "--matryoshka_dims")
        factors = comma_numbers(self.matryoshka_weights, "--matryoshka_weights")
        wrong = [size for size in sizes if size < 1 or size != int(size)]
        if wrong:
            raise ValueError(
                f"--matryoshka_dims={self.matryoshka_dims}: {wrong[0]:g} is not a size; expected "
                "whole numbers from 1."
            )
        if factors and len(factors) != len(sizes):
            raise ValueError(
                f"--matryoshka_weights has {len(factors)} numbers, --matryoshka_dims {len(sizes)}."
            )


# An example is one document; with the other losses it is all documents of a query.
POINTWISE_LOSSES = ("bce", "mse")
RANKING_LOSSES = ("bce", "mse", "margin_mse", "listnet", "lambda")


@dataclasses.dataclass(frozen=True)
class RerankerConfig(TableConfig):
    """Flags of `run_reranker`."""

    ranking_loss: str = option(
        "bce",
        "Objective: bce: whether each document is relevant; mse, margin_mse: a teacher's scores, "
        "or their differences; listnet, lambda: the order of each query's list.",
        choices=RANKING_LOSSES,
    )
    positive_weight: float = option(
        1.0,
        "Weight of relevant documents in bce.",
        lower=0.0,
        needs=("ranking_loss", "bce"),
    )
    lambda_k: int = option(
        0,
        "Number of top ranks that the lambda loss considers; 0: all.",
        lower=0,
        needs=("ranking_loss", "lambda"),
    )
    list_size: int = option(
        8,
        "Maximum number of documents per query in training, relevant ones first. With bce and mse "
        "it limits only the candidates from a BEIR folder.",
        lower=1,
    )
    train_run_file: str = option(
        "", "TREC run with the candidates of a BEIR folder given as train_file."
    )
    eval_run_file: str = of_data(
        "",
        "TREC run whose top documents are reranked, for a BEIR folder given as eval_file or "
        "predict_file.",
        may_change=True,
    )
    beir_split: str = of_data(
        "test",
        "Split whose judgments are used to evaluate a BEIR folder; training uses train.",
        may_change=True,
    )
    rerank_k: int = of_data(
        100, "Documents per query of eval_run_file to score.", lower=1, may_change=True
    )
