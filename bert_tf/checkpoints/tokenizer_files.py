"""The vocabulary and the casing that stand beside somebody's weights.

    vocab.txt               one piece a line; google-research/bert's and Hugging Face's
    tokenizer_config.json   Hugging Face: do_lower_case, special tokens
    tokenizer.json          Hugging Face: the same again, with the vocabulary

Casing decides the pieces, and a wrong one is not noticed for long: two files that contradict each
other, or the vocabulary, are an error.
"""

import dataclasses
import json
import pathlib
from typing import Any

from bert_tf.config import ModelConfig
from bert_tf.files import read_json
from bert_tf.text.vocab import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, Vocab
from bert_tf.text.wordpiece import MAX_WORD_CHARACTERS, split_words

# Of a cased English vocabulary 30 % of the pieces hold capitals or accents; of an uncased one none.
CASED_SHARE = 0.01
# Of an uncased English vocabulary 92 % of the pieces hold lower-case letters, of the Chinese 19 %.
LATIN_SHARE, LATIN_SIZE = 0.5, 1000


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """What a folder says of its tokenizer; `do_lower_case` is None if it says nothing."""

    vocab: Vocab | None
    do_lower_case: bool | None
    notes: tuple[str, ...] = ()

    def with_casing(self, config: ModelConfig) -> ModelConfig:
        """Returns the configuration with the casing that is stated, else that of the pieces."""
        if self.do_lower_case is None:
            return config
        return dataclasses.replace(config, do_lower_case=self.do_lower_case)


def read_tokenizer(
    folder: pathlib.Path, vocab_size: int, stated: bool | None = None
) -> TokenizerFiles:
    """Reads the tokenizer's files of a folder.

    Args:
      folder: may lack any of the files.
      vocab_size: rows of the word table; a shorter vocabulary is filled up.
      stated: the casing that the model's own configuration states, if it does.

    Raises:
      ValueError: if the files contradict each other, the vocabulary or the tokenizer that we have.
    """
    casings = {} if stated is None else {"the configuration": stated}
    vocabs: dict[str, Vocab] = {}
    if (path := folder / "vocab.txt").exists():
        vocabs["vocab.txt"] = Vocab.read(path)
    if (path := folder / "tokenizer_config.json").exists():
        values = read_json(path)
        _refuse_other_tokenizers(values, path)
        if isinstance(values.get("do_lower_case"), bool):
            casings["tokenizer_config.json"] = values["do_lower_case"]
    if (path := folder / "tokenizer.json").exists():
        vocabs["tokenizer.json"], casings["tokenizer.json"] = _read_tokenizer_json(path)
    if len(set(casings.values())) > 1:
        raise ValueError(f"{folder}: the files state different casings: {casings}.")
    if len({vocab.tokens for vocab in vocabs.values()}) > 1:
        raise ValueError(f"{folder}: vocab.txt and tokenizer.json hold different vocabularies.")
    stated = next(iter(casings.values()), None)
    if not vocabs:
        return TokenizerFiles(None, stated)
    vocab, notes = fill_up(next(iter(vocabs.values())), vocab_size, str(folder))
    return TokenizerFiles(vocab, check_casing(vocab, stated, str(folder)), notes)


def _refuse_other_tokenizers(values: dict[str, Any], path: pathlib.Path) -> None:
    expected = {
        "unk_token": (UNK,),
        "sep_token": (SEP,),
        "pad_token": (PAD,),
        "cls_token": (CLS,),
        "mask_token": (MASK,),
        "tokenize_chinese_chars": (True, None),
        "do_basic_tokenize": (True, None),
        "strip_accents": (None, values.get("do_lower_case", True)),
    }
    for key, allowed in expected.items():
        value = values.get(key, allowed[0])
        value = value.get("content") if isinstance(value, dict) else value
        if value not in allowed:
            raise ValueError(
                f"{path}: {key} is {value!r}, but this toolkit's tokenizer, which is "
                f"google-research/bert's, only has {allowed[0]!r}."
            )


def _read_tokenizer_json(path: pathlib.Path) -> tuple[Vocab, bool]:
    """Returns vocabulary and casing of a tokenizer.json."""
    values = read_json(path)
    model, normalizer = values.get("model") or {}, values.get("normalizer") or {}
    if model.get("type", "WordPiece") != "WordPiece" or normalizer.get("type") != "BertNormalizer":
        raise ValueError(
            f"{path}: a {model.get('type')} tokenizer with {normalizer.get('type')}; expected "
            f"WordPiece with BertNormalizer."
        )
    lower = bool(normalizer.get("lowercase", True))
    _refuse_other_tokenizers(
        {
            "do_lower_case": lower,
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
            "unk_token": model.get("unk_token", UNK),
        },
        path,
    )
    ids = model.get("vocab")
    if not isinstance(ids, dict) or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path}: the vocabulary's ids are not 0, 1, 2 ...")
    return Vocab(tuple(sorted(ids, key=ids.__getitem__))), lower


def fill_up(vocab: Vocab, vocab_size: int, source: str) -> tuple[Vocab, tuple[str, ...]]:
    """Names the rows that a table has beyond its vocabulary (some are padded to a multiple of 8).

    Raises:
      ValueError: if the vocabulary is longer than the table.
    """
    missing = vocab_size - len(vocab)
    if missing < 0:
        raise ValueError(
            f"{source}: the vocabulary has {len(vocab)} pieces, but the word table only "
            f"{vocab_size} rows; they do not belong together."
        )
    if not missing:
        return vocab, ()
    names = tuple(f"[row{index}]" for index in range(len(vocab), vocab_size))
    note = f"The word table has {missing} rows beyond the vocabulary; they are now {names[0]} .."
    return Vocab((*vocab.tokens, *names)), (note,)


def check_casing(vocab: Vocab, stated: bool | None, source: str) -> bool:
    """Returns whether text is lower-cased: as stated, else as the pieces ask for.

    Raises:
      ValueError: if the pieces contradict what is stated.
    """
    pieces = [token.removeprefix("##") for token in vocab.tokens if token[0] != "["]
    cased = [p for p in pieces if split_words(p, True) != split_words(p, False)]
    is_cased = len(cased) > CASED_SHARE * len(vocab)
    if stated is None:
        return not is_cased
    if stated and is_cased:
        raise ValueError(
            f"{source}: do_lower_case is true, but the vocabulary is cased: {len(cased)} of its "
            f"{len(vocab)} pieces ({', '.join(cased[:3])} ..) could never occur. Correct the file."
        )
    num_lower = sum(any(char.islower() for char in piece) for piece in pieces)
    if not stated and not cased and len(vocab) >= LATIN_SIZE:
        if num_lower > LATIN_SHARE * len(vocab):
            raise ValueError(
                f"{source}: do_lower_case is false, but no piece of the vocabulary has a capital: "
                "every word with one would be [UNK]. Correct the file."
            )
    return stated


def write_tokenizer(folder: pathlib.Path, vocab: Vocab, config: ModelConfig) -> None:
    """Writes Hugging Face's tokenizer files: vocab.txt, tokenizer_config.json, tokenizer.json."""
    vocab.write(folder / "vocab.txt")
    lower = config.do_lower_case
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lower,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": config.max_position_embeddings,
        **_special_tokens(),
    }
    ids = {token: vocab.ids[token] for token in SPECIAL_TOKENS}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **flags, "special": True}
            for token, index in sorted(ids.items(), key=lambda pair: pair[1])
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(vocab),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNK,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": MAX_WORD_CHARACTERS,
            "vocab": vocab.ids,
        },
    }
    for name, values in (
        ("tokenizer_config.json", settings),
        ("special_tokens_map.json", _special_tokens()),
        ("tokenizer.json", tokenizer),
    ):
        text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf8")


def _special_tokens() -> dict[str, str]:
    return {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}


def _template(vocab: Vocab) -> dict[str, Any]:
    """Returns the part of a tokenizer.json that puts [CLS] and [SEP] round one or two texts."""

    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special(CLS, 0), text("A", 0), special(SEP, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special(SEP, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [vocab.ids[token]], "tokens": [token]}
            for token in (CLS, SEP)
        },
    }
