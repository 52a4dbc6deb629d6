"""Chooses the kind as which a trained model is served, from its heads and its run.

kind                 head             a request holds
classifier           classifier       text, or text and text_b
multi_label          classifier       the same
regression           classifier       the same
tagger               tagger           text, or words
question_answering   squad, or joint_squad    question, context
fill_mask            masked_lm        text with [MASK]
next_sentence        next_sentence    text, text_b
reranker             classifier       query, documents
search               none             query, k
embeddings           none             text
encoder              none             text
"""

import pathlib
import typing
from typing import Any

import numpy as np
from absl import logging

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.cross_encoder import stated_activation, stated_length
from bert_tf.checkpoints.electra_networks import refuse_discriminator
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import local_path, record_of
from bert_tf.network.encoder import BertEncoder
from bert_tf.search.embedding import embedding_of, fingerprint
from bert_tf.search.index import Index
from bert_tf.search.manifest import Manifest, model_of_index
from bert_tf.search.serving import SearchServing, VectorStore
from bert_tf.serving.encoder import EncoderServing
from bert_tf.serving.model import PAIR, SINGLE, Serving
from bert_tf.tasks.classification.glue import reads_pairs
from bert_tf.tasks.classification.serving import (
    ClassifierServing,
    MultiLabelServing,
    RegressionServing,
)
from bert_tf.tasks.embedding.model import BertEmbedder, prompt_pieces
from bert_tf.tasks.embedding.serving import EmbeddingServing
from bert_tf.tasks.masked_words.next_sentence_serving import NextSentenceServing
from bert_tf.tasks.masked_words.serving import FillMaskServing
from bert_tf.tasks.models import (
    BertClassifier,
    BertJointSpanLabeler,
    BertPretrainer,
    BertSpanLabeler,
    BertTokenClassifier,
)
from bert_tf.tasks.question_answering.serving import (
    JointQuestionAnsweringServing,
    QuestionAnsweringServing,
)
from bert_tf.tasks.reranking.serving import RerankingServing
from bert_tf.tasks.tagging.serving import TaggingServing
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.vocab import Vocab

CLASSES: dict[str, type[Serving]] = {
    served.kind: served
    for served in (
        *(
            ClassifierServing,
            MultiLabelServing,
            RegressionServing,
            TaggingServing,
            QuestionAnsweringServing,
        ),
        *(FillMaskServing, NextSentenceServing, RerankingServing, EmbeddingServing, EncoderServing),
        SearchServing,
    )
}
HEADS = {
    "classifier": "classifier",
    "multi_label": "classifier",
    "regression": "classifier",
    "tagger": "tagger",
    "question_answering": "squad",
    "fill_mask": "masked_lm",
    "next_sentence": "next_sentence",
    "reranker": "classifier",
}
OF_NUMBERS = ("regression", "reranker")
OF_EMBEDDINGS = {"pooling", "normalize"}
OF_KINDS = {  # The kinds that have an option.
    **dict.fromkeys((*OF_EMBEDDINGS, "side"), ("embeddings",)),
    **dict.fromkeys(("top_k", "rounds"), ("fill_mask",)),
    "null_score_diff_threshold": ("question_answering",),
    **dict.fromkeys(("index", "store", "rerank", "rerank_k"), ("search",)),
    "texts": ("classifier", "multi_label", "regression"),
}
WINDOWS_LOST = (
    "The model was evaluated on windows of long texts; when served, it reads only their beginnings."
)
OF_LABEL_KIND = {"class": "classifier", "several": "multi_label", "number": "regression"}
SQUAD_NUMBERS = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")


def load(
    model_dir: str,
    kind: str = "",
    max_seq_length: int = 0,
    unpad: bool = True,
    precision: str = "float32",
    **options: Any,
) -> Serving:
    """Makes the served model of a run or of a checkpoint in any form.

    What a run records of its inputs (length, pairs, windows, what is cut) is kept.

    Args:
      model_dir: a run directory, whose best checkpoint is taken if it was evaluated while training,
        else its newest; or see `bert_tf.checkpoints.formats`.
      kind: of `CLASSES`; "": what `find_kind` says.
      max_seq_length: most pieces of a row; 0: what the run was trained with, or all positions.
      unpad: whether the layers work on the pieces alone: faster, but not in every runtime.
      precision: float32, or bfloat16: weights of half the size and products in bfloat16, faster on
        machines with units for it, slower on others; sums, LayerNorm and softmax are float32.
      options: of the class that serves the kind, instead of what the run records; of embeddings
        also `pooling`, `normalize` and `side`, whose prompt stands before a text.

    Raises:
      ValueError: if it cannot be read, is not finished, lacks a vocabulary or the head of the kind,
        is to be served longer than it has positions, or an option is of another kind.
    """
    if kind == "search":
        return load_search(model_dir, max_seq_length, unpad, **options)
    trained = read_model(model_dir, kind)
    checkpoint, kind, folder = trained
    check_options(options, kind, model_dir)
    own = {name: options.pop(name) for name in OF_EMBEDDINGS & options.keys()}
    model = make_model(checkpoint, kind, unpad, precision, **own)
    if kind == "embeddings":
        options = {**prompt_options(model, options.pop("side", "")), **options}
    if unpad:
        getattr(model, "bert", model).prepare_for_inference()
    return class_of(kind, model)(
        model,
        trained.vocab,
        checkpoint.config.do_lower_case,
        find_length(checkpoint, folder, max_seq_length, kind),
        **{**recorded_options(checkpoint, kind, folder), **options},
    )


class TrainedModel(typing.NamedTuple):
    """A checkpoint with the kind as which it is used, and the folder with its run's record."""

    checkpoint: Checkpoint
    kind: str
    folder: str

    @property
    def vocab(self) -> Vocab | BpeVocab:
        """The vocabulary, which `read_model` has checked to be there."""
        return typing.cast(Vocab | BpeVocab, self.checkpoint.vocab)


def read_model(model_dir: str, kind: str = "") -> TrainedModel:
    """Reads a checkpoint for use as a kind; arguments and errors are those of `load`."""
    folder = str(record_of(model_dir))
    check_is_finished(folder)
    is_masked_lm = HEADS.get(kind) == "masked_lm"
    checkpoint = read_checkpoint(
        local_path(model_dir), electra_network="generator" if is_masked_lm else ""
    )
    if is_masked_lm:
        refuse_discriminator(checkpoint)
    checkpoint.check()
    if checkpoint.vocab is None:
        raise ValueError(f"{model_dir} has no vocabulary; put its vocab.txt beside the weights.")
    kind = kind or find_kind(checkpoint, folder)
    check_kind(checkpoint, kind)
    return TrainedModel(checkpoint, kind, folder)


def check_options(options: dict[str, Any], kind: str, model_dir: str) -> None:
    """Raises ValueError for an option that another kind has."""
    for name in options:
        if kind not in OF_KINDS.get(name, (kind,)):
            of = ", ".join(OF_KINDS[name])
            name = "pair" if name == "texts" else name
            raise ValueError(f"{name} is for {of}; {model_dir} is served as {kind}.")


def class_of(kind: str, model: Any) -> type[Serving]:
    """Returns the class that serves a model as a kind."""
    return (
        JointQuestionAnsweringServing if isinstance(model, BertJointSpanLabeler) else CLASSES[kind]
    )


def load_search(
    model_dir: str,
    max_seq_length: int = 0,
    unpad: bool = True,
    *,
    index: str,
    store: str = "",
    rerank: str = "",
    rerank_k: int = 50,
) -> SearchServing:
    """Makes the served search of an index.

    Args:
      model_dir: the model that the index was made with; "": where it lay then.
      max_seq_length, unpad: see `load`; 0: what the model's folder says.
      index: directory of `bert_tf.build_index`.
      store: form of the vectors, of `VectorStore`; "": that of the index.
      rerank: a cross-encoder; "": none.
      rerank_k: how many documents it reads.

    Raises:
      ValueError: if model and index disagree, or there are no texts to rerank.
    """
    source = model_of_index(index, model_dir)
    checkpoint = read_checkpoint(local_path(source))
    pooling = Manifest.read(pathlib.Path(index)).pooling
    embedding = embedding_of(checkpoint, pooling, max_seq_length)
    found = Index(index, fingerprint(checkpoint, embedding))
    if rerank and not found.manifest.has_texts:
        raise ValueError(f"{index} stores no texts, which a reranker needs; build it with texts.")
    is_unit = embedding.normalize or found.manifest.similarity == "cosine"
    options: dict[str, typing.Any] = {"normalize": is_unit, "side": "query"}
    if pooling:
        options["pooling"] = pooling
    length = embedding.max_seq_length
    embedder = load(source, "embeddings", length, unpad, "float32", **options)
    return SearchServing(
        typing.cast(EmbeddingServing, embedder),
        VectorStore(found.vectors(np.arange(len(found))), store or found.manifest.dtype),
        found.ids,
        [found.text(row) for row in range(len(found))] if found.manifest.has_texts else (),
        typing.cast(RerankingServing, load(rerank, "reranker", 0, unpad)) if rerank else None,
        rerank_k,
    )


def check_is_finished(folder: str) -> None:
    """Raises ValueError if it is the folder of a run without a checkpoint."""
    record = pathlib.Path(folder, "run.flags")
    if record.exists() and not any(pathlib.Path(folder).glob("*.index")):
        raise ValueError(
            f"{folder} is a run without a complete checkpoint; wait for its first one, or train "
            f"with --flagfile={record}."
        )


def find_kind(checkpoint: Checkpoint, folder: str) -> str:
    """Returns the kind of a model by its heads and its run's record.

    A pre-trained model fills masks, unless another kind is asked for; one without heads embeds.
    """
    if "classifier" in checkpoint.heads:
        if checkpoint.num_labels == 1 and stated_activation(pathlib.Path(folder)):
            return "reranker"
        guess = "class" if checkpoint.num_labels > 1 else "number"
        return OF_LABEL_KIND[checkpoint.label_kind or guess]
    for kind in ("tagger", "question_answering", "fill_mask"):
        if HEADS[kind] in heads_of(checkpoint):
            return kind
    return "embeddings"


def heads_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Returns the names of a checkpoint's heads; a joint one is also one for questions."""
    joint = ("squad",) if "joint_squad" in checkpoint.heads else ()
    return (*checkpoint.heads, *joint)


def check_kind(checkpoint: Checkpoint, kind: str) -> None:
    """Raises ValueError if a model cannot be served as a kind."""
    if kind not in CLASSES:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(CLASSES)}.")
    head, heads = HEADS.get(kind), heads_of(checkpoint)
    if head and head not in heads:
        possible = [name for name in CLASSES if HEADS.get(name, "") in ("", *heads)]
        raise ValueError(
            f"{checkpoint.source} has no {head} head, so it cannot serve as {kind}; it can as "
            f"{', '.join(possible)}."
        )
    if kind in OF_NUMBERS and checkpoint.num_labels != 1:
        raise ValueError(
            f"{checkpoint.source} has {checkpoint.num_labels} labels, so it cannot serve as "
            f"{kind}, which has one."
        )


def make_model(
    checkpoint: Checkpoint,
    kind: str,
    unpad: bool = True,
    precision: str = "float32",
    **embedding: Any,
) -> Any:
    """Makes the Keras model of a kind, without what the kind does not use.

    Rows without padding (`unpad`): texts of mixed length cost what their pieces cost. Of embeddings
    `embedding` has fields of `EmbeddingConfig` that take the place of the model's own.
    """
    options: dict[str, Any] = {"unpad": unpad, "dtype": precision}
    if kind in ("classifier", "multi_label", "regression", "reranker"):
        return BertClassifier.from_checkpoint(checkpoint, **options)
    if kind == "tagger":
        return BertTokenClassifier.from_checkpoint(checkpoint, **options)
    if kind == "question_answering":
        return BertSpanLabeler.from_checkpoint(checkpoint, **options)
    if kind == "fill_mask":
        options |= {"use_next_sentence": False, "use_pooler": False}
    if kind in ("fill_mask", "next_sentence"):
        return BertPretrainer.from_checkpoint(checkpoint, **options)
    if kind == "embeddings":
        return BertEmbedder.from_checkpoint(
            checkpoint, use_pooler=False, embedding=embedding_of(checkpoint), **options, **embedding
        )
    return BertEncoder.from_checkpoint(checkpoint, **options)


def prompt_options(model: BertEmbedder, side: str) -> dict[str, Any]:
    """Returns what is done to a text first, as options of `EmbeddingServing`.

    Args:
      model: the model.
      side: query or document; "": the model's default prompt.
    """
    embedding = model.embedding
    prompt = embedding.side_prompt(side) if side else embedding.prompt(None)
    skipped = prompt_pieces(model.tokenizer, embedding, prompt)
    lower = embedding.lower_case_texts
    return {"prompt": prompt, "prompt_pieces": skipped, "lower": lower}


def find_length(checkpoint: Checkpoint, folder: str, max_seq_length: int, kind: str = "") -> int:
    """Returns the most pieces of a row.

    Raises:
      ValueError: if the model has fewer positions.
    """
    positions = checkpoint.config.longest_row
    length = max_seq_length or int(checkpoint.settings.get("max_seq_length", 0))
    if kind == "embeddings":
        length = length or embedding_of(checkpoint).max_seq_length
    if kind == "reranker":
        length = length or min(stated_length(pathlib.Path(folder)), positions)
    # Without a position table there is no limit, but a row ends somewhere.
    length = length or min(positions, checkpoint.config.max_position_embeddings)
    if not 3 < length <= positions:
        raise ValueError(
            f"max_seq_length is {length}; the model in {checkpoint.source} has {positions} "
            f"positions, so expected 4 .. {positions}."
        )
    return length


def recorded_options(checkpoint: Checkpoint, kind: str, folder: str) -> dict[str, Any]:
    """Returns what the run says of requests, as options of the class that serves the kind."""
    options: dict[str, Any] = {}
    settings = checkpoint.settings
    if kind in ("classifier", "multi_label", "tagger"):
        options["labels"] = checkpoint.labels or tuple(map(str, range(checkpoint.num_labels)))
    if kind in ("classifier", "multi_label", "regression"):
        is_pair = reads_pairs(settings) or checkpoint.is_multiple_choice
        options["texts"] = PAIR if is_pair else SINGLE
        options["keep_tail"] = settings.get("long_texts") == "tail"
        if settings.get("long_texts") == "windows":
            logging.warning("%s", WINDOWS_LOST)
    if kind == "reranker":
        options["activation"] = stated_activation(pathlib.Path(folder)) or "sigmoid"
    if kind == "next_sentence":
        options["texts"] = PAIR
    if kind == "question_answering":
        for name in SQUAD_NUMBERS:
            if value := settings.get(name):
                options[name] = int(value)
        options["version_2"] = settings.get("version_2_with_negative") == "true"
        threshold = settings.get("null_score_diff_threshold")
        options["null_score_diff_threshold"] = float(threshold or 0.0)
    return options
