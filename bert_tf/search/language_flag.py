"""The flag --language of the programs that write an index."""

from absl import flags

from bert_tf.search.analyzer import STEMMERS


def define_language() -> flags.FlagHolder[str]:
    """Defines --language, the language of the texts in search by words."""
    return flags.DEFINE_enum(
        "language",
        "en",
        list(STEMMERS),
        "Language of the texts, for search by words: each has its stemmer and its rule of case; "
        "English has stop words. `other` is for languages without a stemmer.",
    )
