"""XLM-RoBERTa and CamemBERT: RoBERTa's network, under the names of other classes."""

import dataclasses
import functools

from bert_tf.checkpoints.families.family import task_classes
from bert_tf.checkpoints.families.roberta import HELD, ROBERTA, read_config

XLM_ROBERTA = dataclasses.replace(
    ROBERTA,
    title="XLM-RoBERTa",
    model_type="xlm-roberta",
    classes=task_classes("XLMRoberta"),
    read_config=functools.partial(read_config, vocab_size=30522),
    held=HELD,
)
CAMEMBERT = dataclasses.replace(
    XLM_ROBERTA,
    title="CamemBERT",
    model_type="camembert",
    classes=task_classes("Camembert"),
)
