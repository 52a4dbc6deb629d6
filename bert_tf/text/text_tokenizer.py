"""The tokenizer that `bert_tf.load_tokenizer` returns: texts to encoder inputs, in Python."""

from collections.abc import Sequence

import numpy as np

from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.packing import num_special_tokens, pack, pack_pair, pad_batch
from bert_tf.text.tokenization import AnyVocab, make_tokenizer


class TextTokenizer:
    """Tokenizes and packs texts, or pairs of texts; a fine-tuning program makes the same rows.

        tokenizer = bert_tf.load_tokenizer("hf://FacebookAI/roberta-base")
        outputs = encoder(tokenizer(["A text.", "Another one."]))

    WordPiece treats special tokens written in a text as ordinary text; byte-level BPE treats them
    as special tokens.

    Args:
      vocab: of either kind.
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
          pair: the second text of the pair, or B of them; an empty one counts as none.
          max_length: maximum length of a row, including special tokens: a text is cut at its end,
            of a pair the longer text. Where both texts are cut and the number of tokens is odd,
            byte-level BPE leaves the longer text one more, as Hugging Face's `longest_first` does,
            and WordPiece the first, as google-research/bert does. None: no limit.

        Returns:
          `input_word_ids`, `input_mask`, `input_type_ids`, int32: [T] of a text, [B, T] of several,
          padded to the longest.

        Raises:
          ValueError: if there are not as many second texts as first ones, or no piece fits.
        """
        is_one = isinstance(text, str)
        firsts = [text] if isinstance(text, str) else list(text)
        seconds = [""] * len(firsts)
        if pair is not None:
            seconds = [pair] if isinstance(pair, str) else list(pair)
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
            pieces = self.tokenizer.encode(first), self.tokenizer.encode(second) if second else []
            longest = sum(map(len, pieces)) + num_special_tokens(True, self.vocab.num_separators)
            length = longest if max_length is None else max_length
            # Only where both texts of a pair are cut do the two differ.
            is_pair = bool(pieces[1]) and isinstance(self.vocab, BpeVocab)
            rows.append((pack_pair if is_pair else pack)(self.vocab, *pieces, length))
        batch = pad_batch(rows, self.vocab.pad_id)
        return {name: values[0] for name, values in batch.items()} if is_one else batch


def _described(texts: str | Sequence[str] | None) -> str:
    return "a string" if isinstance(texts, str) else f"{len(texts or ())} strings"
