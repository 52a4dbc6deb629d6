"""Learning rates that become smaller from each layer to the one below."""

import re
from collections.abc import Sequence

import keras


def layer_rates(paths: Sequence[str], decay: float, like_electra: bool = False) -> list[float]:
    """Returns the factor of each variable's learning rate, smaller for lower layers.

    It is 1 for pooler and heads, decay for the top layer, decay^2 for the layer below, and so on
    down to the embeddings, their projection, and the biases of distances that all layers share.

    Args:
      paths: paths of the variables.
      decay: factor from each layer to the one below.
      like_electra: whether to count as google-research/electra (model/optimization.py,
        _get_layer_lrs), where the top layer has decay^2, and all layers below one power more.

    Example: layer_rates(["bert/encoder/layer_0/x", "bert/encoder/layer_1/x", "cls/y"], 0.5) ==
      [0.25, 0.5, 1.0], and [0.125, 0.25, 1.0] like ELECTRA.

    Reference: Clark et al. 2020 (ELECTRA), appendix B.
    """
    # None for the tables, the pooler and the heads.
    layers = [re.search(r"/layer_(\d+)/", path) for path in paths]
    num_layers = max((int(match[1]) + 1 for match in layers if match), default=0)

    def depth(path: str, match: re.Match | None) -> int:
        if match:
            return int(match[1]) + 1
        tables = ("/embeddings/", "/embeddings_project/", "/encoder/relative_attention_bias")
        is_table = any(table in path for table in tables)
        return 0 if is_table else num_layers + 1 + like_electra

    depths = map(depth, paths, layers)
    return [decay ** (num_layers + 1 + like_electra - value) for value in depths]


def freeze(model: keras.Model, frozen_layers: int) -> None:
    """Makes the embeddings and the first layers of a model's encoder untrainable.

    Args:
      model: a model with the encoder `bert`.
      frozen_layers: number of encoder layers; 0: only the embeddings; below 0: freeze nothing.

    Raises:
      ValueError: if the encoder has fewer layers.
    """
    layers = model.bert.encoder_layers
    if frozen_layers > len(layers):
        raise ValueError(
            f"--frozen_layers={frozen_layers}, but there are only {len(layers)} layers."
        )
    if frozen_layers < 0:
        return
    frozen = layers[:frozen_layers]
    if any(layer in frozen for layer in layers[frozen_layers:]):
        raise ValueError(
            f"--frozen_layers={frozen_layers} ends within a group of layers that share their "
            f"weights: {len(layers)} layers are in {model.bert.config.num_layer_groups} groups; "
            "freeze whole groups."
        )
    for layer in (model.bert.embeddings, *frozen):
        layer.trainable = False
