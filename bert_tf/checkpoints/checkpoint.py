"""A model read from any files: weights by name, configuration, vocabulary, labels.

Weights have google-research/bert's names and shapes, which are also the names of our variables.
V, D, F, P and Y are vocab_size, hidden_size, intermediate_size, max_position_embeddings and
type_vocab_size; E is table_width, the same as D in most models.

    bert/embeddings/word_embeddings [V, E]           .../token_type_embeddings [Y, E]
    bert/embeddings/position_embeddings [P, E]       bert/embeddings/LayerNorm/{gamma,beta} [E]
    bert/encoder/layer_0/attention/self/{query,key,value}/{kernel [D, D],bias [D]}
    bert/encoder/layer_0/attention/output/dense      .../attention/output/LayerNorm
    bert/encoder/layer_0/intermediate/dense          kernel [D, F]
    bert/encoder/layer_0/output/dense                kernel [F, D]; .../output/LayerNorm
    bert/pooler/dense/kernel [D, D]                  cls/seq_relationship/output_weights [2, D]
    cls/predictions/transform/dense/kernel [D, E]    cls/predictions/output_bias [V]

Names for what that program does not have:

    bert/embeddings_project/{kernel [E, D],bias [D]}    with `projects_embeddings`
    bert/encoder/layer_1/attention/LayerNorm            of pre-norm blocks, before attention (layer
                                                        0 has none), instead of the two above
    bert/encoder/layer_0/intermediate/LayerNorm         before the feed-forward part
    bert/encoder/LayerNorm                              after the last of these blocks
    bert/encoder/relative_embeddings/table [buckets, D] vectors of distances (DeBERTa)
    bert/encoder/relative_embeddings/LayerNorm          of these
    bert/encoder/layer_0/attention/self/r/kernel [D, D] Transformer-XL's relative positions, with
                                                        r_w_bias, r_r_bias, r_s_bias [N, H] and
                                                        seg_embed [2, N, H]
    bert/query_vector [1, 1, E]                         of the query stream (XLNet's mask_emb)
    bert/encoder/layer_0                                the layers of the first group, where groups
                                                        of layers share their weights (ALBERT)
    cls/transform/{dense,LayerNorm}                     before the head of every task (ModernBERT)
    cls/discriminator/{dense,dense_1}                   detects replaced tokens (ELECTRA)

A gated intermediate/dense is [D, 2F], the half with the activation first. Tables of types and
positions, and the biases of parts that have none, are absent. The heads of fine-tuned models
are cls/classifier, cls/tagger and cls/squad, each with output_weights [labels, D] and output_bias;
the layers of an embedding are cls/embedding/dense_0 and so on, those before a classifier's scores
cls/classifier/dense_0 and so on: see `pooled_layers`. The head of google-research/
electra for questions, where S is `JOINT_WIDTH`, has its names inside two parts:

    cls/joint_squad/dense/kernel [D, 1]        scores of starts
    cls/joint_squad/qa_hidden/kernel [2D, S]   of a start and an end, the start first
    cls/joint_squad/dense_1/kernel [S, 1]      scores of ends
    cls/answerable/dense/kernel [2D, S]        of [CLS] and the expected start; absent where
    cls/answerable/dense_1/kernel [S, 1]       every question has an answer
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

import numpy as np

from bert_tf.checkpoints.embedding import HEAD, MOST_TOKENS, EmbeddingConfig
from bert_tf.config import (
    BIAS_POSITIONS,
    DISENTANGLED_POSITIONS,
    TRANSFORMER_XL_BIASES,
    ModelConfig,
)
from bert_tf.config.pooled_layers import step_shapes
from bert_tf.text.tokenization import AnyVocab

Weights = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]

# Every head by the start of its weights' names. The pooler and the transformation before the heads
# of tasks count as heads: some models lack them.
HEADS = {
    "pooler": "bert/pooler/",
    "masked_lm": "cls/predictions/",
    "next_sentence": "cls/seq_relationship/",
    "discriminator": "cls/discriminator/",
    "transform": "cls/transform/",
    "classifier": "cls/classifier/",
    "tagger": "cls/tagger/",
    "squad": "cls/squad/",
    "joint_squad": "cls/joint_squad/",
    "answerable": "cls/answerable/",
    "embedding": HEAD,
}
PRETRAINING_HEADS = ("pooler", "masked_lm", "next_sentence", "discriminator", "transform")
LABEL_HEADS = ("classifier", "tagger")
# Remedies for missing and unknown weights, in messages.
ALLOW_MISSING = "list weights that may be missing in allow_missing (--allow_missing)."
ALLOW_UNEXPECTED = "list weights that may be left out in allow_unexpected (--allow_unexpected)."
BY_CONVERSION = "to leave them out, convert the model: convert_checkpoint --allow_unexpected."
JOINT_WIDTH = 512  # of the hidden layers of the joint head; finetune/qa/qa_tasks.py


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights of a model with everything needed to use them."""

    source: str  # the path it was read from
    form: str  # the program that wrote it: bert_tf, google, huggingface, keras_hub or model_garden
    config: ModelConfig  # shape of the network, GELU form, epsilon, casing
    weights: Weights  # float32 arrays by google-research/bert's names
    vocab: AnyVocab | None = None  # None if the files have none (a bare weights file)
    # Names of the classes, in the order of the head's rows; empty if not recorded.
    labels: tuple[str, ...] = ()
    # The casing given in the files; None if it was inferred from the vocabulary's tokens, or is
    # unknown.
    stated_casing: bool | None = None
    unused: tuple[str, ...] = ()  # names in the files, unchanged, that are unknown here
    notes: tuple[str, ...] = ()  # remarks for the user about reading the files, one sentence each
    family: str = "BERT"  # its name in messages: BERT, RoBERTa ..
    embedding: EmbeddingConfig | None = None  # how it embeds texts, if the files say so
    # The ELECTRA generator of this discriminator, if both were requested.
    generator: "Checkpoint | None" = None
    problem_type: str = ""  # of a classifier, one of `PROBLEM_TYPES`; "" if it is unknown
    is_multiple_choice: bool = False  # whether the classifier scores choices, as the files say
    # How it reads its inputs, of `run_record.INPUT_FIELDS`, as far as it is recorded.
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """Names of its heads, from `HEADS`."""
        return heads_of(self.weights)

    @property
    def num_labels(self) -> int:
        """Rows of the classification or tagging head; 0 without one."""
        return num_labels(self.weights)

    def check(
        self,
        allow_unexpected: Sequence[str] | None = None,
        allow_missing: Sequence[str] | None = None,
    ) -> None:
        """Checks that the weights are complete, finite, of the right shapes and all known.

        Args:
          allow_unexpected: prefixes of names in the files that may be left out; None if the caller
            has no option for them.
          allow_missing: prefixes of names of weights that may be missing; None as above.

        Raises:
          ValueError: with every name that is missing, unused, or has another shape.
        """
        expected = encoder_shapes(self.config)
        for head in self.heads:
            expected |= head_shapes(self.config, head, self.num_labels)
        if self.embedding:
            expected |= self.embedding.shapes()
        missing = unnamed(sorted(set(expected) - set(self.weights)), allow_missing or ())
        mismatched = shape_differences(self.weights, expected)
        unused = unnamed(self.unused, allow_unexpected or ())
        if missing or mismatched or unused:
            has_miss = allow_missing is not None
            has_ignore = allow_unexpected is not None
            remedies = {
                "configuration and weights belong to different models.": mismatched,
                ALLOW_MISSING if has_miss else "give a model that has them.": missing,
                ALLOW_UNEXPECTED if has_ignore else BY_CONVERSION: unused,
            }
            # The first problem decides: wrong shapes, then missing weights, then unknown ones.
            remedy = next(text for text, names in remedies.items() if names)
            raise ValueError(
                f"{self.source} does not match its {self.family} configuration:"
                f"{listed('missing', missing)}{listed('of the wrong shape', mismatched)}"
                f"{listed('not understood', unused)} {remedy}"
            )
        # NaN would spread through the first step; here the message can name the weight.
        broken = [name for name, value in self.weights.items() if not np.isfinite(value).all()]
        if broken:
            raise ValueError(
                f"{self.source} holds numbers that are{listed('not finite', broken).rstrip(';')}."
            )
        if self.vocab is not None and len(self.vocab) != self.config.vocab_size:
            raise ValueError(
                f"{self.source}: the vocabulary has {len(self.vocab)} tokens, but vocab_size is "
                f"{self.config.vocab_size}; they do not belong together."
            )
        if self.labels and self.num_labels not in (0, len(self.labels)):
            raise ValueError(
                f"{self.source}: {len(self.labels)} labels, but the head has {self.num_labels}."
            )


def with_transform(weights: Weights, config: ModelConfig) -> Weights:
    """Adds the transformation of task heads, initially that of the masked LM, unless there is one.

    ModernBERT's classes name both `head`.
    """
    start = f"{HEADS['masked_lm']}transform/"
    own = HEADS["transform"]
    if not config.head_transform or any(name.startswith(own) for name in weights):
        return weights
    renamed = dict(weights)
    for name, weight in weights.items():
        if name.startswith(start):
            renamed[own + name.removeprefix(start)] = weight
    return renamed


def without_task_heads(checkpoint: Checkpoint, kept_heads: Sequence[str] = ()) -> Checkpoint:
    """Returns the weights below a new head: the encoder, the transformation and `kept_heads`."""
    starts = tuple(HEADS[head] for head in ("transform", *kept_heads))
    kept = {}
    for name, weight in with_transform(checkpoint.weights, checkpoint.config).items():
        if not name.startswith("cls/") or name.startswith(starts):
            kept[name] = weight
    return dataclasses.replace(
        checkpoint, weights=kept, labels=(), problem_type="", is_multiple_choice=False
    )


def with_prefix(weights: Weights, starts: str | tuple[str, ...]) -> Weights:
    """Returns the weights whose names begin with one of `starts`."""
    return {name: weight for name, weight in weights.items() if name.startswith(starts)}


def without_prefix(weights: Weights, starts: str | tuple[str, ...]) -> Weights:
    """Returns the weights whose names begin with none of `starts`."""
    return {name: weight for name, weight in weights.items() if not name.startswith(starts)}


def listed(title: str, names: Sequence[str], most: int = 10) -> str:
    """Returns " title [names]" for a message, cut after `most` names; "" without names."""
    if not names:
        return ""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f" {title} ({len(names)}): {', '.join(names[:most])}{rest};"


def unnamed(names: Iterable[str], starts: Sequence[str]) -> list[str]:
    """Returns the names that begin with none of `starts`; a single string is one prefix."""
    starts = (starts,) if isinstance(starts, str) else tuple(starts)
    return [name for name in names if not name.startswith(starts)]


def heads_of(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the heads that have at least one weight among the names."""
    names = list(names)
    return tuple(head for head, start in HEADS.items() if any(n.startswith(start) for n in names))


def num_labels(weights: Weights) -> int:
    """Returns the rows of the classification or tagging head; 0 without one."""
    for head in LABEL_HEADS:
        table = weights.get(f"{HEADS[head]}output_weights")
        if table is not None and table.ndim:
            return int(table.shape[0])
    return 0


def shape_differences(weights: Weights, expected: Shapes) -> list[str]:
    """Describes each weight whose shape is not the expected one."""
    differences = []
    for name, shape in sorted(expected.items()):
        if name in weights and weights[name].shape != shape:
            differences.append(f"{name} {list(weights[name].shape)} instead of {list(shape)}")
    return differences


def encoder_shapes(config: ModelConfig) -> Shapes:
    """Returns the shapes of the embeddings and of all layers, by name."""
    e = config.table_width
    d = config.hidden_size
    f = config.intermediate_size
    shapes: Shapes = {"bert/embeddings/word_embeddings": (config.vocab_size, e)}
    if config.type_vocab_size:
        shapes["bert/embeddings/token_type_embeddings"] = (config.type_vocab_size, e)
    if config.has_position_table:
        shapes["bert/embeddings/position_embeddings"] = (config.max_position_embeddings, e)
    if config.embedding_norm:
        shapes |= _layer_norm(config, "bert/embeddings", e)
    if config.query_vector:
        shapes["bert/query_vector"] = (1, 1, e)
    if config.projects_embeddings:
        shapes |= _dense("bert/embeddings_project", e, d)
    has_attention = config.has_bias("attention")
    has_wide = config.has_bias("feed_forward")
    is_before = config.block_type == "pre_norm"
    # The owners of each block's two LayerNorms, before its parts or after them.
    norms = ("attention", "intermediate") if is_before else ("attention/output", "output")
    shapes |= _relative_shapes(config, "bert/encoder", is_shared=True)
    for index in range(config.num_unique_layers):
        layer = f"bert/encoder/layer_{index}"
        shapes |= _relative_shapes(config, f"{layer}/attention/self", is_shared=False)
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", d, d, has_attention)
        shapes |= _dense(f"{layer}/attention/output/dense", d, d, has_attention)
        # The embeddings are normalized, so the first pre-norm block has none before its attention;
        # a block that is applied several times (groups of layers) needs it.
        if index or not is_before or config.num_layer_groups:
            shapes |= _layer_norm(config, f"{layer}/{norms[0]}", d)
        # The gate and the values are one matrix.
        wide = 2 * f if config.gated_feed_forward else f
        shapes |= _dense(f"{layer}/intermediate/dense", d, wide, has_wide)
        shapes |= _dense(f"{layer}/output/dense", f, d, has_wide)
        shapes |= _layer_norm(config, f"{layer}/{norms[1]}", d)
    return shapes | (_layer_norm(config, "bert/encoder", d) if is_before else {})


def _relative_shapes(config: ModelConfig, owner: str, is_shared: bool) -> Shapes:
    """Returns the shapes of the relative positions, which all layers share or each layer has."""
    if config.position_type in DISENTANGLED_POSITIONS and is_shared:
        table = f"{owner}/relative_embeddings"
        shape = (config.relative_buckets, config.hidden_size)
        return {f"{table}/table": shape, **_layer_norm(config, table, config.hidden_size)}
    if config.position_type == "transformer_xl" and not is_shared:
        heads = (config.num_attention_heads, config.head_size)
        shapes: Shapes = {f"{owner}/{name}": heads for name in TRANSFORMER_XL_BIASES}
        shapes[f"{owner}/seg_embed"] = (2, *heads)
        shapes[f"{owner}/r/kernel"] = (config.hidden_size, config.hidden_size)
        return shapes
    # One table for all layers, or one in each layer.
    if config.position_type not in BIAS_POSITIONS or is_shared == config.relative_bias_per_layer:
        return {}
    shape = (config.relative_rows, config.num_attention_heads)
    return {f"{owner}/relative_attention_bias": shape}


def head_shapes(config: ModelConfig, head: str, labels: int = 2) -> Shapes:
    """Returns the shapes of a head's weights, by name; `labels` matters to `LABEL_HEADS` alone."""
    e = config.table_width
    d = config.hidden_size
    start = HEADS[head]
    if head == "embedding":  # Its shapes are those of `EmbeddingConfig`.
        return {}
    has_bias = config.has_bias("head")
    if head == "pooler":
        return _dense(f"{start}dense", d, d)
    if head == "discriminator":
        return _dense(f"{start}dense", d, d) | _dense(f"{start}dense_1", d, 1)
    if head == "joint_squad":
        shapes = _dense(f"{start}dense", d, 1) | _dense(f"{start}dense_1", JOINT_WIDTH, 1)
        return shapes | _dense(f"{start}qa_hidden", 2 * d, JOINT_WIDTH)
    if head == "answerable":
        return _dense(f"{start}dense", 2 * d, JOINT_WIDTH) | _dense(
            f"{start}dense_1", JOINT_WIDTH, 1
        )
    if head == "transform":
        return _dense(f"{start}dense", d, d, has_bias) | _layer_norm(config, start.rstrip("/"), d)
    if head == "masked_lm":
        shapes = {}
        if config.masked_lm_transform:
            shapes |= _dense(f"{start}transform/dense", d, e, has_bias)
            shapes |= _layer_norm(config, f"{start}transform", e)
        if config.has_bias("output"):
            shapes[f"{start}output_bias"] = (config.vocab_size,)
        return shapes
    # Two rows: really next and random sentence, or the scores of starts and of ends (SQuAD).
    rows = labels if head in LABEL_HEADS else 2
    shapes = {f"{start}output_weights": (rows, d), f"{start}output_bias": (rows,)}
    if head == "classifier":
        shapes[f"{start}output_weights"] = (rows, config.classifier_width)
        shapes |= step_shapes(config.classifier_steps, start)
    return shapes


def weight_names(config: ModelConfig) -> set[str]:
    """Returns the names of all weights that a model of this configuration can have."""
    names = set(encoder_shapes(config))
    for head in HEADS:
        names.update(head_shapes(config, head))
    return names


def table_rows(weights: Weights, config: ModelConfig) -> int:
    """Returns the number of rows of the word table; without a table, the configuration's."""
    table = weights.get("bert/embeddings/word_embeddings")
    if table is not None and table.ndim:
        return table.shape[0]
    return config.vocab_size


def _dense(name: str, inputs: int, outputs: int, has_bias: bool = True) -> Shapes:
    bias: Shapes = {f"{name}/bias": (outputs,)} if has_bias else {}
    return {f"{name}/kernel": (inputs, outputs), **bias}


def _layer_norm(config: ModelConfig, owner: str, size: int) -> Shapes:
    beta: Shapes = {f"{owner}/LayerNorm/beta": (size,)} if config.has_bias("norm") else {}
    return {f"{owner}/LayerNorm/gamma": (size,), **beta}


def count_layers(names: Iterable[str]) -> int:
    """Returns the number of encoder layers, by the highest number in bert_tf's names."""
    count = 0
    for name in names:
        if match := re.match(r"bert/encoder/layer_(\d+)/", name):
            count = max(count, int(match[1]) + 1)
    return count


def embedding_of(
    checkpoint: Checkpoint, pooling: str = "", max_seq_length: int = 0
) -> EmbeddingConfig:
    """Returns the settings by which a model embeds texts; ValueError for an unknown pooling.

    Without a given pooling or length they are the model's, by default the mean of `MOST_TOKENS`.
    """
    longest = checkpoint.config.longest_row
    default = EmbeddingConfig(max_seq_length=min(MOST_TOKENS, longest))
    embedding = checkpoint.embedding or default
    if pooling:
        embedding = dataclasses.replace(embedding, pooling=(pooling,))
    if max_seq_length:
        embedding = dataclasses.replace(embedding, max_seq_length=max_seq_length)
    return embedding
