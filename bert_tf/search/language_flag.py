"""The flag --language of the programs that write an index."""

from absl import flags

from bert_tf.search.words import STEMMERS


def define_language() -> flags.FlagHolder[str]:
    """Defines --language, the language whose stemmer BM25 applies."""
    return flags.DEFINE_enum(
        "language",
        "en",
        list(STEMMERS),
        "Language of the texts, for search by words: English has stop words and a stemmer, the "
        "others a stemmer, `other` neither.",
    )
