"""The flags of `run_retriever` that contradict each other."""

from bert_tf.config.rules import Exclusion, Rule

DENSE_ALONE = "matryoshka_dims matryoshka_weights teacher"
RETRIEVER_RULES = (
    Rule(
        lambda c: c.tuning.do_predict,
        "--do_predict: a retriever has nothing to predict; extract_features --pooling=own writes "
        "embeddings.",
    ),
    Exclusion(
        "retrieval_loss=denoising",
        "makes dense embeddings by reconstructing texts",
        f"embedding_type=splade embedding_type=colbert {DENSE_ALONE}",
    ),
    Exclusion(
        "embedding_type=colbert",
        "has a vector for each token",
        f"{DENSE_ALONE} embedding_pooling",
    ),
    Rule(
        lambda c: c.task.has_data_sets and (c.task.embedding_type != "dense" or c.task.teacher),
        "--mixing and several losses are for dense embeddings without --teacher; leave them out.",
    ),
    Exclusion(
        "embedding_type=splade",
        "weighs tokens by the masked-LM head, without pooling or prompts",
        f"{DENSE_ALONE} embedding_pooling query_prompt document_prompt new_head",
    ),
)
