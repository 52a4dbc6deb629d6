"""What pre-training learns: one class for each objective, in a file of its own."""

from bert_tf.objectives.masked_diffusion import MaskedDiffusion
from bert_tf.objectives.masked_lm import MaskedLM
from bert_tf.objectives.next_sentence import NextSentence
from bert_tf.objectives.objective import Objective
from bert_tf.objectives.sentence_order import SentenceOrder

OBJECTIVES: dict[str, type[Objective]] = {
    "masked_lm": MaskedLM,
    "masked_diffusion": MaskedDiffusion,
    "next_sentence": NextSentence,
    "sentence_order": SentenceOrder,
}
OF_PAIRS = ("next_sentence", "sentence_order")


def make_objectives(
    use_next_sentence: bool, sentence_order: bool = False, of_pieces: str = "masked_lm"
) -> tuple[Objective, ...]:
    """Makes the objectives of a run: of masked pieces, and of pairs, if there are any, one more.

    Raises:
      ValueError: if `of_pieces` is none of those of masked pieces.
    """
    known = [name for name in OBJECTIVES if name not in OF_PAIRS]
    if of_pieces not in known:
        raise ValueError(f"objective: received {of_pieces!r}, expected one of {', '.join(known)}.")
    of_pairs = "sentence_order" if sentence_order else "next_sentence"
    names = [of_pieces, of_pairs] if use_next_sentence else [of_pieces]
    return tuple(OBJECTIVES[name]() for name in names)
