"""Configuration: frozen dataclasses, which alone define defaults, help texts and ranges.

`config_flags.py` converts each class to command-line flags and back. A field name occurs only once
in all classes, because absl has a single namespace: one name, one meaning. Names and defaults are
those of google-research/bert wherever the meaning is the same.
"""

import dataclasses
import functools
import json
import math
import pathlib
import typing
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from bert_tf.files import read_json

GELU_FORMS = ("gelu_tanh", "gelu_exact")
ACTIVATIONS = (*GELU_FORMS, "relu", "tanh", "linear")
BLOCKS = ("post_norm", "pre_norm")
# Learned tables limit the length of a sequence.
TABLE_POSITIONS = ("learned", "learned_relative", "learned_disentangled")
BIAS_POSITIONS = ("relative", "learned_relative")
DISENTANGLED_POSITIONS = ("disentangled", "learned_disentangled")
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
)
# The parts that may have biases: the matrix products of attention and of the feed-forward part,
# LayerNorm, the dense layers before the heads, and the scores of the masked tokens.
BIASES = ("attention", "feed_forward", "norm", "head", "output")
TOKENIZERS = ("wordpiece", "byte_bpe", "unigram", "sentencepiece_bpe")
UNLIMITED = 1 << 31


def option(
    default: Any,
    help_text: str,
    *,
    choices: tuple[str, ...] | None = None,
    lower: float | None = None,
    upper: float | None = None,
    may_change: bool = False,
    from_run: bool = False,
    of_data: bool = False,
    needs: tuple[str, ...] = (),
) -> Any:
    """Declares one field with its metadata.

    Args:
      default: the default value.
      help_text: help of the flag.
      choices: the allowed values; None for any.
      lower, upper: bounds, inclusive.
      may_change: whether a run may be resumed with another value. Such fields control where and how
        the run is computed and reported. Its numbers change only by rounding and by the dropout
        masks, which depend on replicas and micro-batches (in a retriever only on the batch).
      from_run: whether an evaluation or prediction takes the value from the run of the weights.
      of_data: whether a field of a program's task controls how data are read or evaluated, so that
        it is not taken from the run if other data are evaluated.
      needs: the condition under which the field has an effect: the name of another field, then the
        values that it must have; without values, any but its default. See `Config.check_needs`.
    """
    metadata = {
        "help": help_text,
        "choices": choices,
        "lower": lower,
        "upper": upper,
        "may_change": may_change,
        "from_run": from_run,
        "of_data": of_data,
        "needs": needs,
    }
    return dataclasses.field(default=default, metadata=metadata)


changeable = functools.partial(option, may_change=True)
share = functools.partial(option, lower=0.0, upper=1.0)


@dataclasses.dataclass(frozen=True)
class Config:
    """Base class of all groups; checks every field's type, choices and range."""

    def __post_init__(self) -> None:
        types = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            check_value(field, types[field.name], getattr(self, field.name))
        self.check()

    def check(self) -> None:
        """Checks conditions that involve several fields; subclasses override it."""

    def check_needs(self, names: Iterable[str]) -> None:
        """Raises ValueError for a value that has no effect with the value of another field.

        Args:
          names: the fields to check: those that the user gave, not those of an earlier run.
        """
        fields = {field.name: field for field in dataclasses.fields(self)}
        for name in names:
            value = getattr(self, name)
            needs = fields[name].metadata["needs"]
            if value == fields[name].default or not needs:
                continue
            other, *allowed = needs
            other_value = getattr(self, other)
            if allowed and other_value not in allowed:
                raise ValueError(
                    f"{name}={value} has no effect with {other} {other_value or 'empty'}; leave it "
                    f"out, or choose {' or '.join(allowed)}."
                )
            if not allowed and other_value == fields[other].default:
                raise ValueError(
                    f"{name}={value} has no effect without {other}; give {other} as well, or leave "
                    f"{name} out."
                )

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields in declared order."""
        return dataclasses.asdict(self)

    @classmethod
    def names(cls, **metadata: bool) -> list[str]:
        """Returns the fields with this metadata, see `option`; all fields without arguments."""
        names = []
        for field in dataclasses.fields(cls):
            if all(field.metadata[key] == value for key, value in metadata.items()):
                names.append(field.name)
        return names

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Creates the object from a dict.

        Raises:
          ValueError: on an unknown key or a value out of range.
        """
        known = cls.names()
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"{cls.__name__}: unknown keys {unknown}; known keys are {known}.")
        return cls(**values)


def check_value(field: dataclasses.Field, kind: type, value: Any) -> None:
    """Raises ValueError or TypeError if `value` does not fit the field's type and range."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(
            f"{field.name}: expected {kind.__name__}, received {value!r} ({type(value).__name__})."
        )
    choices = field.metadata["choices"]
    lower = field.metadata["lower"]
    upper = field.metadata["upper"]
    if choices and value not in choices:
        raise ValueError(f"{field.name}: received {value!r}, expected one of {list(choices)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{field.name}: received {value}, expected a finite number.")
    if lower is not None and value < lower:
        raise ValueError(f"{field.name}: received {value}, expected at least {lower}.")
    if upper is not None and value > upper:
        raise ValueError(f"{field.name}: received {value}, expected at most {upper}.")


@dataclasses.dataclass(frozen=True)
class ModelConfig(Config):
    """Shape of the encoder; the names are the keys of google-research/bert's bert_config.json.

    Differs from the original: `hidden_act` names the form of GELU (`gelu` alone is ambiguous: the
    original uses the tanh form, Hugging Face the erf form), and the casing is stored with the
    shape, so that a wrong `do_lower_case` is detected.
    """

    vocab_size: int = option(30522, "Rows of the word embedding table.", lower=5)
    hidden_size: int = option(768, "Width of every layer.", lower=1)
    num_hidden_layers: int = option(12, "Encoder layers.", lower=1, upper=1000)
    num_attention_heads: int = option(12, "Heads per layer; divides hidden_size.", lower=1)
    intermediate_size: int = option(3072, "Width inside the feed-forward part.", lower=1)
    hidden_act: str = option(
        "gelu_tanh", "Activation; the form of GELU is part of its name.", choices=ACTIVATIONS
    )
    hidden_dropout_prob: float = option(0.1, "Dropout of layer outputs.", lower=0.0, upper=0.99)
    attention_probs_dropout_prob: float = option(
        0.1, "Dropout of attention probabilities.", lower=0.0, upper=0.99
    )
    max_position_embeddings: int = option(512, "Rows of the position table.", lower=1)
    type_vocab_size: int = option(2, "Rows of the segment table; 0: no table.", lower=0)
    initializer_range: float = option(
        0.02, "Standard deviation of the truncated normal initialiser.", lower=0.0
    )
    layer_norm_eps: float = option(1e-12, "Epsilon of every LayerNorm.", lower=0.0)
    do_lower_case: bool = option(True, "Lower-case the text and strip accents (uncased model).")
    tokenizer: str = option(
        "wordpiece",
        "Algorithm that splits words into tokens; byte_bpe is that of GPT-2 and RoBERTa, unigram "
        "that of XLM-RoBERTa and ALBERT (SentencePiece), sentencepiece_bpe that of Gemma.",
        choices=TOKENIZERS,
    )
    num_layer_groups: int = option(
        0,
        "Groups of consecutive layers that share their weights (ALBERT: 1); 0: every layer has its "
        "own weights.",
        lower=0,
    )
    pad_token_id: int = option(0, "Id of padding.", lower=0)
    embedding_size: int = option(
        0, "Width of the embedding tables, projected to hidden_size; 0: hidden_size.", lower=0
    )
    position_type: str = option(
        "learned",
        "How positions are represented: learned: a table; sinusoidal: sines added to the "
        "embeddings (Vaswani et al.); rotary, rotary_interleaved: queries and keys rotated, by "
        "halves (NeoX, ModernBERT) or interleaved (RoFormer); alibi: a symmetric bias that grows "
        "with the distance; relative: a learned bias for each bucket of distances (T5); "
        "learned_relative: a table and such a bias (MPNet); disentangled: products of contents "
        "and learned vectors of distances (DeBERTa); learned_disentangled: a table and such "
        "products; transformer_xl: products with sines of the distance, and whether two tokens "
        "have the same type (XLNet).",
        choices=POSITION_TYPES,
    )
    position_offset: int = option(
        0,
        "Row of the first position in the table; above 0, padding has no position (RoBERTa: 2).",
        lower=0,
    )
    relative_buckets: int = option(
        32,
        "Buckets of distances that have a learned bias, a multiple of 4, or with disentangled "
        "positions a learned vector, an even number (twice DeBERTa's position_buckets).",
        lower=4,
    )
    relative_max_distance: int = option(
        128, "Distance from which on all tokens are in the last bucket.", lower=2
    )
    relative_unused_rows: int = option(
        0, "Rows of the table of biases after those of the buckets, without effect.", lower=0
    )
    relative_bias_per_layer: bool = option(
        False, "Whether each layer learns its own biases of distances, or all share them."
    )
    pos_att_type: str = option(
        "p2c,c2p",
        "Products of disentangled positions: c2p: the query's content and the position; p2c: the "
        "position and the key's content.",
        choices=("p2c,c2p", "c2p,p2c", "p2c", "c2p"),
    )
    clamp_distance: int = option(
        0,
        "Distance from which on the sines of transformer_xl are the same; 0: no such distance.",
        lower=0,
        needs=("position_type", "transformer_xl"),
    )
    memory_length: int = option(
        0,
        "Tokens of earlier segments that memories hold (XLNet's mem_len); 0: all of them.",
        lower=0,
        needs=("position_type", "transformer_xl"),
    )
    memory_reuse: int = option(
        0,
        "Tokens of a segment, from its start, that are added to the memories (XLNet's reuse_len); "
        "0: all.",
        lower=0,
        needs=("position_type", "transformer_xl"),
    )
    rotary_theta: float = option(10000.0, "Base of the rotations' wavelengths.", lower=1.0)
    local_rotary_theta: float = option(
        0.0, "rotary_theta of layers with local attention; 0: rotary_theta.", lower=0.0
    )
    block_type: str = option(
        "post_norm",
        "LayerNorm after each half of a layer (post_norm, BERT), or before it (pre_norm, "
        "ModernBERT).",
        choices=BLOCKS,
    )
    gated_feed_forward: bool = option(
        False, "GeGLU: activation(first half) * second half, each intermediate_size wide."
    )
    embedding_norm: bool = option(True, "LayerNorm after the embeddings; XLNet has none.")
    query_vector: bool = option(
        False,
        "A learned vector stands for each token that a query stream predicts (XLNet), instead of "
        "the embedding of [MASK].",
    )
    pooled_token: str = option(
        "first",
        "The token whose vector stands for the text: the first, or the last (XLNet).",
        choices=("first", "last"),
    )
    biases: str = option("all", f"Parts with biases: all, none, or some of {','.join(BIASES)}.")
    local_attention: int = option(
        0,
        "Window of local attention: each token attends to tokens within half the window; 0: no "
        "window.",
        lower=0,
    )
    global_attention_every: int = option(
        3,
        "With local attention: starting at the first layer, every Nth layer has global attention.",
        lower=1,
    )
    classifier_pooling: str = option(
        "pooler",
        "Input of the classification head: pooler: the pooled_token through a dense layer; cls: "
        "the pooled_token; mean: the mean of the tokens.",
        choices=("pooler", "cls", "mean"),
    )
    pooler_act: str = option("tanh", "Activation of the pooler.", choices=ACTIVATIONS)
    head_act: str = option(
        "",
        "Activation of the dense layer before the heads, including the MLM head; empty: "
        "hidden_act.",
        choices=("", *ACTIVATIONS),
    )
    reads_left_to_right: bool = option(
        False, "Whether the model was also trained to predict the next token (--causal_share)."
    )
    head_transform: bool = option(
        False, "A dense layer, activation and LayerNorm before the head of every task (ModernBERT)."
    )
    masked_lm_transform: bool = option(
        True,
        "A dense layer, activation and LayerNorm before the scores of masked tokens; XLNet has "
        "none.",
    )

    def check(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; change one of them."
            )
        if self.position_type.startswith("rotary") and self.head_size % 2:
            raise ValueError(
                f"position_type {self.position_type} rotates pairs of numbers, but a head has "
                f"{self.head_size} (hidden_size / num_attention_heads): make it even."
            )
        if self.num_layer_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_layer_groups {self.num_layer_groups} exceeds num_hidden_layers "
                f"{self.num_hidden_layers}; give at most one group for each layer, or 0."
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id is {self.pad_token_id}, but vocab_size is {self.vocab_size}; "
                "expected the id of padding in the vocabulary."
            )
        unknown = sorted(set(self.biases.split(",")) - {*BIASES, "all", "none"})
        if unknown:
            raise ValueError(
                f"biases: received {unknown}, expected all, none, or some of {list(BIASES)}."
            )
        if self.has_position_table and self.position_offset >= self.max_position_embeddings:
            raise ValueError(
                f"position_offset {self.position_offset} leaves no row of the position table: "
                f"max_position_embeddings is {self.max_position_embeddings}; increase it."
            )
        if not self.has_position_table and self.position_offset:
            raise ValueError(
                f"position_offset {self.position_offset} is a row of the learned table, but "
                f"position_type is {self.position_type}; leave it out."
            )
        if self.position_type in BIAS_POSITIONS:
            self._check_buckets()
        if self.position_type in DISENTANGLED_POSITIONS:
            self._check_disentangled_buckets()
        if self.position_type == "transformer_xl":
            self._check_transformer_xl()
        if self.query_vector and self.reads_left_to_right:
            raise ValueError(
                "query_vector predicts tokens by a query stream, but reads_left_to_right predicts "
                "from the token before; leave one of them out."
            )
        if not self.masked_lm_transform and self.table_width != self.hidden_size:
            raise ValueError(
                f"masked_lm_transform is False, but the tables are {self.table_width} wide and "
                f"the layers {self.hidden_size}; expected the same width, or the transform."
            )
        if self.local_attention // 2 > self.max_position_embeddings:
            raise ValueError(
                f"local_attention {self.local_attention} exceeds the longest sequence, "
                f"max_position_embeddings {self.max_position_embeddings}: leave it out."
            )

    def _check_buckets(self) -> None:
        if self.relative_buckets % 4:
            raise ValueError(
                f"relative_buckets is {self.relative_buckets}, expected a multiple of 4: a half "
                "for each direction, and half of that for single distances."
            )
        if self.relative_max_distance <= self.relative_buckets // 4:
            raise ValueError(
                f"relative_max_distance is {self.relative_max_distance}, but relative_buckets "
                f"{self.relative_buckets} has single buckets up to distance "
                f"{self.relative_buckets // 4}; expected a larger distance or fewer buckets."
            )

    def _check_disentangled_buckets(self) -> None:
        half = self.relative_buckets // 2
        if self.relative_buckets % 2:
            raise ValueError(
                f"relative_buckets is {self.relative_buckets}, expected an even number: a half for "
                "each direction."
            )
        if half > self.relative_max_distance or half // 2 >= self.relative_max_distance - 1:
            raise ValueError(
                f"relative_max_distance is {self.relative_max_distance}, but relative_buckets "
                f"{self.relative_buckets} are {half} for each direction; expected a larger "
                "distance or fewer buckets."
            )

    def _check_transformer_xl(self) -> None:
        if self.hidden_size % 2:
            raise ValueError(
                f"position_type transformer_xl has as many sines as cosines of a distance, but "
                f"hidden_size is {self.hidden_size}: make it even."
            )
        if self.local_attention:
            raise ValueError(
                f"local_attention {self.local_attention} does not work with position_type "
                "transformer_xl; leave it out, or choose another position_type."
            )

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
    def table_width(self) -> int:
        """Width of the word table."""
        return self.embedding_size or self.hidden_size

    @property
    def longest_row(self) -> int:
        """Maximum length of a sequence: the size of the position table, or no limit."""
        if not self.has_position_table:
            return UNLIMITED
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
          values: the object.
          source: the file, for messages.
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


INPUT_FORMATS = ("auto", "lines", "prose", "jsonl", "tfrecord", "tfds")


@dataclasses.dataclass(frozen=True)
class DataConfig(Config):
    """Source and preparation of the examples (google-research/bert's flags)."""

    input_file: str = option(
        "",
        "Comma-separated files or globs: raw text (one sentence per line, blank lines between "
        "documents; plain prose; JSONL; each also .gz or .xz), TFRecords in Google's format, or a "
        "TensorFlow Datasets name (tfds:NAME). Empty: the built-in corpus.",
    )
    input_format: str = option(
        "auto", "Format of input_file; auto: detect it.", choices=INPUT_FORMATS
    )
    text_field: str = option("text", "Field of JSONL records or TFDS examples with the text.")
    sentence_language: str = option(
        "auto",
        "Language whose abbreviations do not end a sentence: de, en, es, fr, it, pt, ru; zh, ja, "
        "th, ar, hi and others have none. auto: English. Each script has its marks in any case.",
    )
    eval_file: str = option(
        "", "Input for evaluation only; empty: documents held out of input_file.", from_run=True
    )
    eval_fraction: float = option(
        0.02, "Share of documents held out when eval_file is empty.", lower=0.0, upper=0.5
    )
    vocab_file: str = option(
        "",
        "Vocabulary; empty: that of --init_checkpoint, or one trained on input_file. If it "
        "differs from the checkpoint's, the embedding table is adapted.",
    )
    added_words_file: str = option(
        "",
        "File of words, one per line, to add to the vocabulary of --init_checkpoint: first in its "
        "[unused] rows, then in new rows.",
    )
    cache_dir: str = changeable(
        "", "Folder for prepared data, which later runs reuse; empty: OUTPUT_DIR/../bert_tf_cache."
    )
    max_seq_length: int = option(
        128, "Tokens per example, including special tokens.", lower=8, from_run=True
    )
    dupe_factor: int = option(
        10, "Times each document is used, with different masks (static masking only).", lower=1
    )
    short_seq_prob: float = share(0.1, "Probability of a sequence shorter than the maximum.")
    random_seed: int = option(12345, "Seed of pairs, masks, order, weights and dropout.", lower=0)
    use_next_sentence: bool = option(
        True, "Train on sentence pairs with an NSP head; false: full sentences, MLM only (RoBERTa)."
    )
    sentence_order: bool = option(
        False,
        "Pairs are two consecutive segments, in order or swapped (ALBERT), without random second "
        "segments.",
    )
    deduplicate: str = option(
        "none",
        "Leave out documents that repeat an earlier one: in all tokens (exact), or in 0.8 of all "
        "sequences of five tokens (near).",
        choices=("none", "exact", "near"),
    )
    num_workers: int = changeable(0, "Processes that prepare data; 0: one per core.", lower=0)
    show_masks: str = changeable(
        "",
        "Sentences with [MASK], separated by |, to fill in at every evaluation; the first and the "
        "last answers are shown at the end.",
    )

    def check(self) -> None:
        if self.sentence_order and not self.use_next_sentence:
            raise ValueError("--sentence_order needs pairs; leave --use_next_sentence=false out.")


MASKINGS = ("dynamic", "static", "tf_text")


@dataclasses.dataclass(frozen=True)
class MaskingConfig(Config):
    """Selection of the predicted tokens (BERT section 3.1, task 1)."""

    masking: str = option(
        "dynamic",
        "dynamic: new masks in each epoch; static: masks drawn once, when examples are written, as "
        "in the original; tf_text: dynamic, with tensorflow-text's masking ops.",
        choices=MASKINGS,
    )
    masked_lm_prob: float = share(0.15, "Share of tokens to predict.")
    masked_lm_prob_to: float = share(
        0.0, "Draw the share of each example between masked_lm_prob and this value; 0: fixed share."
    )
    masked_lm_prob_end: float = share(
        0.0,
        "Change the share linearly from masked_lm_prob at the first step to this at the last step; "
        "evaluations keep masked_lm_prob. 0: no change.",
    )
    span_length: float = option(
        0.0,
        "Mask spans of whole words that end at each word with probability 1 / span_length, at the "
        "latest after ten. The mean is therefore lower: 4.46 words for 5, and 3.77 for 4. SpanBERT "
        "uses 5 but draws again instead of cutting at ten words, which gives a mean of 3.80. 0: no "
        "spans.",
        lower=0.0,
    )
    ngram_length: int = option(
        0,
        "Mask spans of 1 to ngram_length whole words, n words with a probability proportional to "
        "1 / n; ALBERT uses 3. 0: no spans.",
        lower=0,
        upper=20,
    )
    span_pieces: bool = option(False, "Mask spans of single tokens instead of whole words.")
    max_predictions_per_seq: int = option(
        20, "Maximum number of predictions per sequence.", lower=1
    )
    causal_share: float = share(
        0.0,
        "Share of the examples in which the next token is predicted from those before it, instead "
        "of masked tokens; GPT-BERT uses 1/16.",
    )
    rank_special_tokens: bool = option(
        False,
        "With objective=permuted_lm: special tokens take part in the order, as in "
        "zihangdai/xlnet; otherwise all tokens see them.",
    )
    do_whole_word_mask: bool = option(False, "Select whole words instead of single tokens.")
    masked_share: float = share(
        0.8,
        "Share of the selected tokens that is replaced by [MASK]. With objective=replaced_tokens, "
        "if neither share is given, 0.85 and no random tokens.",
    )
    random_share: float = share(
        0.1,
        "Share of the selected tokens that is replaced by a random token; the rest is unchanged.",
    )

    def check(self) -> None:
        shares = f"masked_share {self.masked_share:g} and random_share {self.random_share:g}"
        if self.masked_share + self.random_share > 1.0 + 1e-9:
            raise ValueError(f"{shares} add up to more than 1; lower one of them.")
        if 0 < self.masked_lm_prob_to < self.masked_lm_prob:
            raise ValueError(
                f"masked_lm_prob_to {self.masked_lm_prob_to:g} is below masked_lm_prob "
                f"{self.masked_lm_prob:g}; give a larger one, or 0."
            )
        if self.masked_lm_prob_to and self.masked_lm_prob_end:
            raise ValueError(
                "masked_lm_prob_to draws a share for each example, but masked_lm_prob_end changes "
                "the share of all examples during the run; leave one of them out."
            )
        if 0 < self.span_length < 1:
            raise ValueError(f"span_length is {self.span_length:g}; give 1 or more words, or 0.")
        if self.span_length and self.ngram_length:
            raise ValueError("span_length and ngram_length both draw spans; leave one of them out.")
        if self.span_pieces and not (self.span_length or self.ngram_length):
            raise ValueError("span_pieces needs spans; give span_length or ngram_length as well.")
        if self.span_pieces and self.do_whole_word_mask:
            raise ValueError("span_pieces contradicts do_whole_word_mask; leave one of them out.")
        if self.masking == "dynamic":
            return
        dynamic_only = (
            "masked_lm_prob_to",
            "masked_lm_prob_end",
            "span_length",
            "ngram_length",
            "causal_share",
        )
        given = " and ".join(name for name in dynamic_only if getattr(self, name))
        if given:
            raise ValueError(f"These need masking=dynamic, not {self.masking}: {given}.")
        if (self.masked_share, self.random_share) != (0.8, 0.1):
            raise ValueError(
                f"{shares} need masking=dynamic; {self.masking} masks 80 % and replaces 10 % by "
                "random tokens."
            )

    @property
    def largest_share(self) -> float:
        """The largest share of tokens that is predicted at any time."""
        return max(self.masked_lm_prob, self.masked_lm_prob_to, self.masked_lm_prob_end)

    def any_share(self, max_seq_length: int) -> Self:
        """Returns the configuration for masked diffusion: any share of [MASK], up to all tokens."""
        return dataclasses.replace(
            self,
            masked_lm_prob=0.0,
            masked_lm_prob_to=1.0,
            masked_share=1.0,
            random_share=0.0,
            max_predictions_per_seq=max_seq_length,
        )


def with_causal_share(model: ModelConfig, masking: MaskingConfig) -> ModelConfig:
    """Returns the configuration of a model, which records whether it reads from left to right."""
    if not masking.causal_share:
        return model
    return dataclasses.replace(model, reads_left_to_right=True)


@dataclasses.dataclass(frozen=True)
class TeacherConfig(Config):
    """Distillation from another model (Hinton et al. 2015)."""

    teacher: str = option(
        "",
        "Model to learn from, in addition to the labels or instead of them: any model that "
        "--init_checkpoint takes, with the student's vocabulary. Empty: no teacher.",
    )
    learn_labels: bool = option(True, "Learn the labels as well; false: only the teacher.")
    teacher_weight: float = option(
        1.0,
        "Weight of the loss to the teacher's scores or embeddings; the labels' loss has weight 1.",
        lower=0.0,
        needs=("teacher",),
    )
    distillation_temperature: float = option(
        2.0,
        "Temperature that divides both models' scores; the loss is multiplied by its square.",
        lower=0.01,
        needs=("teacher",),
    )

    def check(self) -> None:
        if not self.teacher and not self.learn_labels:
            raise ValueError("learn_labels=false leaves nothing to learn; give a --teacher.")

    def check_without_scores(self, learned: str) -> None:
        """Raises ValueError for a temperature in a task that learns no class scores."""
        if self.distillation_temperature != TeacherConfig().distillation_temperature:
            raise ValueError(
                f"distillation_temperature={self.distillation_temperature:g} divides class scores, "
                f"but {learned} have no class scores; leave it out."
            )


OBJECTIVE_NAMES = (
    "masked_lm",
    "masked_diffusion",
    "permuted_lm",
    "masked_permuted_lm",
    "replaced_tokens",
)
# Objectives that predict the tokens in an order, in rows of one text; and the vectors that each
# target has besides those of the text.
ORDERED_OBJECTIVES = {"permuted_lm": 1, "masked_permuted_lm": 2}
EMBEDDING_SHARINGS = ("full", "gradient_disentangled")


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(TeacherConfig):
    """The objective of pre-training."""

    objective: str = option(
        "masked_lm",
        "masked_lm: BERT's; masked_diffusion: the same with any share of a text masked; "
        "permuted_lm: XLNet's, which predicts the tokens one after the other in a random order; "
        "masked_permuted_lm: MPNet's, the same with [MASK] at the tokens that come later; "
        "replaced_tokens: ELECTRA's, in which a small generator fills in masks and the encoder "
        "detects the replaced tokens.",
        choices=OBJECTIVE_NAMES,
    )
    generator_hidden_size: float = option(
        0.25,
        "Width of the generator as a fraction of the encoder's width, at most 1.",
        lower=0.01,
        needs=("objective", "replaced_tokens"),
    )
    generator_layers: float = option(
        1.0,
        "Layers of the generator as a fraction of the encoder's layers.",
        lower=0.01,
        upper=1.0,
        needs=("objective", "replaced_tokens"),
    )
    discriminator_weight: float = option(
        50.0,
        "Weight of the replaced-token loss relative to the generator's loss.",
        lower=0.0,
        needs=("objective", "replaced_tokens"),
    )
    embedding_sharing: str = option(
        "full",
        "full: generator and discriminator share the embeddings; gradient_disentangled: the "
        "discriminator adds a learned difference to the generator's tables, which learn from the "
        "generator's loss alone (DeBERTaV3).",
        choices=EMBEDDING_SHARINGS,
        needs=("objective", "replaced_tokens"),
    )
    electra_reference_sampling: bool = option(
        False,
        "Draw positions with replacement, as google-research/electra does: a token may be drawn "
        "twice, and if its replacements differ, the input is the mean of their ids.",
        needs=("objective", "replaced_tokens"),
    )
    hidden_weight: float = option(
        0.0,
        "With a teacher as wide as the student: weight of 1 - cosine of both models' last hidden "
        "states (DistilBERT).",
        lower=0.0,
        needs=("teacher",),
    )
    relation_weight: float = option(
        0.0,
        "Weight of the loss to the teacher's attention relations (MiniLMv2); widths may differ.",
        lower=0.0,
        needs=("teacher",),
    )
    relation_heads: int = option(
        0,
        "Relation heads that queries, keys and values are split into; 0: heads of 16 numbers in "
        "the teacher.",
        lower=0,
        needs=("relation_weight",),
    )
    teacher_layer: int = option(
        0,
        "Layer of the teacher whose relations are learned, counted from 1; 0: the last layer.",
        lower=0,
        needs=("relation_weight",),
    )

    def check(self) -> None:
        super().check()
        if self.generator_hidden_size > 1:
            raise ValueError(
                f"generator_hidden_size {self.generator_hidden_size:g} makes the generator wider "
                "than the discriminator, whose embeddings it shares; give at most 1."
            )
        self.check_needs(("hidden_weight", "relation_weight"))
        weights = (self.teacher_weight, self.hidden_weight, self.relation_weight)
        if self.teacher and not any(weights):
            raise ValueError(
                "--teacher is given, but teacher_weight, hidden_weight and relation_weight are all "
                "0."
            )


OPTIMIZERS = ("adam_weight_decay", "adamw", "lamb", "muon")
SCHEDULES = ("linear", "polynomial", "cosine", "trapezoid")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Config):
    """Optimizer and learning-rate schedule."""

    optimizer: str = option(
        "adam_weight_decay",
        "adam_weight_decay: google-research/bert's (no bias correction); adamw: with bias "
        "correction, the default in fine-tuning; lamb: You et al. 2020; muon: adamw with "
        "orthogonalized steps for the matrices of the layers.",
        choices=OPTIMIZERS,
        from_run=True,  # A checkpoint has the slots of its optimizer.
    )
    learning_rate: float = option(5e-5, "Peak learning rate.", lower=0.0)
    num_train_steps: int = option(
        100000, "Optimizer steps; 0: as many as fit into train_minutes.", lower=0
    )
    num_warmup_steps: int = option(10000, "Steps of linear warm-up.", lower=0)
    train_minutes: float = option(
        0.0,
        "Minutes for training, including compilation, evaluations and saves; the schedule follows "
        "the time instead of num_train_steps. 0: no time limit.",
        lower=0.0,
    )
    warmup_proportion: float = share(
        0.1,
        "Share of the run in which the learning rate rises, if num_warmup_steps is not given. "
        "Pre-training for a number of steps uses it only if it is given; otherwise the warm-up is "
        "10,000 steps.",
    )
    cooldown_proportion: float = share(
        0.0,
        "Share of the run, at its end, in which the rate of a trapezoid falls, if "
        "num_cooldown_steps is not given.",
        needs=("learning_rate_schedule", "trapezoid"),
    )
    learning_rate_schedule: str = option(
        "linear",
        "After the warm-up: linear to 0 (google-research/bert's); polynomial (NVIDIA's and "
        "MLPerf's); cosine; trapezoid: constant, then linear decay over num_cooldown_steps.",
        choices=SCHEDULES,
    )
    end_learning_rate: float = option(
        0.0,
        "Rate at the end of a polynomial, cosine or trapezoid schedule.",
        lower=0.0,
        needs=("learning_rate_schedule", "polynomial", "cosine", "trapezoid"),
    )
    decay_power: float = option(
        1.0,
        "Power of the polynomial schedule.",
        lower=0.0,
        needs=("learning_rate_schedule", "polynomial"),
    )
    num_cooldown_steps: int = option(
        0,
        "Steps at the end of the trapezoid in which the rate falls; 0: constant rate.",
        lower=0,
        needs=("learning_rate_schedule", "trapezoid"),
    )
    weight_decay_rate: float = option(
        0.01, "Weight decay; LayerNorm and biases are never decayed.", lower=0.0
    )
    adam_beta_1: float = share(0.9, "Decay of the first moment.")
    adam_beta_2: float = share(0.999, "Decay of the second moment.")
    adam_epsilon: float = option(1e-6, "Added to the square root of the second moment.", lower=0.0)
    clip_norm: float = option(1.0, "Largest global gradient norm; 0: no clipping.", lower=0.0)
    clip_where: str = option(
        "after",
        "Clip after the sum over replicas, or each replica's gradient before it (Google's TPU "
        "code, MLPerf).",
        choices=("after", "before"),
    )
    ema_decay: float = share(
        0.0,
        "Decay of an exponential moving average of the weights, which evaluations and readers of "
        "the checkpoint use instead of the weights; 0: no average.",
        from_run=True,
    )
    layerwise_lr_decay: float = share(
        1.0, "Factor by which the learning rate falls from each layer to the one below."
    )
    electra_layer_rates: bool = option(
        False,
        "With layerwise_lr_decay: the exponents of google-research/electra, which start at 2 for "
        "the top layer instead of 1.",
        needs=("layerwise_lr_decay",),
    )

    def check(self) -> None:
        self.check_needs(self.names())
        if not self.num_train_steps and not self.train_minutes:
            raise ValueError("num_train_steps is 0; give a number of steps, or --train_minutes.")
        if self.end_learning_rate > self.learning_rate:
            raise ValueError(
                f"end_learning_rate {self.end_learning_rate:g} is above learning_rate "
                f"{self.learning_rate:g}, the peak; give a smaller one."
            )

    def check_lengths(self) -> None:
        """Raises ValueError if warm-up and cooldown do not fit into the run.

        It is not part of `check`, because flags may still replace default lengths.
        """
        if self.train_minutes:
            names = ("warmup_proportion", "cooldown_proportion")
            limit: float = 1
            unit = ""
        else:
            names = ("num_warmup_steps", "num_cooldown_steps")
            limit = self.num_train_steps
            unit = " steps"
        warmup, cooldown = (getattr(self, name) for name in names)
        if cooldown and warmup + cooldown > limit:
            raise ValueError(
                f"{names[0]} {warmup:g} and {names[1]} {cooldown:g} add up to more than "
                f"{limit}{unit}; shorten one of them."
            )


BAD_LOSS_POLICIES = ("stop", "skip", "rewind")
STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "auto")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Config):
    """The training loop: actions, devices, and intervals of logs and checkpoints."""

    output_dir: str = changeable("", "Run directory.")
    init_checkpoint: str = option(
        "",
        "Initial weights, with their configuration and vocabulary: a run directory (its best "
        "checkpoint, or else the newest) or a checkpoint in it, a google-research/bert checkpoint "
        "(prefix, folder or .zip), a Hugging Face folder, a keras-hub preset or .weights.h5, a "
        "Model Garden encoder, a .keras file; or a name on a hub: hf://org/name[@revision], "
        "keras_hub://preset, kaggle://handle.",
    )
    keep_layers: str = option(
        "",
        "Layers of --init_checkpoint to use, counted from 0 and comma-separated: 0,2,5. Empty: all "
        "layers.",
        needs=("init_checkpoint",),
    )
    allow_missing: str = changeable(
        "",
        "Comma-separated prefixes of weight names that may be missing in --init_checkpoint; these "
        "weights are initialized at random.",
    )
    allow_unexpected: str = changeable(
        "", "Comma-separated prefixes of weight names in --init_checkpoint to ignore."
    )
    bert_config_file: str = changeable("", "bert_config.json; its values replace the shape flags.")
    do_train: bool = changeable(False, "Train.")
    do_eval: bool = changeable(
        False, "Evaluate at the end; for evaluations during training see eval_steps."
    )
    train_batch_size: int = option(32, "Examples per step, over all replicas.", lower=1)
    batch_ramp_start: int = option(
        0, "Size of the first batches, which doubles until train_batch_size; 0: no ramp.", lower=0
    )
    batch_ramp_steps: int = option(0, "Steps of the batch ramp.", lower=0)
    eval_batch_size: int = changeable(
        8, "Examples per evaluation step, over all replicas.", lower=1
    )
    max_eval_steps: int = changeable(100, "Maximum number of evaluation steps.", lower=1)
    eval_steps: int = changeable(
        0,
        "Steps between evaluations during training, and one at the end; 0: no evaluations.",
        lower=0,
    )
    early_stopping_evaluations: int = changeable(
        0, "Stop after this many evaluations in a row without improvement; 0: never.", lower=0
    )
    save_checkpoints_steps: int = changeable(
        1000,
        "Steps between checkpoints. A checkpoint is also written every two minutes, or every tenth "
        "of --train_minutes if that is less.",
        lower=1,
    )
    keep_checkpoint_max: int = changeable(
        3, "Number of newest checkpoints to keep; the best is always kept.", lower=1
    )
    iterations_per_loop: int = changeable(1000, "Maximum number of steps per graph call.", lower=1)
    log_steps: int = changeable(
        100,
        "Steps between logged lines; fewer in runs that would have fewer than 20 lines.",
        lower=1,
    )
    on_bad_loss: str = changeable(
        "stop",
        "Action if a loss or its gradients are not finite, or the loss jumps: stop; skip the "
        "update; rewind to the last checkpoint and skip the batches that led to the jump.",
        choices=BAD_LOSS_POLICIES,
    )
    spike_sigmas: float = changeable(
        0.0,
        "A loss jumps if it is this many standard deviations above the mean of the last 100 steps; "
        "0: never.",
        lower=0.0,
    )
    max_bad_losses: int = changeable(
        10, "The run stops after this many rewinds, or skipped steps in a row.", lower=1
    )
    distribution: str = changeable(
        "one_device",
        "one_device; mirrored: all GPUs of this machine; multi_worker: the hosts in TF_CONFIG; "
        "tpu.",
        choices=STRATEGIES,
    )
    num_devices: int = changeable(0, "Devices used by `mirrored`; 0: all.", lower=0)
    precision: str = option(
        "float32",
        "Keras dtype policy; auto: mixed_bfloat16 if the hardware supports it and it is faster in "
        "a short test, otherwise float32.",
        choices=PRECISIONS,
    )
    jit_compile: bool = changeable(
        True,
        "Compile the step with XLA; in fine-tuning by default only with a GPU or TPU. The "
        "optimizer's update on one device is always compiled.",
    )
    pack_rows: bool = changeable(
        False, "Pack several short texts into one row: less padding, same losses."
    )
    gradient_accumulation_steps: int = changeable(
        0,
        "Micro-batches per step; must divide a replica's batch. 0: as many as memory requires.",
        lower=0,
    )
    recompute: bool = changeable(False, "Recompute layers in the backward pass to save memory.")
    use_tpu: bool = changeable(False, "google-research/bert's spelling of --distribution=tpu.")
    tpu_name: str = changeable("", "Name or address of the TPU; empty: the local TPU.")
    tpu_zone: str = changeable("", "Zone of the TPU.")
    gcp_project: str = changeable("", "Project of the TPU.")
    peak_flops: float = changeable(
        0.0, "Peak FLOP/s of one device, to log the share of it; 0: known or measured.", lower=0.0
    )

    def check(self) -> None:
        if self.pack_rows and (self.use_tpu or self.distribution == "tpu"):
            raise ValueError(
                "--pack_rows: the number of rows changes from batch to batch, but a TPU needs "
                "batches of one shape; leave it out."
            )


class PretrainingConfigs(NamedTuple):
    """The groups of a pre-training run."""

    model: ModelConfig
    data: DataConfig
    masking: MaskingConfig
    optimizer: OptimizerConfig
    training: TrainingConfig
    objective: ObjectiveConfig
