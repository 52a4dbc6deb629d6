"""Reads which special tokens WordPiece has in a folder of Hugging Face's, and how it packs texts.

BERT's and most others    [CLS] A [SEP] B [SEP]
MPNet's                   <s> A </s></s> B </s>, by the names of tokenizer_config.json
"""

import pathlib
from typing import Any

from bert_tf.checkpoints.tokenizer_settings import omits_types
from bert_tf.system.files import json_field, read_optional_json
from bert_tf.text.tokenizer_json import naming_file, read_post_processor
from bert_tf.text.vocab import ROLES, SPECIAL_TOKENS
from bert_tf.text.wordpiece_options import DEFAULT_OPTIONS, WordPieceOptions

# Classes of tokenizers, without "Tokenizer".
MPNET = "MPNet"
XLNET = "XLNet"
XLNET_CONFIG = "xlnet_config.json"
# The names in Hugging Face's files, in the order of `WordPieceOptions.special_tokens`.
NAMES = tuple(f"{role}_token" for role in ROLES)
_MPNET_TOKENS = ("<pad>", "[UNK]", "<s>", "</s>", "<mask>")
# Classes that say nothing of the layout.
_UNNAMED = ("", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
# The tokenizer of a model without a tokenizer_config.json, or with one that names no class.
_CLASS_OF_MODEL = {
    "albert": "Albert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "mpnet": MPNET,
    "xlm-roberta": "XLMRoberta",
    "xlnet": XLNET,
}


def tokenizer_class(folder: pathlib.Path) -> str:
    """Returns the class of a folder's tokenizer, without "Tokenizer" and "Fast"; "" if unknown.

    tokenizer_config.json names it, else the type of the model in config.json implies it, or the
    name of the configuration of zihangdai/xlnet.

    Raises:
      ValueError: if a name is not a text.
    """
    path = folder / "tokenizer_config.json"
    name = json_field(read_optional_json(path), "tokenizer_class", str, path, nullable=True) or ""
    if name not in _UNNAMED:
        return name.removesuffix("Fast").removesuffix("Tokenizer")
    if (folder / XLNET_CONFIG).exists():
        return XLNET
    path = folder / "config.json"
    kind = json_field(read_optional_json(path), "model_type", str, path, nullable=True) or ""
    return _CLASS_OF_MODEL.get(kind, "")


def read_layout(folder: pathlib.Path) -> WordPieceOptions:
    """Returns the options of WordPiece for a folder's special tokens, and the default otherwise.

    Raises:
      ValueError: if a name of a special token is not a text.
    """
    if tokenizer_class(folder) != MPNET:
        return DEFAULT_OPTIONS
    tokens = []
    files = [folder / "tokenizer_config.json", folder / "special_tokens_map.json"]
    contents = list(map(read_optional_json, files))
    for name, usual in zip(NAMES, _MPNET_TOKENS, strict=True):
        found = usual
        for path, values in zip(files, contents, strict=True):
            value = values.get(name)
            if isinstance(value, dict):
                value = value.get("content")
            if value is None:
                continue
            if not isinstance(value, str) or not value:
                raise ValueError(f"{path}: {name} is {value!r}, expected a text.")
            found = value
            break
        tokens.append(found)
    # The model has no types. transformers reads special tokens that are written in a text.
    return WordPieceOptions(
        special_tokens=tuple(tokens),
        num_separators=2,
        second_type=0,
        reads_special_tokens=True,
    )


def special_names(options: WordPieceOptions) -> dict[str, str]:
    """Returns the special tokens by Hugging Face's names."""
    return dict(zip(NAMES, options.special_tokens or SPECIAL_TOKENS, strict=True))


def check_post_processor(
    processor: dict[str, Any], options: WordPieceOptions, path: pathlib.Path
) -> None:
    """Raises ValueError if special tokens are put elsewhere than the options say."""
    if not processor:
        return
    with naming_file(path):
        found = read_post_processor(path, processor)
    names = special_names(options)
    expected = {
        "cls": names["cls_token"],
        "sep": names["sep_token"],
        "num_separators": options.num_separators,
    }
    # MPNet's template gives the second text type 1, which its model does not read.
    second_types = [1]
    if options.num_separators == 2 or omits_types(path.parent):
        second_types.append(0)
    is_right = {name: found[name] for name in expected} == expected
    if not is_right or found["second_type"] not in second_types or "class_at_end" in found:
        raise ValueError(
            f"{path}: by its post_processor texts are packed with {found}, expected {expected} and "
            f"second_type {' or '.join(map(str, second_types))}."
        )
