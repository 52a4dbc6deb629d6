"""The flags that contradict each other, over all groups of a program's configuration."""

from bert_tf.config.rules import Exclusion, Rule, is_set

FIXED_MASKS = "masking=static masking=tf_text"
WORDS_OR_SPANS = "do_whole_word_mask span_length ngram_length masked_lm_prob_end"

# The first rule that is broken is reported.
PRETRAINING_RULES: tuple[Rule | Exclusion, ...] = (
    Rule(
        lambda c: not c.training.output_dir,
        "--output_dir is empty; name the run directory, for example runs/my_bert.",
    ),
    Rule(
        lambda c: not (c.training.do_train or c.training.do_eval),
        "At least one of --do_train and --do_eval must be true.",
    ),
    Rule(
        lambda c: c.training.early_stopping_evaluations and not c.training.eval_steps,
        "--early_stopping_evaluations={c.training.early_stopping_evaluations} needs evaluations: "
        "give --eval_steps.",
    ),
    *(
        Exclusion(setting, "draws single tokens in each epoch", f"{WORDS_OR_SPANS} {FIXED_MASKS}")
        for setting in ("objective=masked_diffusion", "electra_reference_sampling")
    ),
    *(
        Exclusion(
            f"objective={name}",
            "draws an order of all tokens of one text in each epoch",
            f"{FIXED_MASKS} teacher pack_rows",
        )
        for name in ("permuted_lm", "masked_permuted_lm")
    ),
    Rule(
        lambda c: c.masking.rank_special_tokens and c.objective.objective != "permuted_lm",
        "--masking_options=rank_special_tokens has no effect with "
        "--objective={c.objective.objective}; leave it out, or give --objective=permuted_lm.",
    ),
    Exclusion("causal_share", "hides tokens that a teacher sees", "teacher"),
    Rule(
        lambda c: c.masking.causal_share and c.objective.objective != "masked_lm",
        "--masking_options=causal_share works with --objective=masked_lm, not "
        "{c.objective.objective}; leave one of them out.",
    ),
    Rule(
        lambda c: c.masking.causal_share and c.data.use_next_sentence,
        "--masking_options=causal_share hides a pair of texts from its first token, by which the "
        "next sentence is predicted; give --pairs=none as well.",
    ),
    Rule(
        lambda c: c.objective.electra_reference_sampling and c.masking.random_share,
        "--objective_options=electra_reference_sampling masks as google-research/electra does, "
        "without random tokens; give --masking_options=random_share=0 as well.",
    ),
    Exclusion(
        "objective=replaced_tokens",
        "trains both models from scratch, with dynamic masks, without packed rows and with "
        "--pairs=none",
        f"use_next_sentence=true init_checkpoint show_masks teacher {FIXED_MASKS} pack_rows",
    ),
    Exclusion(
        "masked_lm_prob_end", "counts the steps of the run", "train_minutes batch_ramp_steps"
    ),
    Rule(
        lambda c: c.data.added_words_file and not c.training.init_checkpoint,
        "--added_words_file adds to the vocabulary of a checkpoint; give --init_checkpoint.",
    ),
)
FUSED = "attention=fused"
FUSED_POSITIONS = ("learned", "sinusoidal", "rotary", "rotary_interleaved")
# Checked when the weights are known, whose configuration may replace that of the flags.
MODEL_RULES: tuple[Rule | Exclusion, ...] = (
    Rule(
        lambda c: c.data.max_seq_length > c.model.longest_row,
        "--max_seq_length={c.data.max_seq_length} is above the model's max_position_embeddings "
        "{c.model.longest_row}; with an --init_checkpoint, "
        "--max_position_embeddings={c.data.max_seq_length} enlarges its table.",
    ),
    Exclusion(
        FUSED,
        "is a kernel of half precision for rows of one text, in a step that XLA compiles",
        "precision=float32 pack_rows jit_compile=false",
    ),
    Rule(
        lambda c: is_set(c, FUSED) and c.model.attention_probs_dropout_prob,
        "--attention=fused has no dropout of attention, but the model's "
        "attention_probs_dropout_prob is {c.model.attention_probs_dropout_prob}; set it to 0 in "
        "the configuration of the model, or leave --attention out.",
    ),
    Rule(
        lambda c: is_set(c, FUSED) and c.model.position_type not in FUSED_POSITIONS,
        "--attention=fused adds no terms of positions to the scores, but the model's position_type "
        "is {c.model.position_type}; leave --attention out.",
    ),
)
