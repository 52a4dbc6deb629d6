"""From where on a number is a finding, and why: the one place for all of them.

A threshold stands clearly outside of what good data and runs show, so that a finding is worth
reading; `docs/doctor.md` repeats the table, and a test compares the two.
"""

import dataclasses
import math

ANY = math.ulp(0.0)  # the smallest number above zero: one case is too many


@dataclasses.dataclass(frozen=True)
class Threshold:
    """Where a number begins to be a finding.

    Attributes:
      warning, serious: the first values of the two severities; None: there is no such severity.
      what: the number, in words.
      reason: where the values are from.
      is_share: the number is a share, written in percent.
      is_lower_bound: small values are the bad ones.
    """

    warning: float | None
    serious: float | None
    what: str
    reason: str
    is_share: bool = True
    is_lower_bound: bool = False

    def text(self, value: float | None) -> str:
        """Writes a value of this number."""
        if value is None or value == ANY:
            return "-" if value is None else "any"
        return f"{100 * value:g} %" if self.is_share else f"{value:g}"

    def expected(self) -> str:
        """Says which values are none of a finding."""
        first = self.warning if self.warning is not None else self.serious
        if first == ANY:
            return "none"
        return f"{'above' if self.is_lower_bound else 'below'} {self.text(first)}"


_CORPUS = {
    "unreadable": Threshold(
        None, ANY, "files that cannot be read", "Preparation stops at the first.", is_share=False
    ),
    "duplicate_documents": Threshold(
        0.01,
        0.10,
        "documents that repeat an earlier one exactly",
        "Lee et al. 2022 find near duplicates in 0.4 % of Wiki-40B, 3 % of C4, 14 % of "
        "RealNews; exact ones are fewer.",
    ),
    "duplicate_lines": Threshold(
        0.05,
        0.30,
        "characters in lines (20 characters or more) that repeat an earlier one",
        "English Wikipedia and novels show 0.1 to 0.2 %, the World Factbook 15 %; Rae et al. 2021 "
        "(table A1) throw a document away above 30 % of lines.",
    ),
    "boilerplate": Threshold(
        0.01,
        0.10,
        "share of the documents that hold the line (20 characters or more) found in most",
        "A line that one document in a hundred has is a template's, not a writer's.",
    ),
    "empty_documents": Threshold(
        0.01, 0.30, "records without text", "They are skipped; many mean a wrong field or export."
    ),
    "short_documents": Threshold(
        0.30, 0.80, "documents below 50 words", "Rae et al. 2021 keep 50 to 100,000 words."
    ),
    "single_sentence": Threshold(
        0.10,
        0.50,
        "documents of one sentence",
        "No sentence follows in them: their pairs are all random, and the labels lose balance.",
    ),
    "longest_document": Threshold(
        0.20,
        0.60,
        "share of the text in its longest document",
        "Random sentences come from other documents: these few are then seen again and again.",
    ),
    "few_documents": Threshold(
        100,
        1,
        "documents",
        "A random next sentence needs another document; of less than 100 the share held out for "
        "evaluation (2 %) is one or none.",
        is_share=False,
        is_lower_bound=True,
    ),
    "replacement_characters": Threshold(
        0.0005,
        0.01,
        "lines with U+FFFD",
        "Each stands for a character that a decoder lost; clean text has none.",
    ),
    "mojibake": Threshold(
        0.0005,
        0.01,
        "lines with UTF-8 read as Latin-1 (Ã©, â€™)",
        "Clean text has next to none; from 1 in 100 on the pieces learn the damage.",
    ),
    "control_characters": Threshold(
        0.001, 0.05, "lines with control characters", "The tokenizer deletes them: words join."
    ),
    "markup": Threshold(
        0.01, 0.20, "lines with HTML tags or entities", "Tags are predicted in place of words."
    ),
    "unknown_pieces": Threshold(
        0.001,
        0.01,
        "pieces that are [UNK]",
        "English Wikipedia has 0.02 % with Google's vocabulary; nothing is learnt of [UNK].",
    ),
    "pieces_per_word": Threshold(
        1.6,
        2.2,
        "pieces a word, punctuation counted as words",
        "1.07 to 1.12 for English with Google's vocabulary; Rust et al. 2021: the more pieces "
        "a word, the worse the models.",
        is_share=False,
    ),
    "casing": Threshold(
        ANY, None, "casing of text, vocabulary and flag disagree", "One of the three is wrong."
    ),
}

_EXAMPLES = {
    "damaged_records": Threshold(
        None, ANY, "records that cannot be read", "Training stops at the first.", is_share=False
    ),
    "other_form": Threshold(
        None,
        ANY,
        "records that are no examples, or of another form than most",
        "Training stops at the first.",
        is_share=False,
    ),
    "padding": Threshold(
        0.30,
        0.60,
        "places that are padding",
        "11 to 18 % with --short_seq_prob=0.1 on Wikipedia; padding is computed for nothing.",
    ),
    "short_examples": Threshold(
        0.30,
        0.60,
        "examples that fill less than half of max_seq_length",
        "10 to 16 % with --short_seq_prob=0.1: half of the short ones, and ends of documents.",
    ),
    "cut_examples": Threshold(
        0.70,
        None,
        "full examples that end in mid-sentence",
        "About 40 % at 128 pieces, 58 % at 64, 76 % at 32 in good examples.",
    ),
    "masked_share": Threshold(
        0.10,
        0.50,
        "difference of the masked share from --masked_lm_prob, by that",
        "Rounding and whole words change it by 5 % at most in google-research/bert's own examples.",
    ),
    "mask_split": Threshold(
        0.02,
        0.10,
        "difference from 80 % [MASK], 10 % kept, 10 % random, beyond four standard errors",
        "Devlin et al. 2019, section 3.1; more than chance explains.",
    ),
    "lost_predictions": Threshold(
        0.02,
        0.20,
        "predictions that max_predictions_per_seq leaves no room for",
        "The paper's values lose 1 % at 512 pieces (76 of 77) and none at 128.",
    ),
    "label_balance": Threshold(
        0.15,
        0.35,
        "difference of the share of random pairs from one half, beyond four standard errors",
        "Up to 56 % are random on Wikipedia; beyond, guessing the commoner is right too often.",
    ),
    "same_document": Threshold(
        0.005,
        0.02,
        "random pairs whose segments stand in one document elsewhere in the data",
        "None in our examples and in google-research/bert's: a wrong label is learnt as one.",
    ),
    "copied_examples": Threshold(
        0.01,
        0.10,
        "examples that repeat another byte for byte",
        "None in our examples and in google-research/bert's, passes over the text included.",
    ),
    "misplaced": Threshold(
        ANY,
        0.001,
        "examples that are not [CLS] a [SEP] b [SEP] with padding behind",
        "None in our examples and in google-research/bert's; the model learns the fault.",
    ),
}

_RUN = {
    "warmup": Threshold(
        0.5,
        1.0,
        "num_warmup_steps by num_train_steps",
        "1 to 10 % in the paper and its successors; from 100 % on the peak is never reached.",
    ),
    "rate_off": Threshold(
        0.1,
        0.5,
        "difference of the logged learning rate from what the flags say, behind warm-up",
        "The log holds the rate that was used: any difference is a change of flags.",
    ),
    "clipped": Threshold(
        0.9,
        None,
        "steps of the later half of a pre-training with a gradient above clip_norm",
        "10 % in a good run of 600 steps; what is always clipped has lost its size.",
    ),
    "gradient_spikes": Threshold(
        1,
        10,
        "logged steps with a gradient norm above 10 times the median of the 20 before",
        "A few batches do that in long runs; many come before divergence.",
        is_share=False,
    ),
    "loss_spikes": Threshold(
        1,
        5,
        "logged losses above the median of the 20 before by more than 0.5 and 8 deviations",
        "Chowdhery et al. 2022, section 5.1, met about 20 in PaLM's whole training.",
        is_share=False,
    ),
    "events": Threshold(
        1,
        10,
        "lines of events.jsonl",
        "Each is a loss that was not finite or jumped; one at which the run stopped counts as 10.",
        is_share=False,
    ),
    "divergence": Threshold(
        0.3,
        1.0,
        "nats by which the loss at the end lies above its lowest mean over as many steps",
        "A training loss falls: 0.05 in a good run of 600 steps.",
        is_share=False,
    ),
    "plateau": Threshold(
        0.01,
        None,
        "nats gained by the last third of a pre-training over the middle one, at a high rate",
        "A good run of 600 steps gained 0.13 there; without progress the rest is wasted.",
        is_share=False,
        is_lower_bound=True,
    ),
    "overfit": Threshold(
        0.1,
        0.5,
        "nats by which the last evaluation lies above the best",
        "What is learnt after the best evaluation is the training set.",
        is_share=False,
    ),
    "gap": Threshold(
        0.5,
        1.5,
        "nats between evaluation and training loss at the same steps",
        "Below 0.05 where the text was seen once.",
        is_share=False,
    ),
    "stale_evaluation": Threshold(
        ANY,
        None,
        "share of the steps done after the evaluation in eval_results.txt",
        "Its numbers are not those of the newest checkpoint.",
    ),
    "broken_checkpoints": Threshold(
        None, ANY, "checkpoints of which a file is missing", "They cannot be read.", is_share=False
    ),
    "disk": Threshold(
        3.0,
        1.2,
        "checkpoints that the disk has room for",
        "A new one is written before the oldest is deleted.",
        is_share=False,
        is_lower_bound=True,
    ),
    "share_of_peak": Threshold(
        0.15,
        None,
        "share of the machine's peak",
        "30 to 60 % is usual for dense Transformers (Narayanan et al. 2021: 52 %).",
        is_lower_bound=True,
    ),
    "input_wait": Threshold(
        0.1, 0.4, "time of the steps spent waiting for input", "The accelerator stands idle."
    ),
    "save_share": Threshold(
        0.1, 0.4, "time spent writing checkpoints", "Nothing is learnt meanwhile."
    ),
    "start_loss": Threshold(
        0.5,
        2.0,
        "nats between the first loss and ln V + ln 2",
        "Fresh weights know nothing: a uniform guess costs that; 0.03 above it in our runs.",
        is_share=False,
    ),
    "start_of_checkpoint": Threshold(
        None,
        -0.5,
        "first loss with --init_checkpoint, less ln V + ln 2",
        "Weights that know something begin well below a uniform guess.",
        is_share=False,
    ),
    "unigram_margin": Threshold(
        0.3,
        0.0,
        "nats by which the MLM loss lies below the unigram baseline",
        "The baseline looks at no context; 600 steps of a small model are 0.4 below it.",
        is_share=False,
        is_lower_bound=True,
    ),
    "next_sentence": Threshold(
        0.68,
        0.6925,
        "NSP loss of the last third, after 50,000 examples",
        "ln 2 = 0.693 is a coin's; a few hundredths below it something is learnt.",
        is_share=False,
    ),
    "chance": Threshold(
        0.02,
        0.0,
        "accuracy less the share of the commonest class",
        "Mosbach et al. 2021: a run that ends no better than the majority has failed; some seeds "
        "of BERT do, above all on small data.",
        is_lower_bound=True,
    ),
    "chance_score": Threshold(
        0.10,
        0.02,
        "Matthews, Pearson, F1, exact match",
        "0 is what constant answers get.",
        is_lower_bound=True,
    ),
    "nothing_learnt": Threshold(
        0.9,
        0.97,
        "training loss of the last third by that of the first lines",
        "0.5 for 250 steps on SST-2; in a run that failed on RTE 1.0.",
    ),
    "fine_tuning_rate": Threshold(
        2e-4,
        1e-3,
        "learning rate of a fine-tuning of all layers",
        "Devlin et al. 2019, appendix A.3: 2e-5 to 5e-5; ten times that forgets the pre-training.",
        is_share=False,
    ),
    "imbalance": Threshold(
        0.8, 0.98, "share of the commonest class", "Accuracy says little then; F1 says more."
    ),
    "cut_texts": Threshold(
        0.1,
        0.5,
        "training texts longer than max_seq_length",
        "What is cut off cannot help; Sun et al. 2019 gain by keeping head and tail.",
    ),
    "seed_spread": Threshold(
        0.05,
        0.2,
        "spread of the score over the seeds",
        "Dodge et al. 2020 and Mosbach et al. 2021: seeds of one setting differ by several points; "
        "0.2 is a failed run among them.",
    ),
    "equal_seeds": Threshold(
        ANY, None, "seeds with one and the same score", "Seeds change order, dropout and head."
    ),
}

THRESHOLDS = _CORPUS | _EXAMPLES | _RUN
