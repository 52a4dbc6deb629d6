"""The position schemes by their `position_type`.

See `positions.py`, `relative_positions.py` and `transformer_xl.py`.
"""

from bert_tf.config import ModelConfig
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
    "transformer_xl": TransformerXL,
}


def make_positions(config: ModelConfig, is_local: bool = False) -> Positions:
    """Makes the scheme that a configuration names; see `Positions`."""
    return SCHEMES[config.position_type](config, is_local)
