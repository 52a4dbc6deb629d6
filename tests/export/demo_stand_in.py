"""A model of any kind for the demo whose answers are made up, and depend on the texts."""

import base64

import numpy as np

LABELS = {
    "classifier": ("calm", "<b>wild</b>"),
    "multi_label": ("calm", "<b>wild</b>", "old"),
    "tagger": ("O", "B-PER", "I-PER", "B-<i>LOC</i>", "I-<i>LOC</i>"),
}
INPUTS = {
    "question_answering": ("question", "context"),
    "next_sentence": ("text", "text_b"),
}
NAME, PLACE = "Ada Lovelace", "Paris"
LAYERS, HEADS = 2, 3
FAILING = "fail"


class StandIn:
    """Answers as `DemoModel` does.

    Finds `NAME` and `PLACE` as entities, `PLACE` as the answer of every question, and puts
    "river" and "##s" into masks. The text `FAILING` is one that it cannot take.
    """

    def __init__(self, kind: str) -> None:
        self.kind, self.inputs = kind, INPUTS.get(kind, ("text",))
        self.labels = LABELS.get(kind, ())

    def card(self):
        return {
            "kind": self.kind,
            "inputs": list(self.inputs),
            "labels": list(self.labels),
            "max_seq_length": 64,
            "do_lower_case": True,
            "vocab_size": 80,
            "name": "stand-in <i>1</i>",
            "num_layers": LAYERS,
            "num_heads": HEADS,
            "hidden_size": 32,
            "samples": dict.fromkeys(self.inputs, "Ada Lovelace saw [MASK] in Paris."),
            "max_texts": 32,
            "max_characters": 10_000,
        }

    def answer(self, inputs):
        texts = inputs[self.inputs[-1]]
        if FAILING in texts:
            raise ValueError("This text <b>cannot</b> be taken; give another.")
        outputs = getattr(self, self.kind)(texts)
        return {"outputs": outputs, "is_full": [False] * len(texts), "milliseconds": 1.5}

    def classifier(self, texts):
        shares = [0.75, 0.25] if "calm" in texts[0] else [0.125, 0.875]
        label = self.labels[int(np.argmax(shares))]
        return {"label": [label], "score": [max(shares)], "probabilities": [shares]}

    def multi_label(self, texts):
        return {"labels": [["<b>wild</b>", "calm", ""]], "probabilities": [[0.625, 0.75, 0.25]]}

    def regression(self, texts):
        return {"value": [2.5]}

    def tagger(self, texts):
        entities, words = [], []
        for name, kind in ((NAME, "PER"), (PLACE, "<i>LOC</i>")):
            start = texts[0].find(name)
            if start >= 0:
                part = {"start": start, "end": start + len(name), "text": name}
                entities.append({"type": kind, **part, "score": 0.875})
                words += [(name, f"B-{kind}", start, start + len(name), 0.875)]
        columns = [list(column) for column in zip(*words, strict=True)] or [[]] * 5
        names = ("words", "tags", "starts", "ends", "scores")
        return {**{n: [c] for n, c in zip(names, columns, strict=True)}, "entities": [entities]}

    def question_answering(self, texts):
        start = texts[0].find(PLACE)
        end = start + len(PLACE) if start >= 0 else -1
        answer = PLACE if start >= 0 else ""
        places = {"answer": [answer], "start": [start], "end": [end]}
        return {**places, "score": [3.5], "null_odds": [-1.25 if answer else 1e6]}

    def fill_mask(self, texts):
        count = texts[0].count("[MASK]")
        return {
            "pieces": [[["river", "##s"]] * count],
            "probabilities": [[[0.5, 0.25]] * count],
        }

    def next_sentence(self, texts):
        return {"is_next": [0.25]}

    def embeddings(self, texts):
        count = len(texts)
        return {"embedding": [[1.0, 0.0]] * count, "similarity": np.eye(count).tolist()}

    def encoder(self, texts):
        pieces = texts[0].split()
        return {
            "sequence_output": [],
            "input_word_ids": [list(range(len(pieces)))],
            "input_mask": [[1] * len(pieces)],
            "pieces": [pieces],
            "similarity": [np.eye(len(pieces)).tolist()],
        }

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
            "milliseconds": 1.0,
        }
