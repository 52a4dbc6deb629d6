"""RoBERTa under fairseq's names, old and new, in any file of weights.

    encoder.sentence_encoder.layers.0.self_attn.q_proj.weight    since 2019-09
    decoder.sentence_encoder.layers.0.self_attn.in_proj_weight   [3D, D], the oldest

They are translated to Hugging Face's names, as in transformers' own conversion. fairseq's RoBERTa
has no types: Hugging Face's single row of types is zero.
"""

import re

import numpy as np

from bert_tf.checkpoints.checkpoint import Weights

ENCODER = re.compile(r"(encoder|decoder)\.sentence_encoder\.")
# States of buffers and of counters.
NO_WEIGHTS = re.compile(r"\.version$|\._float_tensor$")
TABLES = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "layernorm_embedding": "embeddings.LayerNorm",
    "emb_layer_norm": "embeddings.LayerNorm",
}
LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}


def is_fairseq(names: list[str]) -> bool:
    """True if weights are under fairseq's names."""
    return any(ENCODER.match(name) for name in names)


def rename_fairseq(file_weights: Weights, source: str) -> Weights:
    """Returns the weights under the names of transformers' RobertaForMaskedLM and its siblings.

    Several heads for sentences are an error.
    """
    found = (re.match(r"classification_heads\.(.+?)\.", name) for name in file_weights)
    heads = sorted({match[1] for match in found if match})
    if len(heads) > 1:
        raise ValueError(f"{source} has several classification_heads: {heads}; expected one.")
    weights: Weights = {}
    for name, value in file_weights.items():
        if NO_WEIGHTS.search(name):
            continue
        # [3D, D] or [3D]: the rows of queries, then keys, then values.
        match = re.search(r"(.*self_attn)\.in_proj_(weight|bias)$", name)
        if match and len(value) % 3 == 0:
            for part, block in zip("qkv", np.split(value, 3), strict=True):
                weights[_renamed(f"{match[1]}.{part}_proj.{match[2]}")] = block
        else:
            weights[_renamed(name)] = value
    table = weights.get("roberta.embeddings.word_embeddings.weight")
    if table is not None and table.ndim == 2:
        # Hugging Face's class adds this row to every token; zeros change nothing.
        zeros = np.zeros((1, table.shape[1]), np.float32)
        weights.setdefault("roberta.embeddings.token_type_embeddings.weight", zeros)
    return weights


def _renamed(name: str) -> str:
    name = re.sub(r"^classification_heads\.[^.]+\.", "classifier.", name)
    name = re.sub(r"^(encoder|decoder)\.lm_head\.weight$", "lm_head.decoder.weight", name)
    name = re.sub(r"^(encoder|decoder)\.lm_head\.", "lm_head.", name)
    if not ENCODER.match(name):
        return name
    name = ENCODER.sub("", name)
    if match := re.fullmatch(r"layers\.(\d+)\.(.+)\.(weight|bias)", name):
        index, part, end = match.groups()
        return f"roberta.encoder.layer.{index}.{LAYER.get(part, part)}.{end}"
    part, _, end = name.rpartition(".")
    return f"roberta.{TABLES.get(part, part)}.{end}"
