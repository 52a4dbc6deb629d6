"""What pre-training learns: one class for each objective, in a file of its own."""

from bert_tf.objectives.masked_lm import MaskedLM
from bert_tf.objectives.next_sentence import NextSentence
from bert_tf.objectives.objective import Objective

OBJECTIVES: dict[str, type[Objective]] = {
    "masked_lm": MaskedLM,
    "next_sentence": NextSentence,
}


def make_objectives(use_next_sentence: bool) -> tuple[Objective, ...]:
    """Makes the objectives of a run: masked pieces, and next sentences if asked for."""
    names = ["masked_lm", "next_sentence"] if use_next_sentence else ["masked_lm"]
    return tuple(OBJECTIVES[name]() for name in names)
