"""Reads the SentencePiece tokenizer of a folder: tokenizer.json, a .model, or both."""

import pathlib
import re

import numpy as np

from bert_tf.checkpoints import tokenizer_settings
from bert_tf.checkpoints.found_tokenizer import FoundTokenizer, fill_up
from bert_tf.checkpoints.wordpiece_layouts import tokenizer_class
from bert_tf.system.files import read_json, read_optional_json
from bert_tf.text.sentencepiece_model import MODEL_FILES, has_layout, read_model
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab, is_sentencepiece
from bert_tf.text.tokenizer_json import TOKENIZER_FILE

# Classes of transformers that would read each word of a tokenizer.json of SentencePiece as unknown.
_OTHER_CLASSES = re.compile("(Distil|Mobile)?Bert|Electra|MPNet|Roberta|GPT2")


def read_sentencepiece(folder: pathlib.Path, num_rows: int | None) -> FoundTokenizer | None:
    """Reads a SentencePiece tokenizer, or returns None if the folder has none.

    If both forms of files exist, they must agree.

    Raises:
      ValueError: naming the file that is corrupt or contradicts another.
    """
    file = folder / TOKENIZER_FILE
    models = [model for model in MODEL_FILES if (folder / model).exists()]
    if not models and not is_sentencepiece(read_optional_json(file)):
        return None
    settings = read_optional_json(folder / "tokenizer_config.json")
    name = tokenizer_class(folder)
    if _OTHER_CLASSES.fullmatch(name):
        raise ValueError(
            f"{folder}: the tokenizer's class is {name}Tokenizer, but the vocabulary is "
            "SentencePiece's; correct tokenizer_class in tokenizer_config.json, for example to "
            "PreTrainedTokenizerFast."
        )
    vocabs: dict[str, SentencePieceVocab] = {}
    if file.exists():
        if not is_sentencepiece(read_json(file)):
            raise ValueError(
                f"{folder} holds two tokenizers: {TOKENIZER_FILE} is not SentencePiece's, but "
                "there is a .model; remove one of them."
            )
        vocabs[TOKENIZER_FILE] = SentencePieceVocab.read(file)
    if models and (not vocabs or has_layout(name)):
        vocabs[models[0]] = read_model(folder / models[0], name, settings)
    if len(vocabs) == 2:
        _check_same_tokens(vocabs[TOKENIZER_FILE], vocabs[models[0]], folder / models[0])
    vocab = next(iter(vocabs.values()))
    if TOKENIZER_FILE in vocabs:
        vocab = tokenizer_settings.with_stated_tokens(folder, vocab)
    tokenizer_settings.check_special_tokens(folder, vocab)
    tokenizer_settings.check_steps(folder, vocab, name)
    filled, notes = fill_up(vocab, num_rows, str(folder))
    return FoundTokenizer(filled, False, False, notes)


def _check_same_tokens(
    whole: SentencePieceVocab, model: SentencePieceVocab, path: pathlib.Path
) -> None:
    """Raises ValueError unless a .model has the tokens and scores of tokenizer.json."""
    # Added tokens may follow in either file, so the common part is compared.
    size = min(len(whole), len(model))
    different = [index for index in range(size) if whole.tokens[index] != model.tokens[index]]
    if different:
        index = different[0]
        raise ValueError(
            f"{path} has {model.tokens[index]!r} as token {index}, {TOKENIZER_FILE} has "
            f"{whole.tokens[index]!r}; they do not belong together."
        )
    size = min(len(whole.scores), len(model.scores))
    # A .model stores float32, tokenizer.json decimal digits.
    close = np.isclose(whole.scores[:size], model.scores[:size], rtol=1e-4, atol=1e-4)
    if not close.all():
        index = int(np.argmin(close))
        raise ValueError(
            f"{path} gives {model.tokens[index]!r} the score {model.scores[index]:g}, "
            f"{TOKENIZER_FILE} {whole.scores[index]:g}; they do not belong together."
        )
