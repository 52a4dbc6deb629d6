"""Packs a text behind its prompt for an embedder. Loads no TensorFlow."""

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.text.packing import PackedText, pack
from bert_tf.text.tokenization import Tokenizer


def pack_text(
    tokenizer: Tokenizer, embedding: EmbeddingConfig, text: str, prompt: str
) -> PackedText:
    """Tokenizes a text after its prompt and cuts it to the maximum length."""
    text = prompt + text
    token_ids = tokenizer.encode(text.lower() if embedding.lower_case_texts else text)
    return pack(tokenizer.vocab, token_ids, [], embedding.max_seq_length)


def prompt_pieces(tokenizer: Tokenizer, embedding: EmbeddingConfig, prompt: str) -> int:
    """Returns the number of first tokens of a sequence that the pooling leaves out."""
    if embedding.include_prompt or not prompt:
        return 0
    prompt = prompt.lower() if embedding.lower_case_texts else prompt
    return tokenizer.vocab.text_start + len(tokenizer.encode(prompt))
