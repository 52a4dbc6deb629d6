"""Objectives of pre-training: one class and one file for each."""

from bert_tf.pretraining.objectives.causal_share import MaskedAndCausalLM
from bert_tf.pretraining.objectives.masked_diffusion import MaskedDiffusion
from bert_tf.pretraining.objectives.masked_lm import MaskedLM
from bert_tf.pretraining.objectives.masked_permuted import MaskedPermutedLM
from bert_tf.pretraining.objectives.next_sentence import NextSentence
from bert_tf.pretraining.objectives.objective import Objective
from bert_tf.pretraining.objectives.permuted_lm import PermutedLM
from bert_tf.pretraining.objectives.sentence_order import SentenceOrder

# The objectives over tokens.
OBJECTIVES: dict[str, type[Objective]] = {
    "masked_lm": MaskedLM,
    "masked_diffusion": MaskedDiffusion,
    "permuted_lm": PermutedLM,
    "masked_permuted_lm": MaskedPermutedLM,
}


def make_objectives(
    use_next_sentence: bool,
    sentence_order: bool = False,
    of_tokens: str = "masked_lm",
    reads_left_to_right: bool = False,
) -> tuple[Objective, ...]:
    """Makes the objectives of a run: one over masked tokens, and with pairs of texts a second one.

    Args:
      use_next_sentence: whether the examples are pairs of texts.
      sentence_order: whether to predict the order of a pair instead of the next sentence.
      of_tokens: name of the objective over masked tokens; an unknown one is an error.
      reads_left_to_right: whether some examples are predicted from left to right.
    """
    if of_tokens not in OBJECTIVES:
        raise ValueError(
            f"objective: received {of_tokens!r}, expected one of {', '.join(OBJECTIVES)}."
        )
    is_causal = of_tokens == "masked_lm" and reads_left_to_right
    first = MaskedAndCausalLM() if is_causal else OBJECTIVES[of_tokens]()
    if not use_next_sentence:
        return (first,)
    return first, SentenceOrder() if sentence_order else NextSentence()
