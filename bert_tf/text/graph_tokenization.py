"""The tokenizers inside the TensorFlow graph, WordPiece and byte-level BPE."""

from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer import BertTokenizer


def make_graph_tokenizer(vocab: AnyVocab, do_lower_case: bool) -> BertTokenizer | ByteBpeTokenizer:
    """Returns the vocabulary's tokenizer; see `tokenization.make_tokenizer`."""
    if isinstance(vocab, BpeVocab):
        return ByteBpeTokenizer(vocab)
    return BertTokenizer(vocab, do_lower_case)
