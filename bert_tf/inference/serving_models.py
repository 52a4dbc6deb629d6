"""Makes the serving functions of trained models, for exports and for `bert_tf.load`."""

import pathlib
import typing
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint, embedding_of
from bert_tf.checkpoints.cross_encoder_settings import stated_length
from bert_tf.checkpoints.electra_networks import refuse_discriminator
from bert_tf.checkpoints.embedding import MOST_TOKENS
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.hub import local_path, record_of
from bert_tf.checkpoints.sentence_transformers import splade_length
from bert_tf.inference import kinds
from bert_tf.inference.kinds import KINDS
from bert_tf.system.type_names import Fields, Model
from bert_tf.tasks.base.models.preprocessing import make_preprocessor
from bert_tf.tasks.base.serving.kind import PAIR, SINGLE, import_object
from bert_tf.tasks.base.serving.metadata import Metadata
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.embedding.packing import prompt_length
from bert_tf.tasks.question_answering.features import check_room
from bert_tf.text.tokenization import AnyVocab

if typing.TYPE_CHECKING:
    from bert_tf.tasks.embedding.model import BertEmbedder

# The kinds of models with an `EmbeddingConfig`.
EMBEDDERS = ("embeddings", "late_interaction")


def load(
    model_dir: str,
    kind: str = "",
    max_seq_length: int = 0,
    unpad: bool = True,
    precision: str = "float32",
    **options: Any,
) -> Serving:
    """Makes the serving functions of a run or of a checkpoint in any format.

    The settings that a run recorded for its inputs are kept: length, pairs, long texts, windows.

    Args:
      model_dir: a run directory, whose best checkpoint is taken if it was evaluated while training,
        else its newest; or see `bert_tf.checkpoints.formats`.
      kind: of `inference.kinds.KINDS`; "": the kind that `find_kind` returns.
      max_seq_length: maximum number of tokens of a row; 0: as in training, or all positions.
      unpad: whether the layers skip the padding: faster, but not possible in every runtime.
      precision: float32, or bfloat16: weights of half the size and products in bfloat16, faster on
        machines with units for it, slower on others; sums, LayerNorm and softmax are float32.
      options: of the class that serves the kind, which replace those of the run; for embeddings
        also `pooling`, `normalize` and `side`, whose prompt precedes a text.

    Raises:
      ValueError: if it cannot be read, is not finished, lacks a vocabulary or the head of the kind,
        has fewer positions than `max_seq_length`, or an option belongs to another kind.
    """
    if kind in KINDS and KINDS[kind].loader:
        load_kind = import_object(KINDS[kind].loader)
        return load_kind(model_dir, max_seq_length, unpad, **options)
    return make_serving(read_model(model_dir, kind), max_seq_length, unpad, precision, **options)


def make_serving(
    trained: "TrainedModel",
    max_seq_length: int = 0,
    unpad: bool = True,
    precision: str = "float32",
    **options: Any,
) -> Serving:
    """Makes the serving functions of a checkpoint; arguments and errors are those of `load`."""
    checkpoint, kind, folder = trained
    check_options(options, kind, checkpoint.source)
    # These are options of the model; the others are options of its serving class.
    embedding = {name: options.pop(name) for name in ("pooling", "normalize") if name in options}
    model = make_model(checkpoint, kind, unpad, precision, **embedding)
    if kind in EMBEDDERS:
        options = {**prompt_options(model, options.pop("side", "")), **options}
    if unpad:
        getattr(model, "bert", model).prepare_for_inference()
    return KINDS[kind].import_serving(checkpoint)(
        model,
        trained.vocab,
        checkpoint.config.do_lower_case,
        find_length(checkpoint, folder, max_seq_length, kind),
        **{**kinds.find(kind).recorded(checkpoint, folder), **options},
    )


class TrainedModel(typing.NamedTuple):
    """A checkpoint with the kind as which it is used, and the folder with its run's record."""

    checkpoint: Checkpoint
    kind: str
    folder: str

    @property
    def vocab(self) -> AnyVocab:
        """The vocabulary, which `read_model` has checked to be there."""
        return typing.cast(AnyVocab, self.checkpoint.vocab)


def read_model(model_dir: str, kind: str = "") -> TrainedModel:
    """Reads a checkpoint for use as a kind; arguments and errors are those of `load`."""
    folder = str(record_of(model_dir))
    check_is_finished(folder)
    # An ELECTRA run has two networks: the generator fills masks, the discriminator does the rest.
    is_masked_lm = kind in KINDS and KINDS[kind].head == "masked_lm"
    checkpoint = read_checkpoint(
        local_path(model_dir), electra_network="generator" if is_masked_lm else ""
    )
    if is_masked_lm:
        refuse_discriminator(checkpoint)
    checkpoint.check()
    if checkpoint.vocab is None:
        raise ValueError(
            f"{model_dir} has no vocabulary; put its vocab.txt into the folder of the weights."
        )
    kind = kind or find_kind(checkpoint, folder)
    check_kind(checkpoint, kind)
    return TrainedModel(checkpoint, kind, folder)


def check_options(options: Fields, kind: str, model_dir: str) -> None:
    """Raises ValueError for an option that only other kinds have."""
    for name in options:
        owners = [other.name for other in KINDS.values() if name in other.options]
        if owners and kind not in owners:
            shown = "pair" if name == "texts" else name
            raise ValueError(
                f"{shown} is for {', '.join(owners)}; {model_dir} is served as {kind}."
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
    return next(kind.name for kind in KINDS.values() if kind.is_default(checkpoint, folder))


def check_kind(checkpoint: Checkpoint, kind: str) -> None:
    """Raises ValueError if a model cannot be served as a kind."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(KINDS)}.")
    head = KINDS[kind].head
    # A joint head is also one for questions.
    joint = ("squad",) if "joint_squad" in checkpoint.heads else ()
    heads = (*checkpoint.heads, *joint)
    if head and head not in heads:
        possible = [other.name for other in KINDS.values() if other.head in ("", *heads)]
        raise ValueError(
            f"{checkpoint.source} has no {head} head, so it cannot serve as {kind}; it can as "
            f"{', '.join(possible)}."
        )
    if KINDS[kind].has_one_label and checkpoint.num_labels != 1:
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
) -> Model:
    """Makes the Keras model of a kind, without the parts that the kind does not use.

    Args:
      checkpoint: with the head of the kind.
      unpad: whether rows are computed without their padding, so that texts of mixed length cost as
        much as their tokens.
      precision: float32 or bfloat16.
      embedding: fields of `EmbeddingConfig` that replace those of an embedder.
    """
    # Rows with a query stream, which fills masks, keep their padding.
    has_stream = checkpoint.config.query_vector and kinds.find(kind).head == "masked_lm"
    options: Fields = {"unpad": unpad and not has_stream, "dtype": precision}
    options |= {**kinds.find(kind).model_options, **embedding}
    if kind in EMBEDDERS:
        options["embedding"] = embedding_of(checkpoint)
    return kinds.find(kind).import_model().from_checkpoint(checkpoint, **options)


def prompt_options(model: "BertEmbedder", side: str) -> Fields:
    """Returns how texts are prepared, as options of `EmbeddingServing`.

    Args:
      side: query or document; "": the model's default prompt, of late interaction documents.
    """
    embedding = model.embedding
    if embedding.tokens is not None:
        side = side or "document"
    prompt = embedding.side_prompt(side) if side else embedding.prompt(None)
    skipped = prompt_length(model.tokenizer, embedding, prompt)
    options = {
        "prompt": prompt,
        "prompt_length": skipped,
        "lower": embedding.lower_case_texts,
        "prompts": {side: embedding.side_prompt(side) for side in ("query", "document")},
    }
    if embedding.tokens is not None:
        return {**options, "side": side}
    return {**options, "characters_per_token": embedding.characters_per_token}


def find_length(checkpoint: Checkpoint, folder: str, max_seq_length: int, kind: str = "") -> int:
    """Returns the maximum number of tokens of a row.

    Raises:
      ValueError: if the model has fewer positions.
    """
    positions = checkpoint.config.longest_row
    length = max_seq_length or int(checkpoint.settings.get("max_seq_length", 0))
    if kind in EMBEDDERS:
        length = length or embedding_of(checkpoint).max_seq_length
    if kind == "splade":
        length = length or splade_length(pathlib.Path(folder), positions)
        length = length or min(MOST_TOKENS, positions)
    if kind == "reranker":
        length = length or min(stated_length(pathlib.Path(folder)), positions)
    # Without a position table there is no limit, but a row ends somewhere.
    length = length or min(positions, checkpoint.config.max_position_embeddings)
    # A pair has three special tokens.
    if not 3 < length <= positions:
        raise ValueError(
            f"max_seq_length is {length}; the model in {checkpoint.source} has {positions} "
            f"positions, so expected 4 .. {positions}."
        )
    return length


def make_keras_model(
    trained: TrainedModel, max_seq_length: int = 0, pair: bool | None = None
) -> tuple[Model, Metadata]:
    """Makes the Keras model of a checkpoint, ready for inference.

    Args:
      trained: a checkpoint whose kind has methods of `Predictor`.
      max_seq_length: maximum length of a row; 0: as in training, or all positions.
      pair: whether rows hold two texts; None: as in training.

    Returns:
      The model, and the metadata that a `Predictor` needs.
    """
    checkpoint, kind, folder = trained
    length = find_length(checkpoint, folder, max_seq_length, kind)
    options = kinds.find(kind).recorded(checkpoint, folder)
    inputs = options.get("texts", kinds.find(kind).inputs)
    if pair is not None:
        inputs = PAIR if pair else SINGLE
    if kind in EMBEDDERS:
        model = make_model(checkpoint, kind, max_seq_length=length)
    else:
        model = make_model(checkpoint, kind)
        # The length of predictions may differ from that of the training.
        model.preprocessor = make_preprocessor(checkpoint, length)
    if kind == "reranker":
        model.activation = options["activation"]
    model.bert.prepare_for_inference()  # A predictor never trains.
    if kind == "question_answering":
        check_room(trained.vocab, length, model.reading.doc_stride, model.reading.max_query_length)
    metadata = {
        "kind": kind,
        "labels": options.get("labels", ()),
        "inputs": inputs,
        "max_seq_length": length,
    }
    return model, metadata
