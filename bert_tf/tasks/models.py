"""Whole models: the encoder with heads for a purpose, each in a file of its own.

BertPretrainer        masked pieces and next sentence (BERT section 3.1)
BertClassifier        one label for a text or a pair of texts (section 4.1)
BertTokenClassifier   one label for each word (section 5.3)
BertSpanLabeler       start and end of an answer (section 4.2)
BertJointSpanLabeler  the same, the end given the start (ELECTRA)
BertMultipleChoice    which of some endings follows a text (section 4.4)
"""

from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.masked_words.model import BertPretrainer
from bert_tf.tasks.multiple_choice.model import BertMultipleChoice
from bert_tf.tasks.question_answering.joint_model import BertJointSpanLabeler
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier

__all__ = [
    "BertClassifier",
    "BertJointSpanLabeler",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertSpanLabeler",
    "BertTokenClassifier",
]
