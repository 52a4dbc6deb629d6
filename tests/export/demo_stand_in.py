"""A model of any kind for the demo whose answers are made up, and depend on the texts."""

import base64
import contextlib
import re
import threading

import numpy as np

from export.demo import listen
from export.page import server

LABELS = {
    "classifier": ["calm", "<b>wild</b>"],
    "multi_label": ["calm", "<b>wild</b>", "old"],
    "tagger": ["O", "B-PER", "I-PER", "B-<i>LOC</i>", "I-<i>LOC</i>"],
}
INPUTS = {
    "question_answering": ["question", "context"],
    "next_sentence": ["text", "text_b"],
    "reranker": ["query", "documents"],
    "zero_shot": ["text", "candidates"],
    "search": ["query"],
}
MORE = {
    "classifier": {"long_texts": "head"},
    "multi_label": {"long_texts": "head"},
    "regression": {"long_texts": "head"},
    "embeddings": {
        "prompt": "",
        "query_prompt": "",
        "document_prompt": "",
        "lower_case_texts": False,
    },
    "fill_mask": {"mask": "[MASK]"},
    "question_answering": {
        "version_2": True,
        "null_score_diff_threshold": 0.0,
        "doc_stride": 128,
        "max_query_length": 64,
        "n_best_size": 20,
        "max_answer_length": 30,
    },
    "reranker": {"lists": ["documents"], "activation": "sigmoid"},
    "zero_shot": {
        "lists": ["candidates"],
        "template": "This example is {}.",
        "classes": ["entailment", "neutral", "contradiction"],
        "long_texts": "head",
    },
    "search": {"numbers": {"k": 2}, "documents": 2, "store": "float32", "rerank_k": 0},
}
ENTITIES = (("Ada Lovelace", "PER"), ("Paris", "<i>LOC</i>"))
LAYERS, HEADS = 2, 3
FAILING = "fail"


@contextlib.contextmanager
def serving(model):
    """Serves a model in a thread; gives the port."""
    with listen("127.0.0.1", 0) as listener:
        running = server.make_server(model, "127.0.0.1")
        thread = threading.Thread(target=running.run, args=[[listener]])
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


class StandIn:
    """Answers as `DemoModel` does; the text `FAILING` is one that it cannot take."""

    def __init__(self, kind="classifier"):
        self.kind, self.inputs = kind, INPUTS.get(kind, ["text"])

    def card(self):
        numbers = {"num_layers": LAYERS, "num_heads": HEADS, "hidden_size": 32, "vocab_size": 80}
        return {
            **numbers,
            **MORE.get(self.kind, {}),
            "kind": self.kind,
            "inputs": self.inputs,
            "labels": LABELS.get(self.kind, []),
            "max_seq_length": 64,
            "do_lower_case": True,
            "name": "stand-in <i>1</i>",
            "samples": dict.fromkeys(self.inputs, "Ada Lovelace saw [MASK] in Paris."),
        }

    def answer(self, inputs):
        texts = inputs[self.inputs[-1]]
        if FAILING in texts:
            raise ValueError("This text <b>cannot</b> be taken; give another.")
        outputs = make_outputs(self.kind, texts)
        return {"outputs": outputs, "is_full": [False] * len(texts), "milliseconds": 1.5}

    def rewrite(self, inputs):
        return {"text": inputs["text"][0].replace("Paris", "Rome")}

    def attention(self, inputs):
        """Head h of layer l gives 1 / (1 + l + h) to the piece itself, the rest to the first."""
        every = [piece for name in self.inputs for piece in inputs[name][0].split()]
        pieces = every[:60]
        values = np.zeros([LAYERS, HEADS, len(pieces), len(pieces) + (len(every) > 60)], "<f4")
        for layer, head, row in np.ndindex(values.shape[:3]):
            values[layer, head, row, row] = 1 / (1 + layer + head)
            values[layer, head, row, 0] += 1 - 1 / (1 + layer + head)
        return {
            "pieces": pieces,
            "num_pieces": len(every),
            "shape": list(values.shape),
            "probabilities": base64.b64encode(values.tobytes()).decode(),
            "head": [1, 1],
        }


def make_outputs(kind, texts):
    """Returns the outputs of a kind for texts, of most kinds for the first alone."""
    text, pieces = texts[0], texts[0].split()
    match kind:
        case "classifier":
            label, *shares = ("calm", 0.75, 0.25) if "calm" in text else ("<b>wild</b>", 0.25, 0.75)
            return {"label": [label], "score": [max(shares)], "probabilities": [shares]}
        case "multi_label":
            shares = [0.625, 0.75, 0.25]
            return {"labels": [["<b>wild</b>", "calm", ""]], "probabilities": [shares]}
        case "zero_shot":
            count = len(texts)
            shares = [(index + 1) / (count * (count + 1) / 2) for index in range(count)]
            outputs = {"label": [texts[-1]], "score": [shares[-1]], "probabilities": [shares]}
            return {**outputs, "several_probabilities": [[0.25, *[0.75] * (count - 1)]]}
        case "regression":
            return {"value": [2.5]}
        case "tagger":
            return make_entities(text)
        case "question_answering":
            start = text.find("Paris")
            found = ("Paris", start, start + 5, -1.25) if start >= 0 else ("", -1, -1, 1e6)
            names = ("answer", "start", "end", "null_odds")
            return {
                **{n: [v] for n, v in zip(names, found, strict=True)},
                "score": [3.5],
                "probability": [0.75],
            }
        case "fill_mask":
            return make_masks(text)
        case "next_sentence":
            return {"is_next": [0.25]}
        case "reranker":
            order = list(range(len(texts)))[::-1]
            return {"scores": [[place / 8 for place in range(len(texts))]], "order": [order]}
        case "search":
            found = {"ids": [["<i>d</i>", "e"]], "scores": [[0.75, 0.5]], "rows": [[7, 2]]}
            return {**found, "texts": [[text, "Other words; PARIS."]]}
        case "embeddings":
            similarity = np.eye(len(texts)).tolist()
            return {"embedding": [[1.0, 0.0]] * len(texts), "similarity": similarity}
        case "encoder":
            ids, similarity = list(range(len(pieces))), np.eye(len(pieces)).tolist()
            outputs = {"input_word_ids": [ids], "input_mask": [ids], "pieces": [pieces]}
            return {**outputs, "sequence_output": [], "similarity": [similarity]}


def make_entities(text):
    found = [(name, tag, text.find(name)) for name, tag in ENTITIES]
    entities = [
        {"type": tag, "start": at, "end": at + len(name), "text": name, "score": 0.875}
        for name, tag, at in found
    ]
    parts = {"words": "text", "tags": "type", "starts": "start", "ends": "end"}
    outputs = {key: [[e[part] for e in entities]] for key, part in parts.items()}
    return {**outputs, "scores": [[0.875, 0.875]], "entities": [entities]}


def make_masks(text):
    count = text.count("[MASK]")
    place = text.find("Paris")
    word = {"start": place, "end": place + 5, "probability": 0.001, "alternative": "Rome"}
    filled = {"text": re.sub(r"\[(MASK|GAP:.*?)\]", "sea", text), "share": 0.5}
    has_hole = filled["text"] != text
    return {
        "pieces": [[["river", "##s", " sea"]] * count],
        "probabilities": [[[0.5, 0.25, 0.125]] * count],
        "fillings": [filled] if has_hole else [],
        "words": [] if has_hole or place < 0 else [word],
    }
