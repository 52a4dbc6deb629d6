"""A server whose metadata or answers are not those of TensorFlow Serving: one clear error each."""

import copy

import numpy as np
import pytest

from export.serving_client import ClientConfig, ServingClient, answer_rows, ask, read_input
from export.serving_rest import RestTransport, ServingError

TEXT = {"dtype": "DT_STRING", "tensor_shape": {"dim": [{"size": "-1"}]}}
FLOATS = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "2"}]}}
OUTPUTS = {"label": TEXT, "probabilities": FLOATS}
SIGNATURES = {"serving_default": {"inputs": {"text": TEXT}, "outputs": OUTPUTS}}
VERSIONS = [{"version": "1", "state": "AVAILABLE", "status": {"error_message": ""}}]
ANSWER = {"label": ["a", "b"], "probabilities": [[0.5, 0.5], [1, 0]]}


class OddServer:
    """Answers with what a test gives it, in the place of HTTP."""

    def __init__(self) -> None:
        self.versions = VERSIONS
        self.signatures = copy.deepcopy(SIGNATURES)
        self.answer = {"outputs": ANSWER}

    def ask(self, _, method, url, body=None):
        if method == "POST":
            return self.answer
        if url.endswith("/metadata"):
            return {"metadata": {"signature_def": {"signature_def": self.signatures}}}
        return {"model_version_status": self.versions}


@pytest.fixture
def server(monkeypatch):
    odd = OddServer()
    monkeypatch.setattr(RestTransport, "_ask", lambda *given: odd.ask(*given))
    return odd


def predict():
    with ServingClient("http://127.0.0.1:1", "made-up") as client:
        return client.predict({"text": ["x", "y"]})


def test_right_answers_are_taken(server) -> None:
    found = predict()
    assert found["label"] == ["a", "b"]
    assert found["probabilities"].dtype == np.float32
    assert found["probabilities"].tolist() == [[0.5, 0.5], [1.0, 0.0]]
    server.answer = {"outputs": {**ANSWER, "label": [{"b64": "w6k="}, "b"]}}
    assert predict()["label"] == ["é", "b"]


ODD_OUTPUTS = [
    *([], 7, None, {"label": ["a", "b"]}),
    *({**ANSWER, "label": value} for value in (["a", 5], None, [{"b64": "a"}, "b"])),
    *({**ANSWER, "probabilities": value} for value in ([[0.5], [1, 2]], {})),
]


@pytest.mark.parametrize("outputs", ODD_OUTPUTS)
def test_odd_outputs_are_refused(server, outputs) -> None:
    server.answer = {"outputs": outputs}
    with pytest.raises(ServingError, match="127.0.0.1"):
        predict()


@pytest.mark.parametrize("label", ["ab", ["a"]])
def test_outputs_without_a_row_for_each_text_are_refused(server, label) -> None:
    server.answer = {"outputs": {**ANSWER, "label": label}}
    with ServingClient("http://127.0.0.1:1", "made-up") as client:
        with pytest.raises(ServingError, match="Rows 1 to 2: label"):
            list(answer_rows(client, ["x", "y"], 2))


ODD_SIGNATURES = [
    *([], None, {"serving_default": 7}),
    {"serving_default": {"inputs": {"text": {"dtype": 7}}, "outputs": OUTPUTS}},
]


@pytest.mark.parametrize("signatures", ODD_SIGNATURES)
def test_odd_metadata_are_refused(server, signatures) -> None:
    server.signatures = signatures
    with pytest.raises(ServingError, match="127.0.0.1"):
        predict()
    with pytest.raises(ServingError, match="127.0.0.1"):
        ask(ClientConfig("http://127.0.0.1:1", "made-up"), {})


@pytest.mark.parametrize("versions", [7, [{"status": 7}]])
def test_odd_versions_are_refused(server, versions) -> None:
    server.versions = versions
    with pytest.raises(ServingError, match="127.0.0.1"):
        ask(ClientConfig("http://127.0.0.1:1", "made-up"), {})


@pytest.mark.parametrize("value", ["5", '"a"', '"w6k=\\u001b"', "null", '["w6k="]'])
def test_odd_bytes_of_an_input_file_are_refused(tmp_path, value) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"examples": {{"b64": "w6k="}}}}\n{{"examples": {{"b64": {value}}}}}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_input(str(path))
