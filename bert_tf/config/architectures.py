"""Structures of published encoders, by the names that --architecture takes.

A structure has no widths and numbers of layers: these are flags. A test finds the family of each in
`checkpoints.families`.
"""

Structure = dict[str, str | int | float | bool]

_ROBERTA: Structure = {
    "tokenizer": "byte_bpe",
    "do_lower_case": False,
    "pad_token_id": 1,
    "type_vocab_size": 1,
    # 512 positions: fairseq counts from 2, the row after that of padding.
    "max_position_embeddings": 514,
    "position_offset": 2,
    "hidden_act": "gelu_exact",
    "layer_norm_eps": 1e-5,
}
ARCHITECTURES: dict[str, Structure] = {
    "bert": {},
    "roberta": _ROBERTA,
    "xlm_roberta": {**_ROBERTA, "tokenizer": "unigram"},
    "albert": {
        "tokenizer": "unigram",
        "do_lower_case": False,
        "num_layer_groups": 1,
        "embedding_size": 128,
        # As in version 2, which was trained without dropout.
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
    "distilbert": {"type_vocab_size": 0, "hidden_act": "gelu_exact", "pooler_act": "relu"},
    "electra": {"hidden_act": "gelu_exact", "pooler_act": "gelu_exact"},
    "modernbert": {
        "tokenizer": "byte_bpe",
        "do_lower_case": False,
        "block_type": "pre_norm",
        "gated_feed_forward": True,
        "biases": "output",
        "hidden_act": "gelu_exact",
        "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "type_vocab_size": 0,
        "max_position_embeddings": 8192,
        "position_type": "rotary",
        # Layers with global attention see larger distances, hence the larger base.
        "rotary_theta": 160000.0,
        "local_rotary_theta": 10000.0,
        "local_attention": 128,
        "classifier_pooling": "mean",
        "head_transform": True,
    },
    "mpnet": {
        "pad_token_id": 1,
        "type_vocab_size": 0,
        "max_position_embeddings": 514,
        "position_type": "learned_relative",
        "position_offset": 2,
        "hidden_act": "gelu_exact",
        "layer_norm_eps": 1e-5,
    },
    "roformer": {
        "max_position_embeddings": 1536,
        "position_type": "rotary_interleaved",
        "hidden_act": "gelu_exact",
        "pooler_act": "gelu_exact",
    },
    "deberta": {
        "tokenizer": "unigram",
        "do_lower_case": False,
        "type_vocab_size": 0,
        "position_type": "disentangled",
        # position_buckets 256, in each direction.
        "relative_buckets": 512,
        "relative_max_distance": 512,
        "hidden_act": "gelu_exact",
        "pooler_act": "gelu_exact",
        "layer_norm_eps": 1e-7,
    },
    "xlnet": {
        "tokenizer": "unigram",
        "do_lower_case": False,
        "type_vocab_size": 0,
        "position_type": "transformer_xl",
        # Attention has only r_w_bias, r_r_bias and r_s_bias, which are not biases of a product.
        "biases": "feed_forward,norm,head,output",
        "hidden_act": "gelu_exact",
        "embedding_norm": False,
        "query_vector": True,
        "masked_lm_transform": False,
        "pooled_token": "last",
    },
}
