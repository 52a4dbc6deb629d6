"""Configuration of the text for pre-training and its preparation."""

import dataclasses

from bert_tf.config.fields import Config, changeable, option, share

INPUT_FORMATS = ("auto", "lines", "prose", "jsonl", "tfrecord", "tfds")


@dataclasses.dataclass(frozen=True)
class DataConfig(Config):
    """Source and preparation of the examples (google-research/bert's flags)."""

    input_file: str = option(
        "",
        "Comma-separated files or globs: raw text (one sentence per line, blank lines between "
        "documents; plain prose; JSONL; each also .gz or .xz), TFRecords in Google's format, or a "
        "TensorFlow Datasets name (tfds:NAME). Empty: the built-in corpus.",
    )
    input_format: str = option(
        "auto", "Format of input_file; auto: detect it.", choices=INPUT_FORMATS
    )
    text_field: str = option("text", "Field of JSONL records or TFDS examples with the text.")
    sentence_language: str = option(
        "auto",
        "Language whose abbreviations do not end a sentence: de, en, es, fr, it, pt, ru; zh, ja, "
        "th, ar, hi and others have none. auto: English. Each script has its marks in any case.",
    )
    eval_file: str = option(
        "", "Input for evaluation only; empty: documents held out of input_file.", from_run=True
    )
    eval_fraction: float = option(
        0.02, "Share of documents held out when eval_file is empty.", lower=0.0, upper=0.5
    )
    vocab_file: str = option(
        "",
        "Vocabulary; empty: that of --init_checkpoint, or one trained on input_file. If it "
        "differs from the checkpoint's, the embedding table is adapted.",
    )
    added_words_file: str = option(
        "",
        "File of words, one per line, to add to the vocabulary of --init_checkpoint: first in its "
        "[unused] rows, then in new rows.",
    )
    cache_dir: str = changeable(
        "", "Folder for prepared data, which later runs reuse; empty: OUTPUT_DIR/../bert_tf_cache."
    )
    max_seq_length: int = option(
        128, "Tokens per example, including special tokens.", lower=8, from_run=True
    )
    dupe_factor: int = option(
        10, "Times each document is used, with different masks (static masking only).", lower=1
    )
    short_seq_prob: float = share(0.1, "Probability of a sequence shorter than the maximum.")
    random_seed: int = option(12345, "Seed of pairs, masks, order, weights and dropout.", lower=0)
    use_next_sentence: bool = option(
        True,
        "Train on sentence pairs with an NSP head; false: full sentences, MLM only (RoBERTa).",
        within="pairs",
    )
    sentence_order: bool = option(
        False,
        "Pairs are two consecutive segments, in order or swapped (ALBERT), without random second "
        "segments.",
        conflicts=("use_next_sentence=false",),
        within="pairs",
    )
    deduplicate: str = option(
        "none",
        "Leave out documents that repeat an earlier one: in all tokens (exact), or in 0.8 of all "
        "sequences of five tokens (near).",
        choices=("none", "exact", "near"),
    )
    num_workers: int = changeable(0, "Processes that prepare data; 0: one per core.", lower=0)
    show_masks: str = changeable(
        "",
        "Sentences with [MASK], separated by |, to fill in at every evaluation; the first and the "
        "last answers are shown at the end. Sentences of the text replace those in another "
        "language.",
    )
