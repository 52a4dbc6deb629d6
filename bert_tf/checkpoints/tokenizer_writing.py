"""Writes the tokenizer of a checkpoint as Hugging Face's files."""

import dataclasses
import pathlib
from typing import Any

from bert_tf.checkpoints.wordpiece_layouts import MPNET, XLNET
from bert_tf.config import ModelConfig
from bert_tf.system.files import atomic_write, write_json
from bert_tf.text.added_tokens import AddedToken
from bert_tf.text.bpe_vocab import BpeVocab
from bert_tf.text.sentencepiece_vocab import SentencePieceVocab, row_name
from bert_tf.text.tokenization import AnyVocab
from bert_tf.text.tokenizer_json import TOKENIZER_FILE, added_token_values, template_processing
from bert_tf.text.vocab import BYTE_BPE, WORDPIECE, Vocab


def write_tokenizer(folder: pathlib.Path, vocab: AnyVocab, config: ModelConfig) -> None:
    """Writes Hugging Face's tokenizer files: tokenizer.json and others that its classes read."""
    special = _special_tokens(vocab)
    length = min(config.longest_row, config.max_position_embeddings)
    settings: dict[str, Any] = {"model_max_length": length, **special}
    # Some models refuse types, others have no row for the second, or were trained without.
    if config.type_vocab_size < 2 or not vocab.second_type:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    if vocab.kind == WORDPIECE:
        settings |= _write_wordpiece(folder, vocab, config.do_lower_case)
    else:
        settings |= _write_tokenizer_json(folder, vocab)
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", special)


def _write_wordpiece(folder: pathlib.Path, vocab: Vocab, lower: bool) -> dict[str, Any]:
    """Writes vocab.txt and tokenizer.json, and returns what tokenizer_config.json says of them."""
    # Options are in the other files, in Hugging Face's form.
    with atomic_write(folder / "vocab.txt") as file:
        file.write("\n".join(_model_tokens(vocab)) + "\n")
    write_json(folder / TOKENIZER_FILE, wordpiece_json(vocab, lower))
    settings: dict[str, Any] = {
        "tokenizer_class": f"{MPNET if vocab.options.special_tokens else 'Bert'}Tokenizer",
        "do_lower_case": lower,
        "strip_accents": vocab.options.strip_accents,
        "tokenize_chinese_chars": vocab.options.splits_ideographs,
    }
    if vocab.options.added_tokens:
        values = {str(token.pop("id")): token for token in _added_tokens(vocab)}
        settings["added_tokens_decoder"] = values
    return settings


def _write_tokenizer_json(
    folder: pathlib.Path, vocab: BpeVocab | SentencePieceVocab
) -> dict[str, Any]:
    """Writes tokenizer.json, and returns what tokenizer_config.json says of it."""
    vocab.write(folder / TOKENIZER_FILE)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if vocab.kind == BYTE_BPE:
        settings["add_prefix_space"] = vocab.add_prefix_space
    if vocab.class_at_end:
        # This class pads on the left, where XLNet's heads expect the padding.
        settings["tokenizer_class"] = f"{XLNET}Tokenizer"
        settings["padding_side"] = "left"
        settings["added_tokens_decoder"] = {
            str(vocab.ids[token.content]): dataclasses.asdict(token) for token in vocab.added_tokens
        }
    return settings


def _special_tokens(vocab: AnyVocab) -> dict[str, str]:
    """Returns the special tokens by Hugging Face's names of them."""
    ids = {name: getattr(vocab, f"{name}_id") for name in ("unk", "sep", "pad", "cls", "mask")}
    if vocab.kind != WORDPIECE or vocab.options.special_tokens:
        ids |= {"bos": vocab.cls_id, "eos": vocab.sep_id}
    return {f"{name}_token": vocab.tokens[index] for name, index in ids.items()}


def wordpiece_json(vocab: Vocab, lower: bool) -> dict[str, Any]:
    """Returns the tokenizer.json of a WordPiece vocabulary."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocab),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": vocab.options.splits_ideographs,
            "strip_accents": vocab.options.strip_accents,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template_processing(
            (vocab.cls, vocab.cls_id),
            (vocab.sep, vocab.sep_id),
            vocab.num_separators,
            vocab.second_type,
        ),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": vocab.unk,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": vocab.options.max_word_characters,
            "vocab": {token: vocab.ids[token] for token in _model_tokens(vocab)},
        },
    }


def _model_tokens(vocab: Vocab) -> tuple[str, ...]:
    """Returns the tokens of a vocabulary up to the last that is more than an added token.

    Hugging Face's files have the added tokens apart, and no names of rows behind them.
    """
    only_added = set(vocab.options.only_added)
    end = len(vocab)
    while only_added and end and vocab.tokens[end - 1] in (*only_added, row_name(end - 1)):
        end -= 1
    return vocab.tokens[:end]


def _added_tokens(vocab: Vocab) -> list[dict[str, Any]]:
    """Returns the added tokens of a tokenizer.json, the special tokens among them, by their ids."""
    tokens = {token: AddedToken(token) for token in vocab.special_tokens}
    # Flags that the options state replace the usual ones of special tokens.
    tokens |= {token.content: token for token in vocab.options.added_tokens}
    in_order = sorted(tokens.values(), key=lambda token: vocab.ids[token.content])
    return added_token_values(in_order, vocab.ids)
