"""Configuration of the encoder, which bert_config.json stores."""

import dataclasses
import functools
import json
import pathlib
from typing import Any, Self

from bert_tf.config.fields import Config, option
from bert_tf.config.model_rules import BIASES, RULES
from bert_tf.config.pooled_layers import POOLINGS, Step, output_width, steps_from_text
from bert_tf.config.rules import check_rules
from bert_tf.system.files import read_json

GELU_FORMS = ("gelu_tanh", "gelu_exact")
ACTIVATIONS = (*GELU_FORMS, "relu", "tanh", "linear", "silu")
NORMALIZED = "normalized_"  # prefix of poolings whose vectors have length 1
BLOCKS = ("post_norm", "pre_norm")
# Learned tables limit the length of a sequence.
TABLE_POSITIONS = ("learned", "learned_relative", "learned_disentangled")
TRANSFORMER_XL_BIASES = ("r_w_bias", "r_r_bias", "r_s_bias")  # Names of XLNet, in every layer.
POSITION_TYPES = (
    "learned",
    "sinusoidal",
    "rotary",
    "rotary_interleaved",
    "alibi",
    "relative",
    "learned_relative",
    "disentangled",
    "learned_disentangled",
    "transformer_xl",
    "none",
)
TOKENIZERS = ("wordpiece", "byte_bpe", "unigram", "sentencepiece_bpe")
UNLIMITED = 1 << 31

# Fields that an architecture fixes; see `architectures`.
structural = functools.partial(option, within="model_options")
of_transformer_xl = functools.partial(
    structural, lower=0, needs=("position_type", "transformer_xl")
)


@dataclasses.dataclass(frozen=True)
class ModelConfig(Config):
    """Shape of the encoder; the names are the keys of google-research/bert's bert_config.json.

    Differs from the original: `hidden_act` names the form of GELU (`gelu` alone is ambiguous: the
    original uses the tanh form, Hugging Face the erf form), and the casing is stored with the
    shape, so that a wrong `do_lower_case` is detected.
    """

    vocab_size: int = option(30522, "Rows of the word embedding table.", lower=5)
    hidden_size: int = option(768, "Width of every layer.", lower=1)
    num_hidden_layers: int = option(12, "Encoder layers.", lower=0, upper=1000)
    num_attention_heads: int = option(12, "Heads per layer; divides hidden_size.", lower=1)
    intermediate_size: int = option(3072, "Width inside the feed-forward part.", lower=1)
    hidden_act: str = structural(
        "gelu_tanh", "Activation; the form of GELU is part of its name.", choices=ACTIVATIONS
    )
    hidden_dropout_prob: float = option(0.1, "Dropout of layer outputs.", lower=0.0, upper=0.99)
    attention_probs_dropout_prob: float = option(
        0.1, "Dropout of attention probabilities.", lower=0.0, upper=0.99
    )
    max_position_embeddings: int = option(512, "Rows of the position table.", lower=1)
    type_vocab_size: int = structural(2, "Rows of the segment table; 0: no table.", lower=0)
    initializer_range: float = structural(
        0.02, "Standard deviation of the truncated normal initialiser.", lower=0.0
    )
    layer_norm_eps: float = structural(1e-12, "Epsilon of every LayerNorm.", lower=0.0)
    do_lower_case: bool = option(True, "Lower-case the text and strip accents (uncased model).")
    tokenizer: str = option(
        "wordpiece",
        "Algorithm that splits words into tokens; byte_bpe is that of GPT-2 and RoBERTa, unigram "
        "that of XLM-RoBERTa and ALBERT (SentencePiece), sentencepiece_bpe that of Gemma.",
        choices=TOKENIZERS,
    )
    num_layer_groups: int = structural(
        0,
        "Groups of consecutive layers that share their weights (ALBERT: 1); 0: every layer has its "
        "own weights.",
        lower=0,
    )
    pad_token_id: int = structural(0, "Id of padding.", lower=0)
    embedding_size: int = option(
        0, "Width of the embedding tables, projected to hidden_size; 0: hidden_size.", lower=0
    )
    embedding_projection: bool = structural(
        False, "Project the embeddings even where embedding_size is hidden_size (as ALBERT does)."
    )
    position_type: str = structural(
        "learned",
        "How positions are represented: learned: a table; sinusoidal: sines added to the "
        "embeddings (Vaswani et al.); rotary, rotary_interleaved: queries and keys rotated, by "
        "halves (NeoX, ModernBERT) or interleaved (RoFormer); alibi: a symmetric bias that grows "
        "with the distance; relative: a learned bias for each bucket of distances (T5); "
        "learned_relative: a table and such a bias (MPNet); disentangled: products of contents "
        "and learned vectors of distances (DeBERTa); learned_disentangled: a table and such "
        "products; transformer_xl: products with sines of the distance, and whether two tokens "
        "have the same type (XLNet); none: the order of the tokens has no effect.",
        choices=POSITION_TYPES,
    )
    position_offset: int = structural(
        0,
        "Row of the first position in the table; above 0, padding has no position (RoBERTa: 2).",
        lower=0,
    )
    relative_buckets: int = structural(
        32,
        "Buckets of distances that have a learned bias, a multiple of 4, or with disentangled "
        "positions a learned vector, an even number (twice DeBERTa's position_buckets).",
        lower=4,
    )
    relative_max_distance: int = structural(
        128, "Distance from which on all tokens are in the last bucket.", lower=2
    )
    relative_unused_rows: int = structural(
        0, "Rows of the table of biases after those of the buckets, without effect.", lower=0
    )
    relative_bias_per_layer: bool = structural(
        False, "Whether each layer learns its own biases of distances, or all share them."
    )
    pos_att_type: str = structural(
        "p2c,c2p",
        "Products of disentangled positions: c2p: the query's content and the position; p2c: the "
        "position and the key's content.",
        choices=("p2c,c2p", "c2p,p2c", "p2c", "c2p"),
    )
    clamp_distance: int = of_transformer_xl(
        0,
        "Distance from which on the sines of transformer_xl are the same; 0: no such distance.",
    )
    memory_length: int = of_transformer_xl(
        0,
        "Tokens of earlier segments that memories hold (XLNet's mem_len); 0: all of them.",
    )
    memory_reuse: int = of_transformer_xl(
        0,
        "Tokens of a segment, from its start, that are added to the memories (XLNet's reuse_len); "
        "0: all.",
    )
    rotary_theta: float = structural(10000.0, "Base of the rotations' wavelengths.", lower=1.0)
    local_rotary_theta: float = structural(
        0.0, "rotary_theta of layers with local attention; 0: rotary_theta.", lower=0.0
    )
    block_type: str = structural(
        "post_norm",
        "LayerNorm after each half of a layer (post_norm, BERT), or before it (pre_norm, "
        "ModernBERT).",
        choices=BLOCKS,
    )
    gated_feed_forward: bool = structural(
        False, "GeGLU: activation(first half) * second half, each intermediate_size wide."
    )
    embedding_norm: bool = structural(True, "LayerNorm after the embeddings; XLNet has none.")
    query_vector: bool = structural(
        False,
        "A learned vector stands for each token that a query stream predicts (XLNet), instead of "
        "the embedding of [MASK].",
    )
    pooled_token: str = structural(
        "first",
        "The token whose vector stands for the text: the first, or the last (XLNet).",
        choices=("first", "last"),
    )
    biases: str = structural("all", f"Parts with biases: all, none, or some of {','.join(BIASES)}.")
    local_attention: int = structural(
        0,
        "Window of local attention: each token attends to tokens within half the window; 0: no "
        "window.",
        lower=0,
    )
    global_attention_every: int = structural(
        3,
        "With local attention: starting at the first layer, every Nth layer has global attention.",
        lower=1,
    )
    classifier_pooling: str = structural(
        "pooler",
        "Input of the classification head: pooler: the pooled_token through a dense layer; cls: "
        "the pooled_token; mean: the mean of the tokens; another pooling of sentence-transformers, "
        "or several joined by +; normalized_cls and so on: the same, scaled to length 1.",
    )
    classifier_layers: str = structural(
        "",
        "Layers between classifier_pooling and the classification head, as "
        "dense:384:gelu_exact:bias+layer_norm.",
    )
    pooler_act: str = structural("tanh", "Activation of the pooler.", choices=ACTIVATIONS)
    head_act: str = structural(
        "",
        "Activation of the dense layer before the heads, including the MLM head; empty: "
        "hidden_act.",
        choices=("", *ACTIVATIONS),
    )
    reads_left_to_right: bool = structural(
        False, "Whether the model was also trained to predict the next token (causal_share)."
    )
    head_transform: bool = structural(
        False, "A dense layer, activation and LayerNorm before the head of every task (ModernBERT)."
    )
    masked_lm_transform: bool = structural(
        True,
        "A dense layer, activation and LayerNorm before the scores of masked tokens; XLNet has "
        "none.",
    )

    def check(self) -> None:
        check_rules(RULES, self)
        self._check_classifier()

    def _check_classifier(self) -> None:
        names = self.classifier_poolings
        known = [*POOLINGS, *(f"{NORMALIZED}{name}" for name in POOLINGS)]
        if self.classifier_pooling != "pooler" and not set(names) <= set(POOLINGS):
            raise ValueError(
                f"classifier_pooling: received {self.classifier_pooling!r}, expected pooler or one "
                f"of {known}."
            )
        if self.head_transform and (len(names) > 1 or self.classifier_layers):
            raise ValueError(
                "head_transform is the layer of a head on one pooling; leave out "
                f"classifier_pooling {self.classifier_pooling} and classifier_layers, or it."
            )
        try:
            _ = self.classifier_steps
        except ValueError as error:
            raise ValueError(f"classifier_layers: {error}") from None

    @property
    def has_position_table(self) -> bool:
        """Whether the embeddings have a learned row for each position."""
        return self.position_type in TABLE_POSITIONS

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def transform_act(self) -> str:
        """Activation of the dense layer before the heads."""
        return self.head_act or self.hidden_act

    @property
    def classifier_poolings(self) -> list[str]:
        """The poolings of the classification head, without the prefix for length 1."""
        return self.classifier_pooling.removeprefix(NORMALIZED).split("+")

    @property
    def classifier_steps(self) -> tuple[Step, ...]:
        """The layers of `classifier_layers`."""
        # Several poolings are concatenated.
        width = len(self.classifier_poolings) * self.hidden_size
        return steps_from_text(self.classifier_layers, width)

    @property
    def classifier_width(self) -> int:
        """Width of the classification head's input."""
        width = len(self.classifier_poolings) * self.hidden_size
        return output_width(self.classifier_steps, width, "classifier_layers")

    @property
    def table_width(self) -> int:
        """Width of the word table."""
        return self.embedding_size or self.hidden_size

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer takes the embeddings to the width of the layers."""
        return self.embedding_projection or self.table_width != self.hidden_size

    @property
    def longest_row(self) -> int:
        """Maximum length of a sequence: the size of the position table, or no limit."""
        if not self.has_position_table:
            return UNLIMITED
        # The rows before the first position belong to padding.
        return self.max_position_embeddings - self.position_offset

    @property
    def relative_rows(self) -> int:
        """Rows of a table of biases of distances."""
        return self.relative_buckets + self.relative_unused_rows

    @property
    def num_unique_layers(self) -> int:
        """Number of layers with separate weights: the groups of layers, where these share them."""
        return self.num_layer_groups or self.num_hidden_layers

    def unique_layer(self, layer: int) -> int:
        """Returns the number of the unique layer that has the weights of a layer."""
        # The division of transformers, rounding included: it decides if the groups differ in size.
        return int(layer / (self.num_hidden_layers / self.num_unique_layers))

    def has_bias(self, part: str) -> bool:
        """Returns whether a part of `BIASES` has biases."""
        return self.biases == "all" or part in self.biases.split(",")

    def is_local(self, layer: int) -> bool:
        """Returns whether a layer has local attention."""
        return self.local_attention > 0 and layer % self.global_attention_every > 0

    @classmethod
    def read(cls, path: str | pathlib.Path, others: Self | None = None) -> Self:
        """Reads a bert_config.json of bert_tf or google-research/bert; see `from_json_object`.

        Raises:
          ValueError: if it is not a JSON object, or a value does not fit its field.
        """
        return cls.from_json_object(read_json(path), str(path), others)

    @classmethod
    def from_json_object(
        cls, values: dict[str, Any], source: str, others: Self | None = None
    ) -> Self:
        """Creates the configuration from the JSON object of any BERT configuration file.

        Unknown keys are ignored, as in the original (some releases have pooler_*).
        `"hidden_act": "gelu"` is read as `gelu_tanh`, the form of google-research/bert, unless
        `gelu_form` is `exact`.

        Args:
          others: values of fields that the file lacks (Google's has no casing); None: the defaults.

        Raises:
          ValueError: if a value does not fit its field.
        """
        if values.get("hidden_act") == "gelu":
            form = values.get("gelu_form", "tanh")
            if f"gelu_{form}" not in GELU_FORMS:
                raise ValueError(f"{source}: gelu_form is {form!r}, expected 'tanh' or 'exact'.")
            values = {**values, "hidden_act": f"gelu_{form}"}
        fields = others.to_dict() if others else {}
        known = set(cls.names())
        for key, value in values.items():
            if key in known:
                fields[key] = value
        try:
            return cls.from_dict(fields)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source}: {error}") from None

    def to_json(self) -> str:
        """Returns the text of bert_config.json."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
