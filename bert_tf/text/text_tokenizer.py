"""The tokenizer that `bert_tf.load_tokenizer` returns: texts to encoder inputs, in Python."""

from collections.abc import Sequence

import numpy as np

from bert_tf.text.packing import num_special_tokens, pack, pad_batch
from bert_tf.text.tokenization import AnyVocab, make_tokenizer


class TextTokenizer:
    """Tokenizes and packs texts or pairs of texts, like the fine-tuning programs.

        tokenizer = bert_tf.load_tokenizer("hf://FacebookAI/roberta-base")
        outputs = encoder(tokenizer(["A text.", "Another one."]))

    WordPiece treats special tokens written in a text as ordinary text, except in MPNet and the
    models of sentence-transformers; byte-level BPE and SentencePiece treat them as special tokens.

    Args:
      vocab: a WordPiece, byte-level BPE or SentencePiece vocabulary.
      do_lower_case: whether WordPiece lower-cases.
    """

    def __init__(self, vocab: AnyVocab, do_lower_case: bool) -> None:
        self.vocab = vocab
        self.tokenizer = make_tokenizer(vocab, do_lower_case)

    def __call__(
        self,
        text: str | Sequence[str],
        pair: str | Sequence[str] | None = None,
        max_length: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the encoder's inputs.

        Args:
          text: a text, or B of them.
          pair: the second text of the pair, or B of them; an empty one is ignored. In a list,
            only Google's vocabularies ignore it; the others, and folders of Hugging Face, keep its
            separators, as Hugging Face's tokenizers do.
          max_length: maximum length of a sequence, including special tokens; None for no limit. A
            text is truncated at its end; of a pair, the longer text is. Where both texts of a pair
            are truncated and the number of tokens is odd, Google's vocabularies leave one token
            more to the first text, as google-research/bert does, and the others to the longer one,
            as Hugging Face's `longest_first` does.

        Returns:
          `input_word_ids`, `input_mask`, `input_type_ids`, int32: [T] for one text, [B, T] for a
          list, padded to the longest.

        Raises:
          ValueError: if the numbers of first and second texts differ, or no token fits.
        """
        is_one = isinstance(text, str)
        firsts = [text] if isinstance(text, str) else list(text)
        seconds: Sequence[str | None] = [None] * len(firsts)
        if pair is not None:
            seconds = [pair or None] if isinstance(pair, str) else list(pair)
        is_mixed = pair is not None and isinstance(pair, str) != is_one
        if is_mixed or len(firsts) != len(seconds):
            raise ValueError(
                f"text is {_described(text)} and pair {_described(pair)}; expected two strings, or "
                f"two lists of equal length."
            )
        if not firsts:
            raise ValueError("text is an empty list; expected at least one text.")
        rows = []
        for first, second in zip(firsts, seconds, strict=True):
            first_ids = self.tokenizer.encode(first)
            second_ids = None if second is None else self.tokenizer.encode(second)
            num_special = num_special_tokens(True, self.vocab.num_separators)
            # A length at which nothing is truncated, with room for a token of empty texts.
            longest = len(first_ids) + len(second_ids or ()) + num_special + 1
            length = longest if max_length is None else max_length
            rows.append(pack(self.vocab, first_ids, second_ids, length))
        batch = pad_batch(rows, self.vocab.pad_id)
        if is_one:
            return {name: values[0] for name, values in batch.items()}
        return batch


def _described(texts: str | Sequence[str] | None) -> str:
    return "a string" if isinstance(texts, str) else f"{len(texts or ())} strings"
