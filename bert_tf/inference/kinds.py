"""Every kind of model, in the order in which a checkpoint's purpose is decided."""

from bert_tf.pretraining.masked_words.kinds import FILL_MASK, NEXT_SENTENCE, SPLADE
from bert_tf.tasks.base.serving.kind import Kind
from bert_tf.tasks.classification.kinds import CLASSIFIER, MULTI_LABEL, REGRESSION, ZERO_SHOT
from bert_tf.tasks.embedding.kinds import EMBEDDINGS, ENCODER, LATE_INTERACTION
from bert_tf.tasks.multiple_choice.kinds import MULTIPLE_CHOICE
from bert_tf.tasks.question_answering.kinds import QUESTION_ANSWERING
from bert_tf.tasks.reranking.kinds import RERANKER
from bert_tf.tasks.tagging.kinds import TAGGER

SEARCH = Kind(
    name="search",
    request="query, k",
    head="",
    methods=(),
    model="bert_tf.tasks.embedding.model.BertEmbedder",
    serving="bert_tf.search.serving.SearchServing",
    loader="bert_tf.search.loading.load_search",
    options=("index", "store", "rerank", "rerank_k"),
    inputs=("query",),
)
# The kinds of checkpoints and exports. A cross-encoder is also a model of one number; every encoder
# embeds, so that comes last. Only late interaction has token vectors.
KINDS = {
    kind.name: kind
    for kind in (
        LATE_INTERACTION,
        RERANKER,
        CLASSIFIER,
        MULTI_LABEL,
        REGRESSION,
        ZERO_SHOT,
        TAGGER,
        QUESTION_ANSWERING,
        FILL_MASK,
        NEXT_SENTENCE,
        SPLADE,
        EMBEDDINGS,
        ENCODER,
        SEARCH,
    )
}
# The kinds that `bert_tf.load` returns a `Predictor` for.
ANSWERING = {name: kind for name, kind in KINDS.items() if kind.methods}
ANSWERING[MULTIPLE_CHOICE.name] = MULTIPLE_CHOICE


def find(name: str) -> Kind:
    """Returns the kind with a name, of `KINDS` or `ANSWERING`."""
    return KINDS.get(name) or ANSWERING[name]
