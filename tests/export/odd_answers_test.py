"""A server whose metadata or answers are not those of TensorFlow Serving: one clear error each."""

import copy
import json

import numpy as np
import pytest

from export.client.protocol import ServingError
from export.client.rest import RestTransport
from export.client.rows import read_input
from export.serving_client import ClientConfig, ServingClient, ask
from tests.programs import fail, run

TEXT = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
FLOATS = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]}}
WHOLE = {"dtype": "DT_INT32", "tensor_shape": {"dim": [{"size": "-1"}]}}
OUTPUTS = {"label": TEXT, "probabilities": FLOATS, "start": WHOLE}
SIGNATURES = {"serving_default": {"inputs": {"text": TEXT}, "outputs": OUTPUTS}}
VERSIONS = [{"version": "1", "state": "AVAILABLE", "status": {"error_message": ""}}]
ANSWER = {"label": ["a", "b"], "probabilities": [[0.5, 0.5], [1, 0]], "start": [3, -1]}


class OddServer:
    """Answers with what a test gives it, in the place of HTTP."""

    def __init__(self) -> None:
        self.status = {"model_version_status": VERSIONS}
        self.signatures = copy.deepcopy(SIGNATURES)
        self.answer = json.dumps({"outputs": ANSWER})

    def ask(self, _, method, url, seconds, body=None):
        if method == "POST":
            return json.loads(self.answer)
        if url.endswith("/metadata"):
            return {"metadata": {"signature_def": {"signature_def": self.signatures}}}
        return self.status


@pytest.fixture
def server(monkeypatch):
    odd = OddServer()
    monkeypatch.setattr(RestTransport, "_ask", lambda *given, **named: odd.ask(*given, **named))
    return odd


def predict():
    with ServingClient("http://127.0.0.1:1", "made-up") as client:
        return client.predict({"text": ["x", "y"]})


def test_right_answers_are_taken(server) -> None:
    found = predict()
    assert found["label"] == ["a", "b"] and found["start"].tolist() == [3, -1]
    assert found["probabilities"].dtype == np.float32
    assert found["probabilities"].tolist() == [[0.5, 0.5], [1.0, 0.0]]
    server.answer = json.dumps({"outputs": {**ANSWER, "label": [{"b64": "w6k="}, "b"]}})
    assert predict()["label"] == ["é", "b"]


ODD_VALUES = {
    "probabilities": [
        *("[[NaN, 0.5], [1, 0]]", "[[Infinity, 0.5], [1, 0]]", "[[0.5, -Infinity], [1, 0]]"),
        *("[[1e999, 0.5], [1, 0]]", "[[1e300, 0.5], [1, 0]]", "[[null, 0.5], [1, 0]]"),
        *("[0.5, 0.5]", "[[[0.5, 0.5], [1, 0]]]", "[[0.5], [1]]", "[[0.5, 0.5], [1]]", "0.5"),
        *("[[0.5, 0.5]]", '[["0.5", "0.5"], ["1", "0"]]', "[[true, false], [true, false]]"),
        *('"text"', "{}", "null", "[[{}, 0.5], [1, 0]]", "[" * 90 + "1" + "]" * 90),
    ],
    "label": [
        *('[{"b64": "a"}, "b"]', '[{"b64": "====="}, "b"]', '[{"b64": 5}, "b"]'),
        *(
            '[{"b64": "w6k=", "more": 1}, "b"]',
            '[["a"], ["b"]]',
            '["a"]',
            '["a", 5]',
            '["a", null]',
        ),
        *('["a", ["b"]]', '"ab"', "{}", "null", '[{"b64": "w6\\u001b[2Jk="}, "b"]'),
    ],
    "start": [
        *("[3.5, -1]", "[3.0, 1.0]", '["3", "1"]', "[true, false]", "[4294967296, 1]"),
        *("[[3], [1]]", "[3]", "[null, 1]", "[1e5, 2]", f"[{10**30}, 1]", "[NaN, 1]"),
    ],
}
ODD_ANSWERS = [(name, value) for name, values in ODD_VALUES.items() for value in values]


@pytest.mark.parametrize(("name", "value"), ODD_ANSWERS)
def test_odd_outputs_are_refused(server, name, value) -> None:
    parts = {key: json.dumps(part) for key, part in ANSWER.items()} | {name: value}
    outputs = ", ".join(f'"{key}": {part}' for key, part in parts.items())
    server.answer = f'{{"outputs": {{{outputs}}}}}'
    with pytest.raises(ServingError, match=name) as caught:
        predict()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "answer", ['{"outputs": []}', '{"outputs": 7}', "{}", '{"outputs": {"label": ["a", "b"]}}']
)
def test_missing_outputs_are_refused(server, answer) -> None:
    server.answer = answer
    with pytest.raises(ServingError):
        predict()


ODD_SIGNATURES = [
    *([], 7, "text", None, {"serving_default": []}, {"serving_default": 7}),
    *({"serving_default": {"inputs": part, "outputs": OUTPUTS}} for part in ([], 7, "text", None)),
    *(
        {"serving_default": {"inputs": {"text": spec}, "outputs": OUTPUTS}}
        for spec in (
            *([], 7, None, {}, {"dtype": 7}, {"dtype": None, "tensor_shape": {}}),
            {"dtype": "DT_STRING", "tensor_shape": []},
            {"dtype": "DT_STRING", "tensor_shape": {"dim": {"size": 1}}},
            {"dtype": "DT_STRING", "tensor_shape": {"dim": [7]}},
            {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "many"}]}},
            {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": [1]}]}},
            {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": 1.5}]}},
            {"dtype": "DT_STRING", "tensor_shape": {"unknown_rank": "yes"}},
        )
    ),
]


@pytest.mark.parametrize("signatures", ODD_SIGNATURES)
def test_odd_metadata_are_refused(server, signatures) -> None:
    server.signatures = signatures
    with pytest.raises(ServingError, match="127.0.0.1"):
        predict()
    with pytest.raises(ServingError, match="127.0.0.1"):
        ask(ClientConfig("http://127.0.0.1:1", "made-up"), {})
    printed = fail(run("export.serving_client", server="http://127.0.0.1:1", model="m", text="a"))
    assert printed.count("\n") == 1


@pytest.mark.parametrize("status", [7, {}, [7], [None], [{"status": 7}], [{"status": [1]}], "x"])
def test_odd_versions_are_refused(server, status) -> None:
    server.status = {"model_version_status": status}
    with pytest.raises(ServingError, match="127.0.0.1"):
        ask(ClientConfig("http://127.0.0.1:1", "made-up"), {})


@pytest.mark.parametrize("value", ["5", '"a"', '"w6k=\\u001b"', "null", '["w6k="]'])
def test_odd_bytes_of_an_input_file_are_refused(tmp_path, value) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"examples": {{"b64": "w6k="}}}}\n{{"examples": {{"b64": {value}}}}}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_input(str(path))
