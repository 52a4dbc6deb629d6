"""Configuration of the choice of predicted tokens."""

import dataclasses
from typing import Self

from bert_tf.config.fields import Config, option, share
from bert_tf.config.model import ModelConfig

MASKINGS = ("dynamic", "static", "tf_text")


@dataclasses.dataclass(frozen=True)
class MaskingConfig(Config):
    """Selection of the predicted tokens (BERT section 3.1, task 1)."""

    masking: str = option(
        "dynamic",
        "dynamic: new masks in each epoch; static: masks drawn once, when examples are written, as "
        "in the original; tf_text: dynamic, with tensorflow-text's masking ops.",
        choices=MASKINGS,
    )
    masked_lm_prob: float = share(0.15, "Share of tokens to predict.")
    masked_lm_prob_to: float = share(
        0.0,
        "Draw the share of each example between masked_lm_prob and this value; 0: fixed share.",
        within="masked_lm_prob",
    )
    masked_lm_prob_end: float = share(
        0.0,
        "Change the share linearly from masked_lm_prob at the first step to this at the last step; "
        "evaluations keep masked_lm_prob. 0: no change.",
        within="masked_lm_prob",
    )
    span_length: float = option(
        0.0,
        "Mask spans of whole words that end at each word with probability 1 / span_length, at the "
        "latest after ten. The mean is therefore lower: 4.46 words for 5, and 3.77 for 4. SpanBERT "
        "uses 5 but draws again instead of cutting at ten words, which gives a mean of 3.80. 0: no "
        "spans.",
        lower=0.0,
        within="mask_unit",
    )
    ngram_length: int = option(
        0,
        "Mask spans of 1 to ngram_length whole words, n words with a probability proportional to "
        "1 / n; ALBERT uses 3. 0: no spans.",
        lower=0,
        upper=20,
        within="mask_unit",
    )
    span_pieces: bool = option(
        False,
        "Mask spans of single tokens instead of whole words.",
        within="mask_unit",
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of predictions per sequence.", lower=1
    )
    causal_share: float = share(
        0.0,
        "Share of the examples in which the next token is predicted from those before it, instead "
        "of masked tokens; GPT-BERT uses 1/16.",
        within="masking_options",
    )
    rank_special_tokens: bool = option(
        False,
        "With objective=permuted_lm: special tokens take part in the order, as in "
        "zihangdai/xlnet; otherwise all tokens see them.",
        within="masking_options",
    )
    do_whole_word_mask: bool = option(False, "Select whole words instead of single tokens.")
    masked_share: float = share(
        0.8,
        "Share of the selected tokens that is replaced by [MASK]. With objective=replaced_tokens, "
        "if neither share is given, 0.85 and no random tokens.",
        within="masking_options",
    )
    random_share: float = share(
        0.1,
        "Share of the selected tokens that is replaced by a random token; the rest is unchanged.",
        within="masking_options",
    )

    def check(self) -> None:
        shares = f"masked_share {self.masked_share:g} and random_share {self.random_share:g}"
        # Rounding may take a sum of shares slightly above 1.
        if self.masked_share + self.random_share > 1.0 + 1e-9:
            raise ValueError(f"{shares} add up to more than 1; lower one of them.")
        if 0 < self.masked_lm_prob_to < self.masked_lm_prob:
            raise ValueError(
                f"masked_lm_prob_to {self.masked_lm_prob_to:g} is below masked_lm_prob "
                f"{self.masked_lm_prob:g}; give a larger one, or 0."
            )
        if self.masked_lm_prob_to and self.masked_lm_prob_end:
            raise ValueError(
                "masked_lm_prob_to draws a share for each example, but masked_lm_prob_end changes "
                "the share of all examples during the run; leave one of them out."
            )
        if 0 < self.span_length < 1:
            raise ValueError(f"span_length is {self.span_length:g}; give 1 or more words, or 0.")
        if self.span_length and self.ngram_length:
            raise ValueError("span_length and ngram_length both draw spans; leave one of them out.")
        if self.span_pieces and not (self.span_length or self.ngram_length):
            raise ValueError("span_pieces needs spans; give span_length or ngram_length as well.")
        if self.span_pieces and self.do_whole_word_mask:
            raise ValueError("span_pieces contradicts do_whole_word_mask; leave one of them out.")
        if self.masking == "dynamic":
            return
        dynamic_only = (
            "masked_lm_prob_to",
            "masked_lm_prob_end",
            "span_length",
            "ngram_length",
            "causal_share",
        )
        given = " and ".join(name for name in dynamic_only if getattr(self, name))
        if given:
            raise ValueError(f"These need masking=dynamic, not {self.masking}: {given}.")
        if (self.masked_share, self.random_share) != (0.8, 0.1):
            raise ValueError(
                f"{shares} need masking=dynamic; {self.masking} masks 80 % and replaces 10 % by "
                "random tokens."
            )

    @property
    def largest_share(self) -> float:
        """The largest share of tokens that is predicted at any time."""
        return max(self.masked_lm_prob, self.masked_lm_prob_to, self.masked_lm_prob_end)

    def any_share(self, max_seq_length: int) -> Self:
        """Returns the configuration for masked diffusion: any share of [MASK], up to all tokens."""
        return dataclasses.replace(
            self,
            masked_lm_prob=0.0,
            masked_lm_prob_to=1.0,
            masked_share=1.0,
            random_share=0.0,
            max_predictions_per_seq=max_seq_length,
        )


def with_causal_share(model: ModelConfig, masking: MaskingConfig) -> ModelConfig:
    """Returns the configuration of a model, which records whether it reads from left to right."""
    if not masking.causal_share:
        return model
    return dataclasses.replace(model, reads_left_to_right=True)
