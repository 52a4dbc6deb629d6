"""The position schemes by their `position_type`; see the modules that they come from."""

from bert_tf.config import ModelConfig
from bert_tf.network.disentangled import Disentangled, LearnedDisentangled
from bert_tf.network.positions import Alibi, Learned, Positions, Rotary, Sinusoidal
from bert_tf.network.relative_positions import LearnedRelativeBias, RelativeBias
from bert_tf.network.transformer_xl import TransformerXL

SCHEMES: dict[str, type[Positions]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
    "rotary_interleaved": Rotary,
    "alibi": Alibi,
    "relative": RelativeBias,
    "learned_relative": LearnedRelativeBias,
    "disentangled": Disentangled,
    "learned_disentangled": LearnedDisentangled,
    "transformer_xl": TransformerXL,
    "none": Positions,
}


def make_positions(config: ModelConfig, is_local: bool = False) -> Positions:
    """Makes the scheme that a configuration names; see `Positions`."""
    return SCHEMES[config.position_type](config, is_local)
