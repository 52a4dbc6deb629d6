"""The casing of WordPiece: whether the tokens of a vocabulary fit the statements of its files."""

from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.vocab import WORDPIECE
from bert_tf.text.wordpiece import split_words

# In a cased English vocabulary 30 % of the tokens have capitals or accents, in an uncased one 0 %.
CASED_SHARE = 0.01
# In an uncased English vocabulary 92 % of the tokens have lower-case letters, in the Chinese 19 %.
LATIN_SHARE = 0.5
LATIN_SIZE = 1000


def check_casing(vocab: AnyVocab, stated: bool | None, source: str) -> bool:
    """Returns whether text is lower-cased: as stated, else as inferred from the tokens.

    Only WordPiece does it.

    Raises:
      ValueError: if the tokens contradict the stated casing.
    """
    if vocab.kind != WORDPIECE:
        return False
    # Added tokens are found as they are written, whatever the casing.
    tokens = [token.removeprefix("##") for token in vocab.subword_ids if token[0] != "["]
    # Tokens that lower-casing or stripping accents changes occur only in cased text.
    cased = []
    for token in tokens:
        if split_words(token, True, vocab.options) != split_words(token, False, vocab.options):
            cased.append(token)
    is_cased = len(cased) > CASED_SHARE * len(vocab)
    if stated is None:
        return not is_cased
    # Where accents are kept, the files state the rules in detail, not a casing by mistake.
    if stated and is_cased and vocab.options.strips_accents(True):
        raise ValueError(
            f"{source}: do_lower_case is true, but the vocabulary is cased: {len(cased)} of its "
            f"{len(vocab)} tokens ({', '.join(cased[:3])} ..) could never occur. Correct the file."
        )
    # Few tokens, or scripts without case, say nothing about the casing.
    num_lower = sum(any(map(str.islower, token)) for token in tokens)
    if not stated and not cased and len(vocab) >= LATIN_SIZE:
        if num_lower > LATIN_SHARE * len(vocab):
            raise ValueError(
                f"{source}: do_lower_case is false, but no token of the vocabulary has a capital: "
                "every word with one would be [UNK]. Correct the file."
            )
    return stated
