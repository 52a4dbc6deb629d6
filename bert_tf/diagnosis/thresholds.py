"""Thresholds of findings, (warning, serious): values outside the range of good data and runs.

Numbers in comments without a paper were measured on the corpora, records and runs of this project.
"""

import math

from bert_tf.diagnosis.findings import Bounds

ANY = Bounds(1, 1, is_share=False)  # One case is too many: programs stop at it.
NEVER = math.inf

# A corpus. Lee et al. 2022 find near duplicates in 0.4 % of Wiki-40B, 3 % of C4, 14 % of RealNews.
DUPLICATE_DOCUMENTS = Bounds(0.01, 0.10)
# By characters. English Wikipedia and novels have 0.1 to 0.2 %, the World Factbook 15 %; Rae et al.
# 2021, table A1, drop documents above 30 % of lines.
DUPLICATE_LINES = Bounds(0.05, 0.30)
# A random next sentence needs another document. Of fewer than 100, holding out 2 % leaves at most
# one for evaluation.
DOCUMENTS = Bounds(100, 1, is_share=False)
# A document of one sentence has no next sentence: its pairs are all random.
SINGLE_SENTENCES = Bounds(0.10, 0.50)
SHORT_DOCUMENTS = Bounds(0.30, 0.80)  # Rae et al. 2021 keep documents of 50 to 100,000 words.
LONGEST_DOCUMENT = Bounds(0.20, 0.60)  # Its random next sentences all come from few documents.
# Lines of 60 characters or more without a full stop: 0.4 to 4 % of clean text, 57 % of tables.
CUT_LINES = Bounds(0.20, 0.60)
LOST_CHARACTERS = Bounds(0.0005, 0.01)  # share of the lines; clean text has 0
CONTROL_CHARACTERS = Bounds(0.001, 0.05)
MARKUP = Bounds(0.01, 0.20)
# Share of the characters. In Wikipedia, books and the Factbook no such character exceeds 0.04 %;
# the rules of tables are 13 % of manuals in French.
ODD_CHARACTER = Bounds(0.02, 0.08)
DRAWN_RUNS = Bounds(0.01, 0.05)
# English Wikipedia has 0.02 % [UNK] and 1.07 to 1.12 tokens per word with Google's vocabulary. Rust
# et al. 2021: the more tokens per word, the worse the model.
UNKNOWN_TOKENS = Bounds(0.001, 0.01)
TOKENS_PER_WORD = Bounds(1.6, 2.2, is_share=False)

# A labelled table.
UNLABELLED = Bounds(1e-9, 0.10)
RARE_CLASSES = Bounds(1, NEVER, is_share=False)
DISPUTED = Bounds(0.005, 0.10)  # share of the texts; annotators disagree on a few in most sets

# Examples. Google's have 11 to 18 % of padding on Wikipedia with --short_seq_prob=0.1.
PADDING = Bounds(0.30, 0.60)
MISPLACED = Bounds(1e-9, 0.001)  # share of the examples; Google's have 0
UNUSED_TOKENS = Bounds(0.001, 0.01)  # 0 in text; with a wrong vocabulary 1 token in 10.
# Relative to --masked_lm_prob; rounding changes it by at most 5 % in Google's examples.
MASKED_SHARE = Bounds(0.10, 0.50)
# Beyond four standard errors, which chance exceeds once in 16,000. Devlin et al. 2019, section 3.1:
# 80 % [MASK], 10 % kept, 10 % random; half of the pairs are random, on Wikipedia up to 56 %.
STANDARD_ERRORS = 4.0
MASK_SPLIT = Bounds(0.02, 0.10)
LABEL_BALANCE = Bounds(0.15, 0.35)
LOST_PREDICTIONS = Bounds(0.02, 0.20)  # The paper's 76 of 512 tokens lose 1 %.
WASTED_PREDICTIONS = Bounds(0.50, 0.80)  # Google's flags leave 5 to 25 % of the slots empty.

# A run. The rate times the width: Yang et al. 2022, Adam's best rate falls as 1 / width. BERT-Base
# has 0.08, RoBERTa-Base 0.5, the quickstart 0.26.
RATE_BY_WIDTH = Bounds(1.0, 5.0, is_share=False)
# Devlin et al. 2019, appendix A.3: 2e-5 to 5e-5.
FINE_TUNING_RATE = Bounds(2e-4, 1e-3, is_share=False)
WARM_UP = Bounds(0.5, 1.0)  # share of the steps; 1 to 10 % in the paper
EVENTS = Bounds(1, 10, is_share=False)  # losses not finite or with jumps; a stop counts as 10
# Logged losses above the median of the preceding 20 by more than SPIKE and 8 deviations. Chowdhery
# et al. 2022, section 5.1, report about 20 in PaLM's whole training.
LOSS_SPIKES = Bounds(1, 5, is_share=False)
SPIKE = 0.5
# Nats from the lowest mean loss to the final mean loss: 0.05 in a good run of 600 steps.
DIVERGENCE = Bounds(0.3, 1.0, is_share=False)
# ELECTRA's discriminator starts at a loss of ln 2, and always predicting that 15 % of the tokens
# are replaced gives 0.42. The loss rises slightly as the generator improves.
DISCRIMINATOR_DIVERGENCE = Bounds(0.1, 0.2, is_share=False)
DISCRIMINATOR_SPIKE = 0.2
# Share of the masked tokens that the generator predicts correctly. Clark et al. 2020, section 3.2:
# too good a generator leaves the discriminator too little to learn. They give no number; with 0.6
# of 15 %, 6 % of the tokens are replaced.
UNCHANGED_BY_GENERATOR = Bounds(0.6, 0.8)
PLATEAU = Bounds(0.01, -NEVER, is_share=False)  # nats gained in the last third; 0.13 in a good run
# Nats by which the last evaluation is worse than the best evaluation, and than training at the same
# steps: below 0.05 if each text is seen once.
OVERFITTING = Bounds(0.1, 0.5, is_share=False)
GAP = Bounds(0.5, 1.5, is_share=False)
UNIGRAM_MARGIN = Bounds(0.3, 0.0, is_share=False)  # nats; 0.4 after 600 steps of a small model
# Guessing at random has a loss of ln 2, and so may a good run before 50,000 examples.
NEXT_SENTENCE = Bounds(0.68, 0.6925, is_share=False)
NEXT_SENTENCE_EXAMPLES = 50_000
INPUT_WAIT = Bounds(0.1, 0.4)
# Relative to the best rate. Other processes, heat or a slow disk cost time, but not correctness.
SLOWER = Bounds(0.25, NEVER)
# Mosbach et al. 2021: a run no better than the majority class has failed, as some seeds of BERT do.
ABOVE_MAJORITY = Bounds(0.02, 0.0)
SCORE = Bounds(0.10, 0.02)  # Matthews, Pearson, F1, exact match: constant answers have 0.
UNMOVED_LOSS = Bounds(0.9, 0.97)  # last third / first lines: 0.5 on SST-2, 1.0 in failed runs
# Dodge et al. 2020: seeds of one setting differ by several points; 0.2 indicates a failed seed.
SEED_SPREAD = Bounds(0.05, 0.2)
