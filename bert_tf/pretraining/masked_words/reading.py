"""Reads models that fill in masked words."""

import typing

from bert_tf.checkpoints.start import read_start, starts_of_names
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.text.tokenization import AnyVocab, Tokenizer, make_tokenizer


def read_model(
    path: str, config_file: str = "", vocab_file: str = "", allow_unexpected: str = ""
) -> tuple[BertPretrainer, Tokenizer]:
    """Reads a checkpoint with an MLM head; for the arguments, which are flags, see `read_start`."""
    checkpoint = read_start(
        path,
        given={},
        heads=["masked_lm"],
        config_file=config_file,
        vocab_file=vocab_file,
        allow_missing=None,
        allow_unexpected=starts_of_names(allow_unexpected),
    )
    model = BertPretrainer.from_checkpoint(checkpoint)
    vocab = typing.cast(AnyVocab, checkpoint.vocab)
    return model, make_tokenizer(vocab, checkpoint.config.do_lower_case)
