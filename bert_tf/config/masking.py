"""Configuration of the choice of predicted tokens."""

import dataclasses
import functools
from typing import Self

from bert_tf.config.fields import Config, option, share
from bert_tf.config.model import ModelConfig
from bert_tf.config.rules import Rule, check_rules

MASKINGS = ("dynamic", "static", "tf_text")
# The others have one share, single tokens or whole words, and 80 % [MASK] and 10 % random tokens.
DYNAMIC = ("masking", "dynamic")
dynamic = functools.partial(option, needs=DYNAMIC)
dynamic_share = functools.partial(share, needs=DYNAMIC)
RULES = (
    # Rounding may take a sum of shares slightly above 1.
    Rule(
        lambda c: c.masked_share + c.random_share > 1.0 + 1e-9,
        "masked_share {c.masked_share:g} and random_share {c.random_share:g} add up to more than "
        "1; lower one of them.",
    ),
    Rule(
        lambda c: 0 < c.masked_lm_prob_to < c.masked_lm_prob,
        "masked_lm_prob_to {c.masked_lm_prob_to:g} is below masked_lm_prob {c.masked_lm_prob:g}; "
        "give a larger one, or 0.",
    ),
    Rule(
        lambda c: 0 < c.span_length < 1,
        "span_length is {c.span_length:g}; give 1 or more words, or 0.",
    ),
    Rule(
        lambda c: c.span_pieces and not (c.span_length or c.ngram_length),
        "span_pieces needs spans; give span_length or ngram_length as well.",
    ),
)


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
    masked_lm_prob_to: float = dynamic_share(
        0.0,
        "Draw the share of each example between masked_lm_prob and this value; 0: fixed share.",
        within="masked_lm_prob",
    )
    masked_lm_prob_end: float = dynamic_share(
        0.0,
        "Change the share linearly from masked_lm_prob at the first step to this at the last step; "
        "evaluations keep masked_lm_prob. 0: no change.",
        conflicts=("masked_lm_prob_to",),
        within="masked_lm_prob",
    )
    span_length: float = dynamic(
        0.0,
        "Mask spans of whole words that end at each word with probability 1 / span_length, at the "
        "latest after ten. The mean is therefore lower: 4.46 words for 5, and 3.77 for 4. SpanBERT "
        "uses 5 but draws again instead of cutting at ten words, which gives a mean of 3.80. 0: no "
        "spans.",
        lower=0.0,
        within="mask_unit",
    )
    ngram_length: int = dynamic(
        0,
        "Mask spans of 1 to ngram_length whole words, n words with a probability proportional to "
        "1 / n; ALBERT uses 3. 0: no spans.",
        lower=0,
        upper=20,
        conflicts=("span_length",),
        within="mask_unit",
    )
    span_pieces: bool = option(
        False,
        "Mask spans of single tokens instead of whole words.",
        conflicts=("do_whole_word_mask",),
        within="mask_unit",
    )
    max_predictions_per_seq: int = option(
        20, "Maximum number of predictions per sequence.", lower=1
    )
    causal_share: float = dynamic_share(
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
    masked_share: float = dynamic_share(
        0.8,
        "Share of the selected tokens that is replaced by [MASK]. With objective=replaced_tokens, "
        "if neither share is given, 0.85 and no random tokens.",
        within="masking_options",
    )
    random_share: float = dynamic_share(
        0.1,
        "Share of the selected tokens that is replaced by a random token; the rest is unchanged.",
        within="masking_options",
    )

    def check(self) -> None:
        self.check_needs(self.names())
        check_rules(RULES, self)

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
