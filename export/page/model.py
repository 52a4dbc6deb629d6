"""The model behind the demo's page: metadata, answers and attention, as JSON values.

An answer has the outputs of TensorFlow Serving for the same inputs, and values that only the page
needs: tags joined to entities, similarities of vectors, the names of tokens.
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
from bert_tf.corpus.unspaced_text import word_spans
from bert_tf.inference.kinds import KINDS
from bert_tf.inference.serving_models import load
from bert_tf.pretraining.masked_words.gap_filling import GAP, MaskedModel, fill_text
from bert_tf.pretraining.masked_words.scores import rewrite, score_words
from bert_tf.search.serving import SearchServing
from bert_tf.tasks.base.serving.model import Serving
from bert_tf.tasks.tagging.answers import entities_of_outputs
from bert_tf.text.kinds import encode_with_masks
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import MASK
from export.page.attention_view import find_clear_head, find_encoder, view_attention

MAX_TEXTS = 32
MAX_CHARACTERS = 10_000
NUM_FILLINGS = 3
MAX_SCORED = 128  # Longest text whose words are scored, in tokens; each needs a call of the model.
MAX_ROUNDS = 3  # rounds of rewriting
SAMPLE_WORDS = 10  # words in the sample query of a search
NAMES = (
    "Ada Lovelace met Charles Babbage in London in June 1833. "
    "Years later she wrote about his engine for Taylor's Scientific Memoirs."
)
SAMPLES = {
    "tagger": [NAMES],
    "question_answering": ["Where did Ada meet Babbage?", NAMES],
    "fill_mask": ["The capital of France is [MASK], a city on the [MASK] Seine."],
    "next_sentence": ["She opened the old wooden door.", "Behind it lay a room full of books."],
    "zero_shot": [
        "The team won the cup after a goal in the last minute.",
        "sport\npolitics\nscience",
    ],
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

WITHOUT_PAGE = ("late_interaction", "splade")


def load_model(
    model_dir: str, kind: str = "", max_seq_length: int = 0, **options: Any
) -> "DemoModel":
    """Loads a model, and answers its samples in advance, as the first call is slow."""
    serving = load(model_dir, kind, max_seq_length, **options)
    if serving.kind in WITHOUT_PAGE:
        raise ValueError(
            f"{model_dir} is served as {serving.kind}, which has no page; give --kind."
        )
    name = options.get("index") or model_dir
    model = DemoModel(serving, pathlib.Path(name).resolve().name, in_graph=True)
    request = {}
    for text_name, text in model.card()["samples"].items():
        # The sample of a list has one text on each line.
        request[text_name] = text.split("\n") if text_name in serving.lists else [text]
    model.answer(request)
    return model


class DemoModel:
    """A model behind the demo; not thread-safe.

    Args:
      name: name of the model, for display.
      in_graph: whether to compute answers in a graph, which is faster after the first call.
    """

    def __init__(self, serving: Serving, name: str = "", in_graph: bool = False) -> None:
        self.kind = serving.kind
        self._serving = serving
        self._name = name
        self._masked: MaskedModel | None = None  # created when it is first needed
        self._answer = serving.from_texts
        if in_graph:
            self._answer = serving.text_signatures()["serving_default"]

    def card(self) -> dict[str, Any]:
        """Returns the metadata that the page needs before the first text."""
        config = find_encoder(self._serving.model).config
        samples = SAMPLES.get(self.kind, SAMPLE)
        if isinstance(self._serving, SearchServing) and self._serving.document_texts is not None:
            samples = [sample_query(self._serving.document_texts[0].numpy().decode())]
        return {
            **self._serving.card(),
            "name": self._name,
            "num_layers": config.num_hidden_layers,
            "num_heads": config.num_attention_heads,
            "hidden_size": config.hidden_size,
            "samples": dict(zip(self._serving.texts, samples, strict=False)),
        }

    def answer(self, inputs: object) -> dict[str, Any]:
        """Answers a batch of texts.

        Args:
          inputs: for each input name a list of texts, all of the same length.

        Returns:
          `outputs` by name; `is_full`, whether each example has the maximum number of tokens; and
          `milliseconds`.

        Raises:
          ValueError: if the inputs have another form, or are too many or too long.
        """
        serving = self._serving
        columns = check_inputs(inputs, serving.texts, serving.lists)
        tensors = list(map(tf.constant, columns))
        arguments = []
        for name, tensor in zip(serving.texts, tensors, strict=True):
            # A list of texts is one example: [1, N].
            arguments.append(tensor[tf.newaxis] if name in serving.lists else tensor)
        # Numbers, such as k of a search, have their sample values.
        arguments += list(map(tf.constant, serving.numbers.values()))
        start = time.perf_counter()
        outputs = {name: value.numpy() for name, value in self._answer(*arguments).items()}
        milliseconds = 1000 * (time.perf_counter() - start)
        is_full = [False] * len(columns[0])
        # Windows cover the whole text, so no text is cut.
        if not KINDS[self.kind].reads_windows:
            rows = max(map(len, columns))
            # The query of a reranker is repeated for each document.
            repeated = [tf.repeat(t, rows // len(c)) for t, c in zip(tensors, columns, strict=True)]
            lengths = tf.reduce_sum(serving.pack(*repeated)["input_mask"], axis=1)
            is_full = (lengths == serving.max_seq_length).numpy().tolist()
        return {
            "outputs": as_json({**outputs, **self._for_page(outputs, columns[0])}),
            "is_full": is_full,
            "milliseconds": round(milliseconds, 2),
        }

    def attention(self, inputs: object) -> dict[str, Any]:
        """Computes the attention of all heads for one text or pair; see `answer` for errors.

        Returns:
          `pieces`, `num_pieces`, `shape` [L, N, T, S] and `probabilities`, float32, little-endian,
          in base64, see `AttentionView`; and `head`, the layer and head to show first.
        """
        columns = check_inputs(inputs, self._serving.texts)
        if len(columns[0]) != 1:
            raise ValueError(f"Received {len(columns[0])} texts; attention is shown for one.")
        view = view_attention(self._serving, [text for (text,) in columns])
        values = view.probabilities.astype("<f4").tobytes()
        return {
            "pieces": view.pieces,
            "num_pieces": view.num_pieces,
            "shape": list(view.probabilities.shape),
            "probabilities": base64.b64encode(values).decode("ascii"),
            "head": find_clear_head(view),
        }

    def rewrite(self, inputs: object) -> dict[str, Any]:
        """Rewrites one text with more likely words.

        Returns:
          `text`, unchanged if there are no more likely words.

        Raises:
          ValueError: see `answer`; for another kind, and for texts with masks or too long texts.
        """
        if self.kind != "fill_mask":
            raise ValueError(
                f"This model is serving as {self.kind}; only fill_mask rewrites texts."
            )
        (texts,) = check_inputs(inputs, self._serving.texts)
        masked = self._filler()
        limit = min(MAX_SCORED, self._serving.max_seq_length)
        if len(texts) != 1 or len(masked.row(texts[0])) > limit:
            raise ValueError(f"Give one text of at most {limit - 2} tokens to rewrite.")
        return {"text": [*texts, *rewrite(masked, texts[0], MAX_ROUNDS)][-1]}

    def _filler(self) -> MaskedModel:
        if self._masked is None:
            tokenizer = make_tokenizer(self._serving.vocab, self._serving.do_lower_case)
            self._masked = MaskedModel(self._serving.model, tokenizer)
        return self._masked

    def _for_page(self, outputs: dict[str, Any], texts: list[str]) -> dict[str, Any]:
        """Returns values that the page shows in addition to the outputs, or instead of them."""
        if self.kind == "tagger":
            return {"entities": entities_of_outputs(self._serving.labels, outputs, texts)}
        if self.kind == "embeddings":
            return {"similarity": cosines(outputs["embedding"])}
        if self.kind == "fill_mask":
            return self._fill_or_score(texts[0])
        if self.kind != "encoder":
            return {}
        masks = outputs["input_mask"].astype(bool)
        tokens = np.array(self._serving.vocab.token_texts())
        names = []
        similarities = []
        for ids, vectors, mask in zip(
            outputs["input_word_ids"], outputs["sequence_output"], masks, strict=True
        ):
            names.append(tokens[ids[mask]])  # [t]
            similarities.append(cosines(vectors[mask]))  # [t, t]
        return {
            "pieces": names,
            "similarity": similarities,
            "sequence_output": [],  # The page does not need these megabytes.
        }

    def _fill_or_score(self, text: str) -> dict[str, Any]:
        """Fills in the masks and gaps of a text jointly, or computes how likely its words are.

        Returns:
          `fillings`, dicts of `text` and `share`, the best first; `words`, dicts of `start`, `end`,
          `probability` and `alternative`, of the known words of a text without mask or gap.
        """
        masked = self._filler()
        # Two special tokens.
        length = 2 + len(encode_with_masks(masked.tokenizer, text))
        if length > self._serving.max_seq_length:
            return {"fillings": [], "words": []}
        if GAP.search(text) or MASK in text:
            fillings = []
            for filling in fill_text(masked, text, NUM_FILLINGS):
                fillings.append({"text": filling.text, "share": filling.share})
            return {"fillings": fillings, "words": []}
        # Each token needs a call of the model.
        if not 2 < length <= MAX_SCORED:
            return {"fillings": [], "words": []}
        words = []
        for word in score_words(masked, text):
            if not word.is_known:
                continue
            values = {
                "start": word.start,
                "end": word.end,
                "probability": math.exp(word.log_probability),
                "alternative": word.alternative,
            }
            words.append(values)
        return {"fillings": [], "words": words}


def sample_query(text: str) -> str:
    """Returns a query that matches a document: the beginning of its first sentence."""
    sentence = next(iter(split_sentences(text)), text)
    words = word_spans(sentence)
    if len(words) <= SAMPLE_WORDS:
        return sentence
    return sentence[: words[SAMPLE_WORDS - 1][1]]


def check_inputs(
    inputs: object, names: Sequence[str], lists: Sequence[str] = ()
) -> list[list[str]]:
    """Returns the columns of a request in the order of the names.

    Args:
      inputs: the inputs of the request.
      names: names of the columns.
      lists: names of the columns with several texts per example; the request has one example then.

    Raises:
      ValueError: if the inputs have another form, or are too many or too long.
    """
    if not isinstance(inputs, dict) or set(inputs) != set(names):
        raise ValueError(f"Expected the inputs {' and '.join(names)}, each a list of texts.")
    columns = [inputs[name] for name in names]
    for name, column in zip(names, columns, strict=True):
        if not isinstance(column, list) or not all(isinstance(text, str) for text in column):
            raise ValueError(f"{name} is not a list of texts; expected a list such as ['A text.'].")
        is_one = lists and name not in lists
        is_uneven = len(column) != (1 if is_one else len(columns[0])) and name not in lists
        if not 0 < len(column) <= MAX_TEXTS or is_uneven:
            limit = "1" if is_one else f"1 .. {MAX_TEXTS}, as many for each input"
            raise ValueError(f"{name} has {len(column)} texts; expected {limit}.")
        longest = max(map(len, column))
        if longest > MAX_CHARACTERS:
            raise ValueError(f"{name} has {longest} characters; expected at most {MAX_CHARACTERS}.")
    return columns


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosines of all pairs of vectors, float32 [V, D]: [V, V]."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    return unit @ unit.T


def as_json(value: Any) -> Any:
    """Returns arrays as nested lists, bytes as str, and numbers that are not finite as None."""
    if isinstance(value, np.ndarray | np.generic):
        # The list may contain bytes and numbers that are not finite, which JSON lacks.
        return as_json(value.tolist())
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(as_json, value))
    if isinstance(value, bytes):
        return value.decode("utf8", errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
