"""Splits long documents into passages of tokens, and embeds them alone or by late chunking.

Late chunking computes the whole document in one pass; the vector of a passage is the mean over its
tokens, so it depends on the words around it. Reference: Günther et al. 2024, "Late chunking:
contextual chunk embeddings using long-context embedding models".
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_tf.search.documents import Document
from bert_tf.text.packing import add_special_tokens

if TYPE_CHECKING:
    from bert_tf.search.embedding import SearchEmbedder
    from bert_tf.tasks.embedding.model import BertEmbedder
    from bert_tf.tasks.embedding.text_encoder import TextEncoder
    from bert_tf.text.tokenization import Tokenizer

_NUMBER = re.compile(r"#[1-9][0-9]*\Z")


class PassageRule(NamedTuple):
    """How documents are split; see the flags of `build_index`."""

    tokens: int = 0  # of a passage; 0: documents are not split
    overlap: int = 0  # tokens that a passage shares with the one before
    is_late: bool = False  # late chunking

    def check(self) -> None:
        """Raises ValueError unless the overlap is shorter than a passage."""
        if self.tokens and not 0 <= self.overlap < self.tokens:
            raise ValueError(
                f"--passage_overlap={self.overlap}, but a passage has {self.tokens} tokens; give "
                "fewer than that."
            )

    def spans(self, begins_word: Sequence[bool]) -> list[tuple[int, int]]:
        """Returns the first token and the end of each passage of a text.

        A passage begins with a word, unless one of its words is longer than half a passage.

        Args:
          begins_word: for each token, whether a word begins there.

        Example: PassageRule(4, 1).spans([True] * 8) == [(0, 4), (3, 7), (6, 8)]
        """
        count = len(begins_word)

        def word_start(token: int, least: int) -> int:
            """Returns the last beginning of a word up to a token, or the token itself."""
            starts = (start for start in range(token, least, -1) if begins_word[start])
            return next(starts, token)

        spans = [(0, min(self.tokens, count))]
        covered = 0  # tokens in passages that are complete
        while spans[-1][1] < count:
            begin, end = spans[-1]
            # Each passage goes beyond the one before.
            end = word_start(end, max(begin + self.tokens // 2, covered))
            covered = end
            spans[-1] = (begin, end)
            start = end
            if self.overlap:
                start = word_start(end - self.overlap, max(begin, end - 2 * self.overlap))
                start = max(start, end - self.tokens + 1, begin + 1)
            spans.append((start, min(start + self.tokens, count)))
        return spans


WHOLE = PassageRule()


class Passages(NamedTuple):
    """The passages of a document; their ids are those of the document with #1, #2 and so on."""

    documents: list[Document]
    token_ids: list[int]  # of the document, without special tokens
    spans: list[tuple[int, int]]  # of each passage in `token_ids`


def document_of(name: str) -> str:
    """Returns the id of the document of a passage; another id is returned as it is."""
    return _NUMBER.sub("", name)


def split(document: Document, tokenizer: "Tokenizer", rule: PassageRule) -> Passages:
    """Returns the passages of a document; one that is short keeps its id."""
    _, starts, ends = tokenizer.tokenize_with_offsets(document.text)
    spans = rule.spans(_word_starts(document.text, starts, ends))
    token_ids = tokenizer.encode(document.text)
    if len(spans) == 1:
        return Passages([document], token_ids, spans)
    documents = []
    for number, (first, end) in enumerate(spans, 1):
        text = document.text[starts[first] : ends[end - 1]]
        documents.append(Document(f"{document.id}#{number}", text))
    return Passages(documents, token_ids, spans)


def _word_starts(text: str, starts: list[int], ends: list[int]) -> list[bool]:
    """Returns for each token whether white space precedes it; some tokens begin with it."""
    begins = []
    previous = -1
    for start, end in zip(starts, ends, strict=True):
        begins.append(start > previous or text[start : start + 1].isspace())
        previous = end
    return begins


class PassageEmbedder:
    """Embeds the passages of documents.

    Raises:
      ValueError: if the model cuts passages of this length, or pools in another way than late
        chunking.
    """

    def __init__(self, embedder: "SearchEmbedder", rule: PassageRule) -> None:
        rule.check()
        model: BertEmbedder = embedder.model
        self._embedder = embedder
        self._rule = rule
        self._model = model
        if not rule.tokens:
            return
        prompt = model.embedding.side_prompt("document")
        self._prompt_ids = model.tokenizer.encode(prompt) if prompt else []
        # Without the special tokens and the prompt.
        special = len(model.pack("").ids)
        self._room = model.embedding.max_seq_length - special - len(self._prompt_ids)
        if rule.tokens > self._room:
            raise ValueError(
                f"--passages={rule.tokens}, but the model reads {self._room} tokens of a text; "
                "give fewer, or a larger --max_seq_length."
            )
        if rule.is_late and model.embedding.pooling != ("mean",):
            raise ValueError(
                f"--late_chunking needs mean pooling, but the model has {model.embedding.pooling}; "
                "give --pooling=mean, or leave it out."
            )

    def embed(
        self, documents: Sequence[Document]
    ) -> tuple[list[Document], np.ndarray, list[int] | None]:
        """Returns the passages, their vectors float32 [N, D], and keys of their texts."""
        if not self._rule.tokens:
            texts = [document.text for document in documents]
            return [*documents], *self._embedder.documents(texts)
        parts = [split(document, self._model.tokenizer, self._rule) for document in documents]
        passages = [passage for part in parts for passage in part.documents]
        if not self._rule.is_late:
            texts = [passage.text for passage in passages]
            return passages, *self._embedder.documents(texts)
        # No keys: the vector of a passage depends on its document.
        return passages, np.concatenate(list(map(self._late_vectors, parts))), None

    def _late_vectors(self, part: Passages) -> np.ndarray:
        """Returns the vectors of a document's passages, in as few passes as the model can read."""
        vectors: list[np.ndarray] = []
        while len(vectors) < len(part.spans):
            spans = part.spans[len(vectors) :]
            begin = spans[0][0]
            fitting = [span for span in spans if span[1] - begin <= self._room]
            ids = part.token_ids[begin : fitting[-1][1]]
            shifted = [(first - begin, end - begin) for first, end in fitting]
            vectors.extend(self.pass_vectors(ids, shifted))
        return np.stack(vectors)

    def pass_vectors(self, token_ids: list[int], spans: list[tuple[int, int]]) -> list[np.ndarray]:
        """Returns the vectors of spans of a text, float32 [D] each, computed in one pass."""
        vocab = self._model.tokenizer.vocab
        packed = add_special_tokens(vocab, [*self._prompt_ids, *token_ids])
        sequence = self._token_vectors.run([packed])[0]  # [T, H]
        start = vocab.text_start + len(self._prompt_ids)
        vectors = []
        for first, end in spans:
            # A text without tokens has the vector of [SEP].
            tokens = sequence[None, start + first : start + max(end, first + 1)]
            vector = self._model.pool(tokens, np.ones(tokens.shape[:2], np.int32))
            vectors.append(np.asarray(vector)[0])
        return vectors

    @functools.cached_property
    def _token_vectors(self) -> "TextEncoder":
        """Computes the last layer."""
        from bert_tf.tasks.embedding.text_encoder import TextEncoder

        return TextEncoder(
            self._model.bert,
            self._model.tokenizer,
            lambda outputs, _: outputs["sequence_output"],
            self._model.embedding.max_seq_length,
        )
