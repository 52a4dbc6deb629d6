"""The model card beside Hugging Face's files, read by huggingface_hub's own parser."""

import dataclasses
import pathlib
import re

import huggingface_hub
import pytest

from bert_tf.checkpoints.checkpoint import embedding_of
from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference.model_card import base_model, write_model_card
from tests import programs
from tests.export.made_models import write_model

RUN = {
    "task_name": "sst-2",
    "init_checkpoint": "hf://google-bert/bert-base-uncased@v1",
    "train_file": "/home/ada/secret/train.tsv",
    "learning_rate": "2e-05",
    "num_train_epochs": "3.0",
}
RESULTS = """\
# Evaluated: /home/ada/secret/dev.tsv
eval_accuracy = 0.9151376146788991
eval_f1 = 0.9
eval_loss = 0.25
global_step = 6315
"""


def write_card(folder: pathlib.Path, kind: str, run: dict[str, str] | None, results: str = ""):
    """Makes a run, its Hugging Face folder and the card; returns the card."""
    made = write_model(folder / "run", kind, run, hidden_act="gelu_tanh", layer_norm_eps=1e-12)
    if results:
        (made / "eval_results.txt").write_text(results)
    output = folder / "mine"
    write_model_card(
        output, write_checkpoint(read_checkpoint(made), output, "huggingface"), str(made)
    )
    return huggingface_hub.ModelCard.load(output / "README.md")


def test_a_card_says_what_the_run_recorded(tmp_path):
    card = write_card(tmp_path, "classifier", RUN, RESULTS)
    data = card.data.to_dict()
    assert data["pipeline_tag"] == "text-classification" and data["library_name"] == "transformers"
    assert data["base_model"] == "google-bert/bert-base-uncased"
    assert data["datasets"] == ["nyu-mll/glue"]
    accuracy, f1 = card.data.eval_results
    assert (accuracy.metric_type, accuracy.metric_value) == ("accuracy", 0.915138)
    assert accuracy.dataset_type == "nyu-mll/glue" and accuracy.dataset_name == "GLUE SST-2"
    assert accuracy.task_type == "text-classification" and f1.metric_value == 0.9
    assert card.data.model_name == "mine"
    text = card.text
    assert "| accuracy | 0.9151 |" in text and " 6,315 steps" in text
    assert "| learning rate | 2e-05 |" in text and "`vielleicht ü`" in text
    assert "secret" not in card.content and "ada" not in card.content


def test_a_card_of_pre_training_shows_the_baseline(tmp_path):
    results = "global_step = 40\nmasked_lm_accuracy = 0.5\nunigram_masked_lm_accuracy = 0.075\n"
    numbers = {"train_minutes": "60.0", "num_train_steps": "0", "warmup_proportion": "0.05"}
    flags = {"input_file": "/a/b/*.txt", "num_warmup_steps": "0", **numbers}
    card = write_card(tmp_path, "fill_mask", flags, results)
    assert "| train minutes | 60.0 |" in card.text and "| warmup proportion | 0.05 |" in card.text
    assert "num train steps" not in card.text and "num warmup steps" not in card.text
    assert re.search(r"\| .*accuracy.*\| 0\.5000 \| 0\.0750 \|", card.text)
    assert "pieces" not in card.text
    assert card.data.pipeline_tag == "fill-mask"
    assert card.data.eval_results[0].dataset_name == "held-out text"
    assert "| training data | *.txt |" in card.text


def test_a_card_of_a_bare_checkpoint_is_one_too(tmp_path):
    card = write_card(tmp_path, "tagger", None)
    assert card.data.eval_results is None and card.data.pipeline_tag == "token-classification"
    assert "## Results" not in card.text and "## Training" not in card.text
    assert "windows" in card.text


def test_a_card_of_an_embedder_says_how_it_embeds(tmp_path):
    embedding = EmbeddingConfig(("cls",), normalize=True, max_seq_length=24)
    made = read_checkpoint(write_model(tmp_path / "run", "embeddings"))
    made = dataclasses.replace(made, embedding=embedding)
    written = write_checkpoint(made, tmp_path / "mine", "huggingface")
    write_model_card(tmp_path / "mine", written, str(tmp_path / "run"))
    text = (tmp_path / "mine" / "README.md").read_text()
    assert 'bert_tf.load("mine", "embeddings")' in text and " 24 tokens" in text
    assert re.search("`embedder.json` .*cls, .*length 1", text)
    assert embedding_of(read_checkpoint(tmp_path / "mine")) == embedding


def test_what_a_model_comes_from():
    assert base_model("", "hf://org/name@v1") == "org/name"
    assert base_model("runs/x", "keras_hub://bert") is None


KINDS = ("classifier", "multi_label", "regression", "tagger", "question_answering", "embeddings")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "fill_mask"])
def test_what_a_card_says_of_loading_is_so(tmp_path, monkeypatch, kind, capsys):
    made = tmp_path / "run"
    runs = {"multi_label": {"problem_type": "multi_label"}}
    runs["regression"] = {"text_b_column": "b", "problem_type": "regression"}
    write_model(made, kind, runs.get(kind, {}), max_position_embeddings=128)
    output = tmp_path / "mine"
    done = programs.run("convert_checkpoint", input=made, output=output, to="huggingface")
    assert "mine/README.md: " in programs.finish(done)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall("```python\n(.*?)```", (output / "README.md").read_text(), re.DOTALL)
    exec(blocks[0], {})
    assert capsys.readouterr().out.startswith("[")
