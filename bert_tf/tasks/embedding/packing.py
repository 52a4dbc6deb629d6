"""Packs a prompt and a text for an embedder. Loads no TensorFlow."""

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.text.packing import PackedText, pack
from bert_tf.text.tokenization import Tokenizer


def pack_text(
    tokenizer: Tokenizer, embedding: EmbeddingConfig, text: str, prompt: str
) -> PackedText:
    """Tokenizes a prompt and a text together, and truncates them to the maximum length."""
    # Together, as sentence-transformers does: the last token of a prompt may join the text.
    text = prompt + text
    token_ids = tokenizer.encode(text.lower() if embedding.lower_case_texts else text)
    return pack(tokenizer.vocab, token_ids, None, embedding.max_seq_length)


def prompt_length(tokenizer: Tokenizer, embedding: EmbeddingConfig, prompt: str) -> int:
    """Returns the number of first tokens that the pooling skips: [CLS] and the prompt, or 0."""
    if embedding.include_prompt or not prompt:
        return 0
    prompt = prompt.lower() if embedding.lower_case_texts else prompt
    return tokenizer.vocab.text_start + len(tokenizer.encode(prompt))
