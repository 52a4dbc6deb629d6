"""How well a vocabulary fits a text: unknown pieces, the characters at fault, pieces a word."""

import collections

from bert_tf.text.vocab import SPECIAL_TOKENS
from bert_tf.text.wordpiece import WordPiece

MAX_EXAMINED = 5000  # lines with [UNK] whose words are looked at: the slow way


class VocabularyFit:
    """Counts what a tokenizer makes of lines.

    Args:
      tokenizer: with its vocabulary and casing.

    Attributes:
      num_pieces, num_words, num_unknown: counts; a word is a piece that continues none.
      num_letters, num_capitals: letters of the text, and the upper-case ones.
      guilty: characters of unknown words that the vocabulary lacks, with how many words each has.
      unknown_words: unknown words, with how often each was met.
    """

    def __init__(self, tokenizer: WordPiece) -> None:
        self.tokenizer = tokenizer
        self.num_pieces = self.num_words = self.num_unknown = 0
        self.num_letters = self.num_capitals = 0
        self.guilty: collections.Counter[str] = collections.Counter()
        self.unknown_words: collections.Counter[str] = collections.Counter()
        self._num_examined = 0
        self._is_continuation = tokenizer.vocab.is_continuation.tolist()

    def add(self, line: str) -> None:
        """Counts a line."""
        ids = self.tokenizer.encode(line)
        self.num_pieces += len(ids)
        self.num_words += sum(not self._is_continuation[index] for index in ids)
        unknown = ids.count(self.tokenizer.vocab.unk_id)
        self.num_unknown += unknown
        if unknown and self._num_examined < MAX_EXAMINED:
            self._num_examined += 1
            self._examine(line)
        if not line.islower():  # most lines have a capital, and counting letters is slow
            self.num_capitals += sum(map(str.isupper, line))
        self.num_letters += len(line)

    @property
    def unknown_share(self) -> float:
        return self.num_unknown / max(1, self.num_pieces)

    @property
    def pieces_per_word(self) -> float:
        return self.num_pieces / max(1, self.num_words)

    def casing_conflict(self) -> str:
        """Says how text, vocabulary and `do_lower_case` disagree; "" if they agree."""
        tokens = [token for token in self.tokenizer.vocab.tokens if token not in SPECIAL_TOKENS]
        is_cased = sum(token != token.lower() for token in tokens) > 0.01 * len(tokens)
        capitals = self.num_capitals / max(1, self.num_letters)
        if is_cased and self.tokenizer.do_lower_case:
            return "the vocabulary has upper case, but the text is lower-cased for it"
        if not is_cased and not self.tokenizer.do_lower_case and capitals > 0.001:
            return "the vocabulary is lower case, but the text keeps its upper case"
        if is_cased and self.num_letters > 10_000 and capitals < 0.0001:
            return "the vocabulary has upper case, but the text has none"
        return ""

    def _examine(self, line: str) -> None:
        """Notes the unknown words of a line, and which of their characters are in no piece."""
        for token, start, end in zip(*self.tokenizer.tokenize_with_offsets(line), strict=True):
            if token != "[UNK]":
                continue
            word = line[start:end]
            self.unknown_words[word] += 1
            known = self.tokenizer.vocab.ids
            for character in set(word.lower() if self.tokenizer.do_lower_case else word):
                if character not in known and f"##{character}" not in known:
                    self.guilty[character] += 1
