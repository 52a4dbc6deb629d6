"""What the demo's page asks of a model: its card, answers and attention, as JSON has them.

An answer is what TensorFlow Serving would send for the same inputs, with what only a page needs:
tags joined to entities, similarities of vectors, the names of pieces.
"""

import base64
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.corpus.sentences import split_sentences
from bert_tf.inference.serving_models import load
from bert_tf.search.serving import SearchServing
from bert_tf.search.words import word_spans
from bert_tf.serving.model import Serving
from bert_tf.tasks.masked_words.gap_filling import GAP, MaskedModel, fill_text
from bert_tf.tasks.masked_words.scores import rewrite, score_words
from bert_tf.tasks.tagging.answers import entities_of_outputs
from bert_tf.text.kinds import MASK, encode_with_masks, token_texts
from bert_tf.text.tokenization import make_tokenizer
from export.page.attention_view import find_clear_head, find_encoder, view_attention

MAX_TEXTS, MAX_CHARACTERS = 32, 10_000
NUM_FILLINGS = 3
MOST_SCORED = 128  # Pieces of a text whose words are scored: the model is called for each.
MOST_ROUNDS = 3  # Of rewriting.
SAMPLE_WORDS = 10  # of the sample query of a search
# They read texts of any length, in windows; the others cut them.
IN_WINDOWS = ("tagger", "question_answering")
NAMES = (
    "Ada Lovelace met Charles Babbage in London in June 1833. "
    "Years later she wrote about his engine for Taylor's Scientific Memoirs."
)
SAMPLES = {
    "tagger": [NAMES],
    "question_answering": ["Where did Ada meet Babbage?", NAMES],
    "fill_mask": ["The capital of France is [MASK], a city on the [MASK] Seine."],
    "next_sentence": ["She opened the old wooden door.", "Behind it lay a room full of books."],
    "reranker": [
        "What drifts down the river?",
        "A boat drifts down the river.\nInterest on loans went up.\nThe river is cold in spring.",
    ],
    "search": ["What drifts down the river?"],
    "embeddings": [
        "The boat drifts down the river.\nA ship sails along the stream.\n"
        "The bank raised its interest rates.\nInterest on loans went up."
    ],
}
SAMPLE = [
    "A quiet, warm film: the ending stayed with me for days.",
    "The film is warm, and its ending is hard to forget.",
]


def load_model(
    model_dir: str, kind: str = "", max_seq_length: int = 0, **options: Any
) -> "DemoModel":
    """Loads a model as `served.models.load` does, and answers its samples: a first call is slow."""
    served = load(model_dir, kind, max_seq_length, **options)
    name = options.get("index") or model_dir
    model = DemoModel(served, pathlib.Path(name).resolve().name, in_graph=True)
    samples = model.card()["samples"].items()
    model.answer({n: text.split("\n") if n in served.lists else [text] for n, text in samples})
    return model


class DemoModel:
    """A model behind the demo; for one thread at a time.

    Args:
      served: the model.
      name: of the model, for people.
      in_graph: compute answers in a graph: faster, after a first call that is slower.
    """

    def __init__(self, served: Serving, name: str = "", in_graph: bool = False) -> None:
        self.kind, self._served, self._name = served.kind, served, name
        self._masked: MaskedModel | None = None  # Made when it is first needed.
        in_python = served.from_texts
        self._answer = served.text_signatures()["serving_default"] if in_graph else in_python

    def card(self) -> dict[str, Any]:
        """Returns what the page needs to know before the first text."""
        config = find_encoder(self._served.model).config
        samples = SAMPLES.get(self.kind, SAMPLE)
        if isinstance(self._served, SearchServing) and self._served.document_texts is not None:
            samples = [sample_query(self._served.document_texts[0].numpy().decode())]
        return {
            **self._served.card(),
            "name": self._name,
            "num_layers": config.num_hidden_layers,
            "num_heads": config.num_attention_heads,
            "hidden_size": config.hidden_size,
            "samples": dict(zip(self._served.texts, samples, strict=False)),
        }

    def answer(self, inputs: Any) -> dict[str, Any]:
        """Answers a batch: for each text of a request its values, lists of one length.

        Returns:
          `outputs` by name; `is_full`, for each row whether no further piece would fit into it;
          `milliseconds`.

        Raises:
          ValueError: if the inputs are of another form, too many or too long.
        """
        served = self._served
        columns = check_inputs(inputs, served.texts, served.lists)
        tensors = [tf.constant(column) for column in columns]
        given = [
            tensor[tf.newaxis] if name in served.lists else tensor
            for name, tensor in zip(served.texts, tensors, strict=True)
        ]
        given += [tf.constant(number) for number in served.numbers.values()]
        begin = time.perf_counter()
        outputs = {name: value.numpy() for name, value in self._answer(*given).items()}
        milliseconds = 1000 * (time.perf_counter() - begin)
        is_full = [False] * len(columns[0])
        if self.kind not in IN_WINDOWS:
            rows = max(map(len, columns))  # A query stands before each document.
            repeated = [tf.repeat(t, rows // len(c)) for t, c in zip(tensors, columns, strict=True)]
            lengths = tf.reduce_sum(served.pack(*repeated)["input_mask"], axis=1)
            is_full = (lengths == served.max_seq_length).numpy().tolist()
        return {
            "outputs": as_json({**outputs, **self._for_page(outputs, columns[0])}),
            "is_full": is_full,
            "milliseconds": round(milliseconds, 2),
        }

    def attention(self, inputs: Any) -> dict[str, Any]:
        """Computes the attention of all heads for one text or one pair; raises as `answer` does.

        Returns:
          `pieces`, `num_pieces`, `shape` [L, N, T, S] and `probabilities`, float32, little-endian,
          in base64: see `AttentionView`; `head`, the layer and head to show first.
        """
        columns = check_inputs(inputs, self._served.texts)
        if len(columns[0]) != 1:
            raise ValueError(f"Received {len(columns[0])} rows; attention is shown of one.")
        view = view_attention(self._served, [text for (text,) in columns])
        values = view.probabilities.astype("<f4").tobytes()
        return {
            "pieces": view.pieces,
            "num_pieces": view.num_pieces,
            "shape": list(view.probabilities.shape),
            "probabilities": base64.b64encode(values).decode("ascii"),
            "head": find_clear_head(view),
        }

    def rewrite(self, inputs: Any) -> dict[str, Any]:
        """Rewrites one text with likelier words.

        Returns:
          `text`, the same if no likelier words are found.

        Raises:
          ValueError: as `answer` does, for another kind, and for a text with masks or too long.
        """
        if self.kind != "fill_mask":
            raise ValueError(f"This model is served as {self.kind}; it rewrites no texts.")
        (texts,) = check_inputs(inputs, self._served.texts)
        masked, most = self._filler(), min(MOST_SCORED, self._served.max_seq_length)
        if len(texts) != 1 or len(masked.row(texts[0])) > most:
            raise ValueError(f"One text of up to {most - 2} pieces is rewritten at once.")
        return {"text": [*texts, *rewrite(masked, texts[0], MOST_ROUNDS)][-1]}

    def _filler(self) -> MaskedModel:
        if self._masked is None:
            tokenizer = make_tokenizer(self._served.vocab, self._served.do_lower_case)
            self._masked = MaskedModel(self._served.model, tokenizer)
        return self._masked

    def _for_page(self, outputs: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        """Returns what the page shows beside the outputs, or instead of them."""
        if self.kind == "tagger":
            return {"entities": entities_of_outputs(self._served.labels, outputs, texts)}
        if self.kind == "embeddings":
            return {"similarity": cosines(outputs["embedding"])}
        if self.kind == "fill_mask":
            return self._fill_or_score(texts[0])
        if self.kind != "encoder":
            return {}
        masks = outputs["input_mask"].astype(bool)
        tokens = np.array(token_texts(self._served.vocab))
        return {
            "pieces": [
                tokens[ids[mask]]
                for ids, mask in zip(outputs["input_word_ids"], masks, strict=True)
            ],
            "similarity": [
                cosines(v[mask]) for v, mask in zip(outputs["sequence_output"], masks, strict=True)
            ],
            "sequence_output": [],  # Megabytes, which nobody reads.
        }

    def _fill_or_score(self, text: str) -> dict[str, Any]:
        """Fills in the masks and gaps of a text together, or says how likely its words are.

        Returns:
          `fillings`, dicts of `text` and `share`, the best first; `words`, dicts of `start`, `end`,
          `probability` and `alternative`, of the known words of a text without mask or gap.
        """
        served, masked = self._served, self._filler()
        length = 2 + len(encode_with_masks(masked.tokenizer, text))
        if length > served.max_seq_length:
            return {"fillings": [], "words": []}
        if GAP.search(text) or MASK in text:
            found = fill_text(masked, text, NUM_FILLINGS)
            fillings = [{"text": one.text, "share": one.share} for one in found]
            return {"fillings": fillings, "words": []}
        if not 2 < length <= MOST_SCORED:
            return {"fillings": [], "words": []}
        words = [
            {
                "start": word.start,
                "end": word.end,
                "probability": math.exp(word.log_probability),
                "alternative": word.alternative,
            }
            for word in score_words(masked, text)
            if word.is_known
        ]
        return {"fillings": [], "words": words}


def sample_query(text: str) -> str:
    """Returns a query that fits an indexed document: its first sentence, or the beginning of it."""
    sentence = next(iter(split_sentences(text)), text)
    words = word_spans(sentence)
    if len(words) <= SAMPLE_WORDS:
        return sentence
    return sentence[: words[SAMPLE_WORDS - 1][1]]


def check_inputs(inputs: Any, names: Sequence[str], lists: Sequence[str] = ()) -> list[list[str]]:
    """Returns the columns of a request in the order of the names.

    Args:
      inputs: of the request.
      names: of the columns.
      lists: names of those that hold several texts for one row, which is the request's only one.

    Raises:
      ValueError: if they are of another form, too many or too long.
    """
    if not isinstance(inputs, dict) or set(inputs) != set(names):
        raise ValueError(f"Expected the inputs {' and '.join(names)}, each a list of texts.")
    columns = [inputs[name] for name in names]
    for name, column in zip(names, columns, strict=True):
        if not isinstance(column, list) or not all(isinstance(text, str) for text in column):
            raise ValueError(f"{name} is no list of texts; expected one, as ['A text.'].")
        is_one = lists and name not in lists
        is_uneven = len(column) != (1 if is_one else len(columns[0])) and name not in lists
        if not 0 < len(column) <= MAX_TEXTS or is_uneven:
            limit = "1" if is_one else f"1 .. {MAX_TEXTS}, as many for each input"
            raise ValueError(f"{name} holds {len(column)} texts; expected {limit}.")
        longest = max(map(len, column))
        if longest > MAX_CHARACTERS:
            raise ValueError(f"{name} has {longest} characters; expected at most {MAX_CHARACTERS}.")
    return columns


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosine of the angle of each two of the vectors, float32 [V, D]: [V, V]."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    return unit @ unit.T


def as_json(value: Any) -> Any:
    """Returns arrays as nested lists, bytes as str, and None for what is not a finite number."""
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf8", errors="replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value
