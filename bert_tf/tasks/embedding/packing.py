"""Packs a prompt and a text for an embedder. Loads no TensorFlow."""

import re

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.text.kinds import find_added_tokens
from bert_tf.text.packing import PackedText, ids_after_prompt, pack
from bert_tf.text.tokenization import AnyVocab, Tokenizer


def pack_text(
    tokenizer: Tokenizer, embedding: EmbeddingConfig, text: str, prompt: str, side: str = ""
) -> PackedText:
    """Tokenizes a prompt and a text together, and truncates them to the maximum length.

    `side` is query or document, for models whose sides have different lengths.
    """
    # Together, as sentence-transformers does: the last token of a prompt may join the text.
    text = embedding.cut(prompt + text)
    if embedding.lower_case_texts:
        # Libraries of late interaction lower-case the text between special tokens alone.
        if embedding.tokens is not None:
            text = _lower_case_between(text, tokenizer.vocab)
        else:
            text = text.lower()
            prompt = prompt.lower()
    token_ids = tokenizer.encode(text)
    counted = ids_after_prompt(tokenizer, prompt, token_ids)
    return pack(tokenizer.vocab, token_ids, None, embedding.length(side), counted=counted)


def _lower_case_between(text: str, vocab: AnyVocab) -> str:
    """Lower-cases a text but for the special tokens that are found in it as typed."""
    kept = {*vocab.special_tokens}
    kept.update(token.content for token in find_added_tokens(vocab) if not token.normalized)
    longest_first = sorted(kept, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return "".join(part if part in kept else part.lower() for part in parts)


def prompt_length(tokenizer: Tokenizer, embedding: EmbeddingConfig, prompt: str) -> int:
    """Returns the number of first tokens that the pooling skips: [CLS] and the prompt, or 0."""
    if embedding.include_prompt or not prompt:
        return 0
    prompt = prompt.lower() if embedding.lower_case_texts else prompt
    return tokenizer.vocab.text_start + len(tokenizer.encode(prompt))
