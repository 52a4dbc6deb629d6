"""Queries an exported text model once, without a server.

    python -m export.ask serving/sst2/1 "A fine film."
    python -m export.ask serving/squad/1 "Where did they meet?" "They met in London."
    python -m export.ask serving/notes/1 "What to search."

The likeliest class comes first; --json prints the outputs by name, as a server would send them.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from bert_tf import config_flags
from bert_tf.config import Config, option


@dataclasses.dataclass(frozen=True)
class AskConfig(Config):
    """Flags of this program; the first three can be given without names, in this order."""

    saved_model: str = option(
        "", "Folder of a version, such as serving/sst2/1; its parent: the newest version."
    )
    text: str = option("", "The text; or the question, or what to search.")
    second_text: str = option(
        "",
        "The second text of a pair; the context of a question; or a reranker's documents, one on "
        "each line.",
    )
    json: bool = option(False, "Print all outputs by name as one JSON object.")


def main(_: list[str]) -> None:
    config = config_flags.from_flags(AskConfig)
    given = config_flags.given(AskConfig)
    texts = [given[name] for name in ("text", "second_text") if name in given]
    if not config.saved_model or not texts:
        raise ValueError('Give a model and a text: python -m export.ask serving/sst2/1 "A text."')
    labels, answer = ask(pathlib.Path(config.saved_model).expanduser(), texts)
    lines = [json.dumps(answer, ensure_ascii=False)] if config.json else readable(labels, answer)
    print("\n".join(lines))


def ask(folder: pathlib.Path, texts: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Returns the labels of a model, and its outputs for one request by name.

    Of a tagger `entities` are the words that belong together.

    Raises:
      ValueError: if there is no SavedModel of texts, or it takes more or fewer of them.
    """
    import tensorflow as tf

    from bert_tf.served.entities import find_entities
    from bert_tf.served.saved_models import find_saved_model, load_signatures, read_card
    from export.page.model import as_json

    found = find_saved_model(folder)
    if found is None:
        raise ValueError(f"{folder} has no saved_model.pb; give a folder such as serving/sst2/1.")
    card = read_card(found)
    names = card["inputs"]
    signature = load_signatures(found)["serving_default"]
    if len(texts) != len(names):
        raise ValueError(f"{found} takes {' and '.join(names)}; received {len(texts)} of them.")
    lists = card.get("lists", [])  # Of a reranker's documents, a line each.
    inputs = {
        name: tf.constant([text.split("\n") if name in lists else text])
        for name, text in zip(names, texts, strict=True)
    }
    inputs |= {name: tf.constant(value) for name, value in card.get("numbers", {}).items()}
    outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
    answer = {name: as_json(value[0]) for name, value in outputs.items()}
    if card["kind"] == "tagger":
        answer["entities"] = find_entities(card["labels"], outputs, [texts[0]])[0]
    return card["labels"], answer


def readable(labels: Sequence[str], answer: dict[str, Any]) -> list[str]:
    """Returns an answer in lines for people: classes and entities, or each output by name."""
    if "entities" in answer:
        rows = [(e["score"], f"{e['type']}  {e['text']}") for e in answer["entities"]]
    elif labels:
        rows = sorted(zip(answer["probabilities"], labels, strict=True), reverse=True)
    else:
        return [f"{name}: {json.dumps(v, ensure_ascii=False)}" for name, v in answer.items()]
    return [f"{probability:7.2%}  {name}" for probability, name in rows] or ["no entity"]


def name_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the program's arguments with those that stand alone as flags."""
    program, *given = arguments
    names = iter(("saved_model", "text", "second_text"))
    return [program, *(a if a.startswith("--") else f"--{next(names, '')}={a}" for a in given)]


if __name__ == "__main__":
    # Not when the module is imported: another program may have flags of the same names.
    config_flags.define_flags(AskConfig)
    sys.argv = name_arguments(sys.argv)
    config_flags.run(main)
