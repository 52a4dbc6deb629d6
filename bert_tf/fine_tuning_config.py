"""Configuration of the fine-tuning programs, beside the groups of `config.py`."""

import dataclasses

from bert_tf.config import Config, TeacherConfig, option


@dataclasses.dataclass(frozen=True)
class FineTuningConfig(Config):
    """What all fine-tuning programs share (google-research/bert's names where it has them)."""

    train_file: str = option("", "Examples to train on.")
    predict_file: str = option(
        "",
        "Examples to predict; judged, too, if all have known labels.",
        may_change=True,
        from_run=True,
    )
    do_predict: bool = option(
        False, "Predict predict_file, or the task's test set.", may_change=True
    )
    predict_batch_size: int = option(8, "Examples per prediction step.", lower=1, may_change=True)
    num_train_epochs: float = option(
        3.0, "Times every example is shown; num_train_steps, if given, decides instead.", lower=0.0
    )
    num_seeds: int = option(
        1,
        "Runs with seeds random_seed, random_seed + 1, ..., each in a folder.",
        lower=1,
        may_change=True,
    )
    frozen_layers: int = option(
        -1, "Keep the embeddings and this many first layers as they are; -1: train all.", lower=-1
    )
    new_head: bool = option(
        False, "Start with a new head although the checkpoint has one (of another task, say)."
    )
    pad_to_max_length: bool = option(
        False,
        "Pad every batch to max_seq_length, as the original: slower, the same losses.",
        may_change=True,
    )
    use_best_checkpoint: bool = option(
        True,
        "After evaluations while training: end with the best checkpoint, not the last.",
        may_change=True,
    )


LABEL_KINDS = ("class", "number", "several")
LONG_TEXTS = ("head", "tail", "windows")


@dataclasses.dataclass(frozen=True)
class FolderConfig(Config):
    """What programs share whose data may be a folder."""

    data_dir: str = option(
        "",
        "Folder of the task's files: GLUE's (tfds:glue takes them from TFDS), or a BEIR "
        "collection with corpus.jsonl, queries.jsonl and qrels.",
    )


@dataclasses.dataclass(frozen=True)
class ClassifierConfig(FolderConfig, TeacherConfig):
    """What `run_classifier` adds."""

    task_name: str = option(
        "",
        "cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli or ax, in GLUE's files; empty: own "
        "data from the columns of CSV, TSV or JSONL files.",
    )
    text_column: str = option("text", "Column of own data with the (first) text.")
    text_b_column: str = option("", "Column of own data with the second text of a pair.")
    label_column: str = option("label", "Column of own data with the label.")
    label_kind: str = option(
        "class",
        "What own labels are: a class, a number, or several classes: a|b, or a JSON list.",
        choices=LABEL_KINDS,
    )
    class_weights: str = option(
        "",
        "Weights of the training loss: balanced (as rare as the class is), or CLASS=WEIGHT,... .",
    )
    long_texts: str = option(
        "head",
        "What stays of a text above max_seq_length: its head (as the original), its tail, or all "
        "of it in windows, whose scores are averaged.",
        choices=LONG_TEXTS,
    )
    best_metric: str = option("", "Metric that names the best checkpoint; empty: the task's own.")
    num_worst_errors: int = option(50, "Lines of worst_errors.tsv.", lower=0, may_change=True)


@dataclasses.dataclass(frozen=True)
class SquadConfig(Config):
    """What `run_squad` adds: google-research/bert's flags."""

    doc_stride: int = option(128, "Pieces between the starts of two windows.", lower=1)
    max_query_length: int = option(64, "Most pieces of a question.", lower=1)
    n_best_size: int = option(20, "Answers in nbest_predictions.json.", lower=1)
    max_answer_length: int = option(30, "Most pieces of an answer.", lower=1)
    version_2_with_negative: bool = option(False, "SQuAD 2.0: questions may have no answer.")
    null_score_diff_threshold: float = option(
        0.0, "No answer if its score is above the best answer's by more than this."
    )


@dataclasses.dataclass(frozen=True)
class TaggerConfig(Config):
    """What `run_tagger` adds."""

    word_column: int = option(0, "Column of the words, from 0; CoNLL-U has its own.", lower=0)
    tag_column: str = option(
        "-1", "Column of the tags: a number, -1 the last; in CoNLL-U also a name, upos say."
    )


RETRIEVER_LOSSES = ("in_batch", "symmetric", "cosent", "cosine", "triplet", "margin_mse")


@dataclasses.dataclass(frozen=True)
class RetrieverConfig(FolderConfig, TeacherConfig):
    """What `run_retriever` adds."""

    train_split: str = option("train", "Split of the BEIR folder to train on.")
    eval_split: str = option("test", "Split of the BEIR folder to judge.", may_change=True)
    query_column: str = option("", "Column of the query; empty: found by its name.")
    positive_column: str = option("", "Column of the positive; empty: found by its name.")
    retrieval_loss: str = option(
        "",
        "in_batch: find the positive among all texts of the batch; symmetric: and the query of "
        "the positive; cosent, cosine: of scored pairs; triplet; margin_mse: to a teacher's "
        "margins. Empty: what the examples are for.",
        choices=("", *RETRIEVER_LOSSES),
    )
    loss_scale_factor: float = option(20.0, "Factor of cosines, 1 / temperature.", lower=0.0)
    triplet_margin: float = option(5.0, "Margin of the triplet loss.", lower=0.0)
    triplet_distance: str = option(
        "euclidean", "Distance of the triplet loss.", choices=("euclidean", "cosine")
    )
    num_negatives: int = option(
        4, "Most negatives of its own that an example brings; in each epoch the next.", lower=0
    )
    matryoshka_dims: str = option(
        "", "Sizes, say 384,128,64: the loss also of the first so many numbers of embeddings."
    )
    matryoshka_weights: str = option("", "Their weights, in their order; empty: 1 each.")
    teacher_distance: str = option(
        "squared",
        "Distance of an embedding from the teacher's: squared, or 1 - cosine.",
        choices=("squared", "cosine"),
    )
    embedding_pooling: str = option(
        "", "Pooling of a model that has none of its own; empty: its own, else mean."
    )
    query_prompt: str = option("", "Put before queries, instead of the model's own prompt.")
    document_prompt: str = option("", "Put before documents, instead of the model's own.")
    ignore_identical_ids: bool = option(
        False, "Leave out the document whose id is the query's (ArguAna, Quora).", may_change=True
    )


@dataclasses.dataclass(frozen=True)
class ChoiceConfig(Config):
    """What `run_multiple_choice` adds: nothing."""


RANKING_LOSSES = ("bce", "mse", "margin_mse", "listnet", "lambda")


@dataclasses.dataclass(frozen=True)
class RerankerConfig(Config):
    """What `run_reranker` adds."""

    ranking_loss: str = option(
        "bce",
        "bce: each document relevant or not; mse, margin_mse: the scores of a teacher, or their "
        "differences; listnet, lambda: the order of each query's list.",
        choices=RANKING_LOSSES,
    )
    positive_weight: float = option(1.0, "Weight of relevant documents in bce.", lower=0.0)
    lambda_k: int = option(0, "First places that lambda looks at; 0: all.", lower=0)
    list_size: int = option(
        8, "Most documents of a query in training, the relevant ones first.", lower=1
    )
    train_run_file: str = option(
        "", "TREC run with the candidates of a BEIR folder given as train_file."
    )
    eval_run_file: str = option(
        "",
        "TREC run whose first documents are ranked anew, of a BEIR folder given as eval_file or "
        "predict_file.",
        may_change=True,
        from_run=True,
    )
    beir_split: str = option(
        "test",
        "Judgments of a BEIR folder that is evaluated; training takes train.",
        may_change=True,
    )
    rerank_k: int = option(
        100, "Documents of each query of eval_run_file that are scored.", lower=1, may_change=True
    )
