"""Families of encoders in Hugging Face folders; each has a file, and a line here."""

from bert_tf.checkpoints.checkpoint import HEADS
from bert_tf.checkpoints.families.albert import ALBERT
from bert_tf.checkpoints.families.bert import BERT
from bert_tf.checkpoints.families.deberta import DEBERTA, LEGACY_DEBERTA
from bert_tf.checkpoints.families.distilbert import DISTILBERT
from bert_tf.checkpoints.families.electra import ELECTRA
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.modernbert import MODERNBERT
from bert_tf.checkpoints.families.mpnet import MPNET
from bert_tf.checkpoints.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from bert_tf.checkpoints.families.roformer import ROFORMER
from bert_tf.checkpoints.families.xlnet import XLNET
from bert_tf.config import ModelConfig

# By model_type. Of several that can hold a model the first is written.
FAMILIES: dict[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "roformer": ROFORMER,
    "modernbert": MODERNBERT,
    "electra": ELECTRA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "albert": ALBERT,
    "mpnet": MPNET,
    "deberta-v2": DEBERTA,
    "xlnet": XLNET,
}
# Those that a model can be written as.
WRITABLE = (*FAMILIES.values(), LEGACY_DEBERTA)


def find_family(config: ModelConfig, heads: tuple[str, ...] = ()) -> Family | None:
    """Returns the family that can hold a structure with these heads, or None."""
    families = FAMILIES.values()
    return next((f for f in families if not f.differences(config, heads)), None)


def made_by_tasks(config: ModelConfig) -> tuple[str, ...]:
    """Returns the prefixes of encoder weights that the family's pre-training does not make.

    BERT's next-sentence prediction trains the pooler. In the others it belongs to the head of each
    task, and a model that is only pre-trained has none.
    """
    family = find_family(config, ("pooler",))
    if family and family.pretrains_pooler:
        return ()
    return (HEADS["pooler"],)
