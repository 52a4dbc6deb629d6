"""ELECTRA: a small masked language model replaces tokens, and the encoder finds which ones.

    masked ids -> generator -> logits of the masked tokens -> a token drawn from each
      -> ids with replacements [B, T] -> encoder (discriminator) -> one logit per token: replaced?

Generator and discriminator share the embeddings, LayerNorm included, and each projects them to its
width; or the discriminator learns its difference from the generator's tables, see
`embedding_sharing.py`. No gradient passes through the drawn tokens.

Reference: Clark et al. 2020; google-research/electra, pretrain_model.
"""

import dataclasses
from typing import Any, Unpack

import keras
import tensorflow as tf
from keras import ops

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.electra_networks import one_network
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.config import EMBEDDING_SHARINGS, ModelConfig
from bert_tf.corpus.random_bits import mix64, random_bits
from bert_tf.network.embeddings import BertEmbeddings
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.head_on_encoder import HeadOnEncoder
from bert_tf.network.heads import DiscriminatorHead, MaskedLMHead, gather_positions
from bert_tf.pretraining.objectives.embedding_sharing import EmbeddingDifferences
from bert_tf.pretraining.objectives.masked_lm import MaskedLM
from bert_tf.pretraining.objectives.pretrainer import WithObjectives
from bert_tf.pretraining.objectives.replaced_tokens import ReplacedTokens
from bert_tf.system.type_names import Batch, Fields, LayerOptions, Outputs, Tensor

HEAD_SIZE = 64  # of generators; configure_pretraining.py
GENERATOR_SEED = 0x2545F491  # Lets the generator's dropout differ from the discriminator's.


def generator_config(config: ModelConfig, size: float = 0.25, layers: float = 1.0) -> ModelConfig:
    """Returns the shape of a generator: narrower, with heads of 64 and the same tables.

    `size` and `layers` are its width and layers as shares of the discriminator's. An error names a
    share that leaves nothing, or heads that do not divide the width.
    """
    width = round(config.hidden_size * size)
    heads = max(1, width // HEAD_SIZE)
    num_layers = max(1, round(config.num_hidden_layers * layers))
    try:
        return dataclasses.replace(
            config,
            hidden_size=width,
            num_hidden_layers=num_layers,
            num_layer_groups=min(config.num_layer_groups, num_layers),
            num_attention_heads=heads,
            intermediate_size=round(config.intermediate_size * width / config.hidden_size),
            # 0: the tables are as wide as the layers, without a projection.
            embedding_size=0 if width == config.table_width else config.table_width,
        )
    except ValueError as error:
        # The nearest width of whole heads, as a share of the discriminator's.
        near = max(1, round(width / HEAD_SIZE)) * HEAD_SIZE / config.hidden_size
        remedy = f"give generator_hidden_size={near:g}" if near <= 1 else "change one of them"
        raise ValueError(
            f"generator_hidden_size={size:g} of --hidden_size={config.hidden_size} makes a "
            f"generator {width} wide, of {heads} heads: {str(error).partition(';')[0]}; {remedy}."
        ) from None


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraDiscriminator(HeadOnEncoder):
    """The encoder with a logit per token: was it replaced?

    Args:
      config: shape of the network.
      recompute, unpad: see `BertEncoder`.

    Call arguments:
      inputs: dict with the encoder's inputs; other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      dict: `replaced_logits` float32 [B, T], above 0 where a token was likely replaced.
    """

    default_name = "electra_discriminator"

    def build_head(self) -> None:
        self.discriminator = DiscriminatorHead(
            self.config, name="discriminator", dtype=self.dtype_policy
        )
        self.discriminator.build()

    def call(
        self, inputs: Batch, training: bool = False, dropout_seed: Tensor | None = None
    ) -> Outputs:
        encoded = self.bert(inputs, training=training, dropout_seed=dropout_seed)
        return {"replaced_logits": self.discriminator(encoded["sequence_output"])}


@keras.saving.register_keras_serializable(package="bert_tf")
class ElectraPretrainer(WithObjectives, ElectraDiscriminator):
    """Generator and discriminator, trained together.

    Args:
      config: shape of the discriminator.
      generator: shape of the generator; None: `generator_config(config)`.
      discriminator_weight: weight of its loss; that of the generator has weight 1.
      recompute, unpad: see `BertEncoder`.
      reference_sampling: whether positions may be drawn more than once; see `ReplacedTokens`.
      embedding_sharing: how the networks share the embeddings, one of `EMBEDDING_SHARINGS`.

    Call arguments:
      inputs: dict with the encoder's inputs, masked; `masked_lm_positions` and `masked_lm_ids`
        int32 [B, P], `masked_lm_weights` float32 [B, P]; other keys are ignored.
      training, dropout_seed: see `BertEncoder`.

    Returns:
      dict: `masked_lm_logits` float32 [B, P, V] of the generator, `replaced_logits` float32 [B, T],
      `is_replaced` float32 [B, T], 1 where the input differs from the text.

    Differs from the original: without `reference_sampling` positions are drawn without replacement
    (there about 1.4 of 128 are drawn twice, and where two replacements meet, the input has an
    unrelated token); a replacement is drawn by one number per position, not one per token of the
    vocabulary: the distribution is the same.
    """

    default_name = "electra_pretrainer"

    def __init__(
        self,
        config: ModelConfig,
        generator: ModelConfig | Fields | None = None,
        discriminator_weight: float = 50.0,
        recompute: bool = False,
        unpad: bool = False,
        reference_sampling: bool = False,
        embedding_sharing: str = "full",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        if generator is None:
            generator = generator_config(config)
        # Keras loads a saved model with the fields of the configuration.
        if isinstance(generator, dict):
            generator = ModelConfig.from_dict(generator)
        if embedding_sharing not in EMBEDDING_SHARINGS:
            raise ValueError(
                f"embedding_sharing is {embedding_sharing!r}, expected one of "
                f"{list(EMBEDDING_SHARINGS)}."
            )
        generator_embeddings = None
        differences = None
        if embedding_sharing == "gradient_disentangled":
            options: dict[str, Any] = {"name": "embeddings", "dtype": kwargs.get("dtype")}
            generator_embeddings = BertEmbeddings(generator, **options)
            differences = EmbeddingDifferences(config, generator_embeddings, **options)
        super().__init__(config, recompute, unpad, differences, **kwargs)
        if generator.hidden_size > config.hidden_size:
            raise ValueError(
                f"The generator is {generator.hidden_size} wide, the discriminator "
                f"{config.hidden_size}; a generator is as wide at most."
            )
        self.objectives = (MaskedLM(), ReplacedTokens(discriminator_weight, reference_sampling))
        self.reference_sampling = reference_sampling
        self.embedding_sharing = embedding_sharing
        self.generator_config = generator
        self.discriminator_weight = discriminator_weight
        self.generator = BertEncoder(
            generator,
            recompute,
            use_pooler=False,
            unpad=unpad,
            name="generator",
            dtype=self.dtype_policy,
            embeddings=generator_embeddings or self.bert.embeddings,
        )
        with keras.name_scope("generator"):
            self.predictions = MaskedLMHead(generator, name="predictions", dtype=self.dtype_policy)
            self.predictions.build()

    def call(
        self, inputs: Batch, training: bool = False, dropout_seed: Tensor | None = None
    ) -> Outputs:
        seed = self.bert.draw_dropout_seed(training, dropout_seed)
        # Layers of both networks have the same salts; another seed gives them other masks.
        generator_seed = None if seed is None else ops.bitwise_xor(seed, GENERATOR_SEED)
        encoded = self.generator(inputs, training=training, dropout_seed=generator_seed)
        table = self.generator.embeddings.word_embeddings
        positions = inputs["masked_lm_positions"]
        logits = self.predictions(gather_positions(encoded["sequence_output"], positions), table)
        draws = positions
        if self.reference_sampling:  # A position that is drawn again gets another number.
            slots = ops.arange(ops.shape(positions)[1], dtype="int32")
            draws += slots * ops.shape(inputs["input_word_ids"])[1]
        drawn = draw_tokens(logits, uniforms(inputs["input_word_ids"], draws))
        replaced, labels = put_replacements(inputs, drawn)
        # The drawn ids have no gradient: the discriminator does not train the generator (section
        # 2).
        detected = super().call({**inputs, "input_word_ids": replaced}, training, seed)
        return {"masked_lm_logits": logits, "is_replaced": labels, **detected}

    def get_config(self) -> Fields:
        return {
            **super().get_config(),
            "generator": self.generator_config.to_dict(),
            "discriminator_weight": self.discriminator_weight,
            "reference_sampling": self.reference_sampling,
            "embedding_sharing": self.embedding_sharing,
        }

    def to_checkpoint(self, tower: str = "") -> Checkpoint:
        """Returns the generator or the discriminator as a checkpoint.

        Args:
          tower: "generator" or "discriminator"; "both": the discriminator with the generator as its
            attribute; "": the discriminator.
        """
        whole = super().to_checkpoint()
        configs = {"discriminator": self.config, "generator": self.generator_config}
        checkpoints = {}
        for name, config in configs.items():
            weights = one_network(whole.weights, name, whole.source)
            checkpoints[name] = dataclasses.replace(
                whole, weights=weights, config=config, family=ELECTRA.title
            )
        if tower == "both":
            generator = checkpoints["generator"]
            return dataclasses.replace(checkpoints["discriminator"], generator=generator)
        return checkpoints[tower or "discriminator"]


def uniforms(input_word_ids: Tensor, positions: Tensor) -> Tensor:
    """Returns a number in [0, 1) for each masked position: float32 [B, P].

    A pure function of the masked row and the position, so that a replacement does not depend on
    the batch that an example is in, on devices or on restarts. Epochs, whose masks differ, get
    different numbers.
    """
    all_positions = tf.range(tf.shape(input_word_ids)[1])[None]  # [1, T]
    token_bits = random_bits(0, input_word_ids, all_positions)  # [B, T]
    # A sum of hashes: it does not depend on the order in which a device adds.
    row = tf.reduce_sum(token_bits, axis=1, keepdims=True)  # [B, 1]
    bits = mix64(row + tf.cast(positions, tf.uint64))
    upper = tf.bitwise.right_shift(bits, tf.constant(40, tf.uint64))  # 24 bits are exact.
    return tf.cast(tf.cast(upper, tf.int32), tf.float32) * 2.0**-24


def draw_tokens(logits: Tensor, numbers: Tensor) -> Tensor:
    """Draws a token from each softmax: the one at which the running sum passes the number.

    Args:
      logits: float32 [B, P, V].
      numbers: float32 [B, P] in [0, 1).

    Returns:
      int32 [B, P].
    """
    sums = tf.cumsum(tf.nn.softmax(tf.stop_gradient(logits)), axis=-1)  # [B, P, V]
    limits = numbers[..., None] * sums[..., -1:]  # The last sum is 1 but for rounding.
    # The token drawn is the first whose running sum exceeds the number.
    passed = tf.reduce_sum(tf.cast(sums <= limits, tf.int32), axis=-1)
    return tf.minimum(passed, tf.shape(logits)[-1] - 1)


def put_replacements(inputs: Batch, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """Puts drawn tokens at the masked positions, whether the input has [MASK] there or not.

    If a position is drawn several times, it gets the mean of the token ids, rounded down, as by the
    original's scatter_update (pretrain/pretrain_helpers.py).

    Args:
      inputs: see `ElectraPretrainer`.
      drawn: int32 [B, P].

    Returns:
      The discriminator's ids, int32 [B, T], and 1 where they differ from the text, float32 [B, T].
    """
    ids = inputs["input_word_ids"]
    chosen = ops.one_hot(inputs["masked_lm_positions"], ops.shape(ids)[1], dtype="float32")
    chosen *= inputs["masked_lm_weights"][..., None]  # [B, P, T], a 1 in each row that counts

    def at_positions(values: Tensor) -> Tensor:
        # Whole numbers: GPUs and TPUs round float32 products. A scatter is slow under XLA.
        sums = ops.sum(ops.where(chosen > 0, ops.cast(values, "int32")[..., None], 0), axis=1)
        return sums // ops.maximum(counts, 1)

    counts = ops.cast(ops.sum(chosen, axis=1), "int32")  # [B, T]
    is_chosen = counts > 0
    replacement = at_positions(drawn)
    original = at_positions(inputs["masked_lm_ids"])
    # A replacement that happens to be the right token counts as original.
    labels = ops.logical_and(is_chosen, ops.not_equal(replacement, original))
    return ops.where(is_chosen, replacement, ids), ops.cast(labels, "float32")
