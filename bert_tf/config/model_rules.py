"""The combinations of fields that a `ModelConfig` cannot have."""

from typing import TYPE_CHECKING

from bert_tf.config.rules import Rule

if TYPE_CHECKING:
    from bert_tf.config.model import ModelConfig

# The parts that may have biases: the matrix products of attention and of the feed-forward part,
# LayerNorm, the dense layers before the heads, and the scores of the masked tokens.
BIASES = ("attention", "feed_forward", "norm", "head", "output")
BIAS_POSITIONS = ("relative", "learned_relative")
DISENTANGLED_POSITIONS = ("disentangled", "learned_disentangled")


def has_unknown_biases(config: "ModelConfig") -> bool:
    return not set(config.biases.split(",")) <= {*BIASES, "all", "none"}


def has_few_distances(config: "ModelConfig") -> bool:
    """Whether the buckets of disentangled positions reach beyond the largest distance."""
    half = config.relative_buckets // 2
    farthest = config.relative_max_distance
    return half > farthest or half // 2 >= farthest - 1


# The first rule that is broken is reported.
RULES = (
    Rule(
        lambda c: c.hidden_size % c.num_attention_heads,
        "hidden_size {c.hidden_size} is not a multiple of num_attention_heads "
        "{c.num_attention_heads}; change one of them.",
    ),
    Rule(
        lambda c: c.position_type.startswith("rotary") and c.head_size % 2,
        "position_type {c.position_type} rotates pairs of numbers, but a head has {c.head_size} "
        "(hidden_size / num_attention_heads): make it even.",
    ),
    Rule(
        lambda c: c.num_layer_groups > c.num_hidden_layers,
        "num_layer_groups {c.num_layer_groups} exceeds num_hidden_layers {c.num_hidden_layers}; "
        "give at most one group for each layer, or 0.",
    ),
    Rule(
        lambda c: c.num_hidden_layers == 0 and c.position_type != "none",
        "num_hidden_layers is 0, expected at least 1; only static embedders have no layers.",
    ),
    Rule(
        lambda c: c.pad_token_id >= c.vocab_size,
        "pad_token_id is {c.pad_token_id}, but vocab_size is {c.vocab_size}; expected the id of "
        "padding in the vocabulary.",
    ),
    Rule(
        has_unknown_biases,
        "biases: received {c.biases}, expected all, none, or some of " + ",".join(BIASES) + ".",
    ),
    Rule(
        lambda c: c.has_position_table and c.position_offset >= c.max_position_embeddings,
        "position_offset {c.position_offset} leaves no row of the position table: "
        "max_position_embeddings is {c.max_position_embeddings}; increase it.",
    ),
    Rule(
        lambda c: not c.has_position_table and c.position_offset,
        "position_offset {c.position_offset} is a row of the learned table, but position_type is "
        "{c.position_type}; leave it out.",
    ),
    Rule(
        lambda c: c.position_type in BIAS_POSITIONS and c.relative_buckets % 4,
        "relative_buckets is {c.relative_buckets}, expected a multiple of 4: a half for each "
        "direction, and half of that for single distances.",
    ),
    Rule(
        lambda c: (
            c.position_type in BIAS_POSITIONS and c.relative_max_distance <= c.relative_buckets // 4
        ),
        "relative_max_distance is {c.relative_max_distance}, but a quarter of the "
        "relative_buckets {c.relative_buckets} are for single distances; expected a larger "
        "distance or fewer buckets.",
    ),
    Rule(
        lambda c: c.position_type in DISENTANGLED_POSITIONS and c.relative_buckets % 2,
        "relative_buckets is {c.relative_buckets}, expected an even number: a half for each "
        "direction.",
    ),
    Rule(
        lambda c: c.position_type in DISENTANGLED_POSITIONS and has_few_distances(c),
        "relative_max_distance is {c.relative_max_distance}, but half of the relative_buckets "
        "{c.relative_buckets} are for each direction; expected a larger distance or fewer buckets.",
    ),
    Rule(
        lambda c: c.position_type == "transformer_xl" and c.hidden_size % 2,
        "position_type transformer_xl has as many sines as cosines of a distance, but hidden_size "
        "is {c.hidden_size}: make it even.",
    ),
    Rule(
        lambda c: c.position_type == "transformer_xl" and c.local_attention,
        "local_attention {c.local_attention} does not work with position_type transformer_xl; "
        "leave it out, or choose another position_type.",
    ),
    Rule(
        lambda c: c.query_vector and c.reads_left_to_right,
        "query_vector predicts tokens by a query stream, but reads_left_to_right predicts from the "
        "token before; leave one of them out.",
    ),
    Rule(
        lambda c: not c.masked_lm_transform and c.table_width != c.hidden_size,
        "masked_lm_transform is False, but the tables are {c.table_width} wide and the layers "
        "{c.hidden_size}; expected the same width, or the transform.",
    ),
    Rule(
        lambda c: c.local_attention // 2 > c.max_position_embeddings,
        "local_attention {c.local_attention} exceeds the longest sequence, max_position_embeddings "
        "{c.max_position_embeddings}: leave it out.",
    ),
)
