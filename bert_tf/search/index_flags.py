"""The flags of the programs that embed documents and write an index."""

from absl import flags

from bert_tf.config import TrainingConfig, config_flags
from bert_tf.search.analyzer import STEMMERS
from bert_tf.system.type_names import Fields

FLAGS = flags.FLAGS
# Lets --help list the flags under the program instead of this module.
flags.disclaim_key_flags()


def define_index_flags() -> None:
    config_flags.define_flags(TrainingConfig, only=("init_checkpoint", "output_dir"))
    flags.DEFINE_string("input_file", "", "Comma-separated files and globs of documents.")
    flags.DEFINE_enum(
        "dtype",
        "float32",
        ["float32", "float16", "int8", "binary"],
        "Format of the vectors that a search reads: int8 has a quarter of the bytes of float32, "
        "binary a bit for each number.",
    )
    flags.DEFINE_enum(
        "rescore",
        "",
        ["", "float32", "int8", "none"],
        "Copies of int8 and binary vectors that score the best again; empty: float32 for int8, "
        "int8 for binary.",
    )
    flags.DEFINE_integer(
        "dimensions", 0, "First numbers of each vector to keep (Matryoshka models); 0: all.", 0
    )
    flags.DEFINE_enum(
        "similarity", "", ["", "cosine", "dot"], "Similarity of vectors; empty: the model's choice."
    )
    flags.DEFINE_enum(
        "pooling",
        "",
        ["", "cls", "mean", "max"],
        "Pooling; empty: that of the model's folder, or else mean.",
    )
    flags.DEFINE_integer(
        "max_seq_length",
        0,
        "Tokens per text; 0: as in the index that is added to, else the value in the model's "
        "folder, or 256.",
        0,
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", 1)
    flags.DEFINE_enum(
        "language",
        "en",
        list(STEMMERS),
        "Language of the texts, for search by words: each has its stemmer and its rule of case; "
        "English has stop words. `other` is for languages without a stemmer.",
    )
    flags.DEFINE_bool(
        "keep_texts", True, "Store the texts, so that they can be shown and reranked."
    )


def index_options() -> Fields:
    """Returns the arguments of `build_index` that these flags give."""
    return {name: FLAGS[name].value for name in ("dtype", "rescore", "dimensions", "language")}
