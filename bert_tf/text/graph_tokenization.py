"""The tokenizers inside the TensorFlow graph: WordPiece, byte-level BPE and SentencePiece."""

from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.byte_bpe_graph import ByteBpeTokenizer
from bert_tf.text.sentencepiece_graph import SentencePieceTokenizer
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer import BertTokenizer

GraphTokenizer = BertTokenizer | ByteBpeTokenizer | SentencePieceTokenizer


def make_graph_tokenizer(vocab: AnyVocab, do_lower_case: bool) -> GraphTokenizer:
    """Returns the vocabulary's tokenizer; see `tokenization.make_tokenizer`."""
    if isinstance(vocab, SentencePieceVocab):
        return SentencePieceTokenizer(vocab)
    if isinstance(vocab, BpeVocab):
        return ByteBpeTokenizer(vocab)
    return BertTokenizer(vocab, do_lower_case)
