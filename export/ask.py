"""Queries an exported text model, without a server.

    python -m export.ask serving/sst2/1 "A fine film."
    python -m export.ask serving/sst2/1 "A fine film." "A dull one." "Neither."
    python -m export.ask serving/squad/1 "Where did they meet?" "They met in London."
    python -m export.ask serving/notes/1 "What to search."

A model of pairs takes two texts per request, one after the other. The likeliest class comes first;
--json prints the outputs by name, as a server would send them, one request per line.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_tf.config import Config, config_flags, option
from bert_tf.system.printable import escaped, json_line, show

MORE_TEXTS = "more_texts"


@dataclasses.dataclass(frozen=True)
class AskConfig(Config):
    """Flags of this program; the first three can be given without names, in this order."""

    saved_model: str = option(
        "", "Folder of a version, such as serving/sst2/1; its parent: the newest version."
    )
    text: str = option("", "The text; or the question, or what to search.")
    second_text: str = option(
        "",
        "The second text of a pair; the context of a question; or a reranker's documents or "
        "candidate labels, one on each line. For a model of single texts: another text.",
    )
    json: bool = option(False, "Print all outputs by name, one JSON object per request.")


def main(_: list[str]) -> None:
    config = config_flags.from_flags(AskConfig)
    given = config_flags.given(AskConfig)
    texts = [given[name] for name in ("text", "second_text") if name in given]
    texts += flags.FLAGS[MORE_TEXTS].value or []
    if not config.saved_model or not texts:
        raise ValueError('Give a model and a text: python -m export.ask serving/sst2/1 "A text."')
    model = ExportedModel(pathlib.Path(config.saved_model).expanduser())
    requests = model.split(texts)
    for number, request in enumerate(requests):
        answer = model.answer(request)
        if config.json:
            show(json_line(answer))
            continue
        lines = readable(model.labels_of(request), answer)
        if len(requests) > 1:
            title = "  ".join(map(escaped, request))
            lines = [*[""] * (number > 0), title, *(f"  {line}" for line in lines)]
        show("\n".join(lines))


class ExportedModel:
    """A SavedModel of texts.

    Args:
      folder: folder of a version, or of the model, whose newest version is used.

    Attributes:
      names: names of the texts of a request.
      labels: names of the classes; [] for a model without classes.

    Raises:
      ValueError: if there is no SavedModel of texts.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        from bert_tf.tasks.base.serving.saved_models import (
            find_saved_model,
            load_signatures,
            read_card,
        )

        found = find_saved_model(folder)
        if found is None:
            raise ValueError(
                f"{folder} has no saved_model.pb; give a folder such as serving/sst2/1."
            )
        self._folder = found
        self._card = read_card(found)
        self.names: list[str] = self._card["inputs"]
        self.labels: list[str] = self._card["labels"]
        self._signature = load_signatures(found, self._card)["serving_default"]

    def split(self, texts: Sequence[str]) -> list[Sequence[str]]:
        """Splits a list of texts into requests.

        Raises:
          ValueError: if a request lacks a text.
        """
        count = len(self.names)
        if len(texts) % count:
            raise ValueError(
                f"{self._folder} takes {' and '.join(self.names)} for each request; received "
                f"{len(texts)} texts."
            )
        return [texts[first : first + count] for first in range(0, len(texts), count)]

    def labels_of(self, texts: Sequence[str]) -> list[str]:
        """Returns the names of an answer's probabilities: classes, or a request's candidates."""
        if self._card["kind"] == "zero_shot":
            return texts[self.names.index("candidates")].split("\n")
        return self.labels

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        """Returns the outputs for one request by name.

        For a tagger, `entities` are its tagged words joined to entities.

        Raises:
          ValueError: if the model takes more or fewer texts.
        """
        import tensorflow as tf

        from bert_tf.tasks.base.serving.saved_models import call_signature
        from bert_tf.tasks.tagging.answers import entities_of_outputs
        from export.page.model import as_json

        if len(texts) != len(self.names):
            raise ValueError(
                f"{self._folder} takes {' and '.join(self.names)}; received {len(texts)} of them."
            )
        # Documents of a reranker and candidates are given as one text, one per line.
        lists = self._card.get("lists", [])
        inputs = {
            name: tf.constant([text.split("\n") if name in lists else text])
            for name, text in zip(self.names, texts, strict=True)
        }
        numbers = self._card.get("numbers", {})
        inputs |= {name: tf.constant(value) for name, value in numbers.items()}
        found = call_signature(self._signature, inputs)
        outputs = {name: value.numpy() for name, value in found.items()}
        answer = {name: as_json(value[0]) for name, value in outputs.items()}
        if self._card["kind"] == "tagger":
            answer["entities"] = entities_of_outputs(self.labels, outputs, texts)[0]
        return answer


def readable(labels: Sequence[str], answer: dict[str, Any]) -> list[str]:
    """Returns an answer as lines of text: classes, entities, or each output by name."""
    if "entities" in answer:
        rows = []
        for entity in answer["entities"]:
            rows.append((entity["score"], f"{entity['type']}  {entity['text']}"))
    elif labels:
        rows = sorted(zip(answer["probabilities"], labels, strict=True), reverse=True)
    else:
        return [f"{name}: {json.dumps(v, ensure_ascii=False)}" for name, v in answer.items()]
    return [f"{probability:7.2%}  {name}" for probability, name in rows] or ["no entity"]


def name_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the program's arguments, with positional arguments turned into flags."""
    program, *given = arguments
    names = iter(("saved_model", "text", "second_text"))
    named = [program]
    for argument in given:
        if not argument.startswith("--"):
            # The three names in order, then `MORE_TEXTS` for all further texts.
            argument = f"--{next(names, MORE_TEXTS)}={argument}"
        named.append(argument)
    return named


if __name__ == "__main__":
    # Not when the module is imported: another program may have flags of the same names.
    config_flags.define_flags(AskConfig)
    flags.DEFINE_multi_string(MORE_TEXTS, [], "Another text; may be given several times.")
    sys.argv = name_arguments(sys.argv)
    config_flags.run(main)
