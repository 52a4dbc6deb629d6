"""Thresholds of findings, (warning, serious): values outside the range of good data and runs.

Where a comment names no paper, it says what was measured on the corpora, records and runs that this
project was tried with.
"""

import math

from bert_tf.diagnosis.findings import Bounds

ANY = Bounds(1, 1, is_share=False)  # one case is too many: programs stop at it
NEVER = math.inf

# A corpus. Lee et al. 2022 find near duplicates in 0.4 % of Wiki-40B, 3 % of C4, 14 % of RealNews.
DUPLICATE_DOCUMENTS = Bounds(0.01, 0.10)
# By characters. English Wikipedia and novels have 0.1 to 0.2 %, the World Factbook 15 %; Rae et al.
# 2021, table A1, throw a document away above 30 % of lines.
DUPLICATE_LINES = Bounds(0.05, 0.30)
# A random next sentence needs another document; of less than 100 the 2 % held out are one or none.
DOCUMENTS = Bounds(100, 1, is_share=False)
# Of a single sentence none is the next: its pairs are all random.
SINGLE_SENTENCES = Bounds(0.10, 0.50)
SHORT_DOCUMENTS = Bounds(0.30, 0.80)  # Rae et al. 2021 keep documents of 50 to 100,000 words.
LONGEST_DOCUMENT = Bounds(0.20, 0.60)  # Its few neighbours are all random partners there are.
# Lines of 60 characters or more without a full stop: 0.4 to 4 % of clean text, 57 % of tables.
CUT_LINES = Bounds(0.20, 0.60)
LOST_CHARACTERS = Bounds(0.0005, 0.01)  # of the lines; clean text has none
CONTROL_CHARACTERS = Bounds(0.001, 0.05)
MARKUP = Bounds(0.01, 0.20)
# English Wikipedia has 0.02 % [UNK] and 1.07 to 1.12 pieces a word with Google's vocabulary. Rust
# et al. 2021: the more pieces a word, the worse the model.
UNKNOWN_PIECES = Bounds(0.001, 0.01)
PIECES_PER_WORD = Bounds(1.6, 2.2, is_share=False)

# A labelled table.
UNLABELLED = Bounds(1e-9, 0.10)
RARE_CLASSES = Bounds(1, NEVER, is_share=False)
DISPUTED = Bounds(0.005, 0.10)  # of the texts; most sets have a few on which labellers disagree

# Examples. Google's own have 11 to 18 % of padding on Wikipedia with --short_seq_prob=0.1.
PADDING = Bounds(0.30, 0.60)
MISPLACED = Bounds(1e-9, 0.001)  # of the examples; Google's have none
UNUSED_PIECES = Bounds(0.001, 0.01)  # No text has [unused7]; with another vocabulary 1 piece in 10.
# The masked share by --masked_lm_prob: rounding changes it by 5 % at most in Google's examples.
MASKED_SHARE = Bounds(0.10, 0.50)
# Beyond four standard errors, which chance exceeds once in 16,000. Devlin et al. 2019, section 3.1:
# 80 % [MASK], 10 % kept, 10 % random; one half of the pairs, on Wikipedia up to 56 %, are random.
STANDARD_ERRORS = 4.0
MASK_SPLIT = Bounds(0.02, 0.10)
LABEL_BALANCE = Bounds(0.15, 0.35)
LOST_PREDICTIONS = Bounds(0.02, 0.20)  # The paper's 76 of 512 pieces lose 1 %.
WASTED_PREDICTIONS = Bounds(0.50, 0.80)  # Google's flags leave 5 to 25 % of the slots empty.

# A run. The rate by the width: Yang et al. 2022, Adam's best rate falls as 1 / width. BERT-Base
# 0.08, RoBERTa-Base 0.5, the quickstart 0.26.
RATE_BY_WIDTH = Bounds(1.0, 5.0, is_share=False)
# Devlin et al. 2019, appendix A.3: 2e-5 to 5e-5.
FINE_TUNING_RATE = Bounds(2e-4, 1e-3, is_share=False)
WARM_UP = Bounds(0.5, 1.0)  # of the steps; the paper's 1 to 10 %
EVENTS = Bounds(1, 10, is_share=False)  # losses that were not finite or jumped; a stop counts as 10
# Logged losses above the median of the 20 before by more than SPIKE and 8 deviations. Chowdhery
# et al. 2022, section 5.1, met about 20 in PaLM's whole training.
LOSS_SPIKES, SPIKE = Bounds(1, 5, is_share=False), 0.5
# Nats from the lowest mean loss to that of the end: 0.05 in a good run of 600 steps.
DIVERGENCE = Bounds(0.3, 1.0, is_share=False)
# Of ELECTRA's discriminator, whose loss begins at ln 2: who always says that 15 % of the pieces are
# replaced has 0.42, and it rises a little by itself as the generator gets better.
DISCRIMINATOR_DIVERGENCE, DISCRIMINATOR_SPIKE = Bounds(0.1, 0.2, is_share=False), 0.2
# Of the pieces chosen for the generator, those that it leaves as they were. Clark et al. 2020,
# section 3.2: too good a generator leaves the discriminator too little to learn. They give no
# number; 0.6 of 15 % leaves 6 % of the pieces replaced.
UNCHANGED_BY_GENERATOR = Bounds(0.6, 0.8)
PLATEAU = Bounds(0.01, -NEVER, is_share=False)  # nats of the last third; 0.13 in a good run
# Nats by which the last evaluation is worse than the best, and than training at the same steps:
# below 0.05 where text is seen once.
OVERFITTING = Bounds(0.1, 0.5, is_share=False)
GAP = Bounds(0.5, 1.5, is_share=False)
UNIGRAM_MARGIN = Bounds(0.3, 0.0, is_share=False)  # nats; 600 steps of a small model have 0.4
# ln 2 is a coin's. Before 50,000 examples a good run may be there, too.
NEXT_SENTENCE, NEXT_SENTENCE_EXAMPLES = Bounds(0.68, 0.6925, is_share=False), 50_000
INPUT_WAIT = Bounds(0.1, 0.4)
SLOWER = Bounds(0.25, NEVER)  # than the best rate: a neighbour, heat, a slow disk; no wrong result
# Mosbach et al. 2021: a run no better than the majority has failed; some seeds of BERT do.
ABOVE_MAJORITY = Bounds(0.02, 0.0)
SCORE = Bounds(0.10, 0.02)  # Matthews, Pearson, F1, exact match: constant answers have 0.
UNMOVED_LOSS = Bounds(0.9, 0.97)  # last third by the first lines: 0.5 on SST-2, 1.0 in failed runs
# Dodge et al. 2020: seeds of one setting differ by several points; 0.2 is a failed one among them.
SEED_SPREAD = Bounds(0.05, 0.2)
