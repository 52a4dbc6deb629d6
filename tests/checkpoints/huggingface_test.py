"""Hugging Face's folders: the golden outputs of a real one, its own classes, damaged files."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.inference.conversion import outputs_of
from bert_tf.network.encoder import BertEncoder
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.text.wordpiece import WordPiece
from tests.checkpoints.made_checkpoint import (
    assert_same,
    edit,
    make_batch,
    make_checkpoint,
    rewrite,
)
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.shared_data import golden_file, read_arrays, shared_data


def write(tmp_path, purpose="pretrained", seed=0, **changes):
    """Writes a random model; returns it and its folder."""
    made = make_checkpoint(purpose, seed, **changes)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    return made, tmp_path / "model"


# A real model, and what transformers computes with it.


@pytest.fixture(name="rxnfp", scope="module")
def fixture_rxnfp() -> pathlib.Path:
    return shared_data("weights", "rxnfp-bert-pretrained")


@pytest.mark.needs(data="weights/rxnfp-bert-pretrained")
def test_real_model_gives_the_golden_outputs(rxnfp):
    golden = read_arrays(golden_file("rxnfp-hf-golden.npz"))
    model = BertPretrainer.from_pretrained(rxnfp)
    assert model.config.hidden_act == "gelu_exact"
    ids = golden["in_input_ids"]
    batch = {
        "input_word_ids": ids,
        "input_mask": golden["in_attention_mask"],
        "input_type_ids": golden["in_token_type_ids"],
        "masked_lm_positions": np.tile(np.arange(ids.shape[1]), (len(ids), 1)),
    }
    check_golden(model, batch, golden)
    # With more padding nothing changes at the places that were there before.
    wider = {name: np.pad(value, ((0, 0), (0, 13))) for name, value in batch.items()}
    wider["input_word_ids"][:, ids.shape[1] :] = 7
    wider["masked_lm_positions"] = batch["masked_lm_positions"]
    check_golden(model, wider, golden)


def check_golden(model, batch, golden):
    encoded, outputs = model.bert(batch), model(batch)
    real = golden["in_attention_mask"].astype(bool)
    length = real.shape[1]
    received = {
        "out_last_hidden_state": np.asarray(encoded["sequence_output"])[:, :length][real],
        "out_pooler_output": np.asarray(encoded["pooled_output"]),
        "out_prediction_logits": np.asarray(outputs["masked_lm_logits"])[real],
        "out_seq_relationship_logits": np.asarray(outputs["next_sentence_logits"]),
    }
    expected = {
        name: value[real] if value.ndim == 3 else value
        for name, value in golden.items()
        if name in received
    }
    assert set(expected) == set(received)
    for name, value in expected.items():
        assert_close(received[name], value, OTHER_FRAMEWORK, err_msg=name)


@pytest.mark.needs(data="weights/rxnfp-bert-pretrained")
def test_real_model_round_trips_to_the_bit(rxnfp, tmp_path):
    write_checkpoint(read_checkpoint(rxnfp), tmp_path / "again", "huggingface")
    before = safetensors.numpy.load_file(rxnfp / "model.safetensors")
    after = safetensors.numpy.load_file(tmp_path / "again" / "model.safetensors")
    tied = before.pop("cls.predictions.decoder.weight")
    np.testing.assert_array_equal(tied, before["bert.embeddings.word_embeddings.weight"])
    assert set(after) == set(before)
    for name, value in before.items():
        assert value.tobytes() == after[name].tobytes() and value.shape == after[name].shape
    assert (tmp_path / "again" / "vocab.txt").read_text() == (rxnfp / "vocab.txt").read_text()
    config = json.loads((rxnfp / "config.json").read_text())
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    same = {"hidden_act", "hidden_size", "layer_norm_eps", "num_attention_heads", "vocab_size"}
    assert {key: written[key] for key in same} == {key: config[key] for key in same}


# Forms of the files.


def shard(folder: pathlib.Path) -> None:
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number in range(3):
        name = f"model-{number + 1:05}-of-00003.safetensors"
        part = {key: weights[key] for key in sorted(weights)[number::3]}
        safetensors.numpy.save_file(part, folder / name)
        weight_map |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_are_put_together(tmp_path):
    made, folder = write(tmp_path)
    shard(folder)
    assert_same(read_checkpoint(folder), made)
    index = folder / "model.safetensors.index.json"
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="model-00002-of-00003"):
        read_checkpoint(folder)
    edit(index, weight_map={"bert.embeddings.word_embeddings.weight": "../x.safetensors"})
    with pytest.raises(ValueError, match="index.json: .*'../x.safetensors'"):
        read_checkpoint(folder)
    index.write_text("{}")
    with pytest.raises(ValueError, match="index.json: .*weight_map"):
        read_checkpoint(folder)


def test_old_names_copies_and_buffers(tmp_path):
    made, folder = write(tmp_path)

    def as_in_2019(weights):
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): value
            for name, value in weights.items()
        }
        return {
            **renamed,
            "bert.embeddings.position_ids": np.arange(5)[None],
            "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"],
            "cls.predictions.decoder.bias": weights["cls.predictions.bias"],
        }

    rewrite(folder, as_in_2019)
    assert_same(read_checkpoint(folder), made)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_widened(tmp_path, dtype):
    made, folder = write(tmp_path)
    kind = tf.dtypes.as_dtype(dtype).as_numpy_dtype
    rewrite(folder, lambda weights: {k: v.astype(kind) for k, v in weights.items()})
    received = read_checkpoint(folder)
    assert received.notes == (f"Weights stored as {dtype} were converted to float32.",)
    for name, value in made.weights.items():
        np.testing.assert_array_equal(received.weights[name], value.astype(kind).astype("float32"))


def test_a_word_table_longer_than_its_vocabulary(tmp_path):
    made, folder = write(tmp_path, vocab_size=64)
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(lines[:60]) + "\n")
    (folder / "tokenizer.json").unlink()
    received = read_checkpoint(folder)
    received.check()
    assert received.vocab.tokens[58:] == (*lines[58:60], "[row60]", "[row61]", "[row62]", "[row63]")
    assert "4 rows" in received.notes[0]


def test_classifier_weight_is_told_by_class_or_pooler(tmp_path):
    for purpose in ("classifier", "tagger"):
        made, folder = write(tmp_path / purpose, purpose)
        edit(folder / "config.json", architectures=None)
        assert_same(read_checkpoint(folder), made)


def test_labels_without_names_are_not_recorded(tmp_path):
    _, folder = write(tmp_path, "classifier")
    assert read_checkpoint(folder).labels == ("no", "yes", "vielleicht ü")
    edit(folder / "config.json", id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
    assert read_checkpoint(folder).labels == ()
    for wrong in (["a"], {"x": "a"}):
        edit(folder / "config.json", id2label=wrong)
        with pytest.raises(ValueError, match="config.json: id2label"):
            read_checkpoint(folder)
    edit(folder / "config.json", id2label={"0": "a", "1": "b"})
    with pytest.raises(ValueError, match="2 labels.*3"):
        read_checkpoint(folder).check()


def test_problem_type_is_transformers_own(tmp_path):
    """Its pipeline takes the sigmoid of each score for the first, no function for the second."""
    names = {"multi_label_classification": "multi_label", "regression": "regression", None: ""}
    names |= {"single_label_classification": "single_label"}
    for name, kind in names.items():
        made, folder = write(tmp_path / kind, "classifier", num_hidden_layers=1)
        assert "problem_type" not in json.loads((folder / "config.json").read_text())
        edit(folder / "config.json", problem_type=name)
        received = read_checkpoint(folder)
        assert received.problem_type == kind
        if kind in ("single_label", "multi_label"):
            write_checkpoint(received, tmp_path / kind / "again", "huggingface")
            config = json.loads((tmp_path / kind / "again" / "config.json").read_text())
            assert config["problem_type"] == name
        else:
            outputs = outputs_of(received, received.config, received.config)
            assert outputs["classifier_logits"].shape == (2, 3)
    made, folder = write(tmp_path / "tagger", "tagger")
    edit(folder / "config.json", problem_type="multi_label_classification")
    assert read_checkpoint(folder).problem_type == ""


# Files that are damaged or lie.


def test_damaged_safetensors_and_types_that_numpy_lacks(tmp_path):
    _, folder = write(tmp_path)
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, 100, -10):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="model.safetensors.*safetensors file"):
            read_checkpoint(folder)
    for kind, message in {"F8_E5M2": "bfloat16 .*float8_e5m2", "X9": "`X9`"}.items():
        entry = {"a": {"dtype": kind, "shape": [4], "data_offsets": [0, 4]}}
        header = json.dumps(entry).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(ValueError, match=f"model.safetensors .*{message}"):
            read_checkpoint(folder)


def test_configurations_that_are_not_berts(tmp_path):
    _, folder = write(tmp_path)
    good = (folder / "config.json").read_text()
    for values, message in (
        (
            {"model_type": "roberta"},
            "model_type .*'roberta',.*'bert'",
        ),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder .*True"),
        ({"hidden_act": "mish"}, "hidden_act .*'mish',"),
        ({"pruned_heads": {"0": [1]}}, r"pruned_heads .*\{'0': \[1\]\}"),
        ({"num_attention_heads": 7, "hidden_size": 12}, "hidden_size 12 .*num_attention_heads 7"),
        ({"vocab_size": 12}, r"word_embeddings \[\d+, 20\] .*\[12, 20\]"),
        ({"hidden_act": []}, r"hidden_act .*\[\], .*'gelu'"),
        ({"architectures": "BertModel"}, "architectures .*'BertModel',"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps: .*nan,"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers: .*1000000, .*1000"),
        ({"hidden_size": "wide"}, "hidden_size: .*int, .*'wide'"),
    ):
        edit(folder / "config.json", **values)
        with pytest.raises(ValueError, match=message):
            read_checkpoint(folder).check()
        (folder / "config.json").write_text(good)


def test_an_untied_decoder_is_refused(tmp_path):
    _, folder = write(tmp_path)

    def untie(weights):
        table = weights["bert.embeddings.word_embeddings.weight"]
        return {**weights, "cls.predictions.decoder.weight": table + 1}

    rewrite(folder, untie)
    with pytest.raises(
        ValueError, match="cls.predictions.decoder.weight .*bert.embeddings.word_embeddings.weight"
    ):
        read_checkpoint(folder)


def test_unknown_weights_stop_the_load(tmp_path):
    _, folder = write(tmp_path)
    rewrite(folder, lambda weights: {**weights, "bert.adapter.weight": np.zeros(3, np.float32)})
    for allow_unexpected in ((), ["bert.other"], "bert.other"):
        with pytest.raises(ValueError, match=r"\(1\): bert.adapter.*--allow_unexpected"):
            BertEncoder.from_pretrained(folder, allow_unexpected=allow_unexpected)
    BertEncoder.from_pretrained(folder, allow_unexpected=["bert.adapter"])
    BertEncoder.from_pretrained(folder, allow_unexpected="bert.adapter")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.astype(np.int8), "/model: .*int8"),
        (lambda value: np.full_like(value, np.nan), r"\(1\): cls/seq_relationship/output_bias"),
    ],
)
def test_weights_that_are_no_numbers(tmp_path, change, message):
    _, folder = write(tmp_path)
    name = "cls.seq_relationship.bias"
    rewrite(folder, lambda weights: {**weights, name: change(weights[name])})
    with pytest.raises(ValueError, match=message):
        read_checkpoint(folder).check()


def test_two_heads_that_share_a_name_are_refused(tmp_path):
    made = make_checkpoint("classifier")
    tagger = {
        name.replace("classifier", "tagger"): value
        for name, value in made.weights.items()
        if "classifier" in name
    }
    both = dataclasses.replace(made, weights={**made.weights, **tagger})
    with pytest.raises(ValueError, match="huggingface.*cls/tagger"):
        write_checkpoint(both, tmp_path / "both", "huggingface")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("by", ["tokenizer.json", "added_tokens.json"])
def test_added_tokens_keep_their_rows(tmp_path, by):
    made, folder = write(tmp_path, vocab_size=70, do_lower_case=True)
    lines = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(lines[:66]) + "\n")
    added = {"covid": 66, "sars": 68}
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["vocab"] = {line: index for index, line in enumerate(lines[:66])}
    if by == "tokenizer.json":
        values["added_tokens"] += [{"content": key, "id": i} for key, i in added.items()]
    else:
        (folder / by).write_text(json.dumps(added))
    (folder / "tokenizer.json").write_text(json.dumps(values))
    received = read_checkpoint(folder)
    assert received.vocab.tokens[64:] == (*lines[64:66], "covid", "[row67]", "sars", "[row69]")
    added_tokens = received.vocab.options.added_tokens
    assert [token.content for token in added_tokens] == ["covid", "sars"]
    assert WordPiece(received.vocab, True).encode("Covid") == [66]


# The other side: transformers on PyTorch loads what we write and computes the same.


@pytest.fixture(name="transformers", scope="module")
def fixture_transformers():
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


CLASSES = {
    "pretrained": ("BertForPreTraining", BertPretrainer),
    "masked_lm": ("BertForMaskedLM", BertPretrainer),
    "classifier": ("BertForSequenceClassification", BertClassifier),
    "tagger": ("BertForTokenClassification", BertTokenClassifier),
    "squad": ("BertForQuestionAnswering", BertSpanLabeler),
    "encoder with pooler": ("BertModel", BertEncoder),
}


@pytest.mark.needs("torch", "transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("purpose", CLASSES)
def test_transformers_computes_the_same(transformers, tmp_path, purpose, seed):
    torch = pytest.importorskip("torch")

    name, ours = CLASSES[purpose]
    made, folder = write(tmp_path, purpose, seed)
    batch = make_batch(made.config, np.random.default_rng(seed))
    theirs, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad():
        expected = theirs.eval()(
            input_ids=torch.tensor(batch["input_word_ids"], dtype=torch.long),
            attention_mask=torch.tensor(batch["input_mask"], dtype=torch.long),
            token_type_ids=torch.tensor(batch["input_type_ids"], dtype=torch.long),
        )
    every = np.tile(np.arange(batch["input_mask"].shape[1]), (3, 1))
    result = ours.from_pretrained(folder)({**batch, "masked_lm_positions": every})
    pairs = {
        "prediction_logits": "masked_lm_logits",
        "seq_relationship_logits": "next_sentence_logits",
        "logits": "masked_lm_logits",
        "start_logits": "start_logits",
        "end_logits": "end_logits",
        "last_hidden_state": "sequence_output",
        "pooler_output": "pooled_output",
    }
    real, compared = batch["input_mask"].astype(bool), 0
    for key, value in expected.items():
        received = np.asarray(result[pairs[key]] if isinstance(result, dict) else result)
        value = value.numpy()
        if value.shape[:2] == real.shape:  # Places without a text may hold anything.
            received, value = received[real], value[real]
        assert_close(received, value, OTHER_FRAMEWORK, err_msg=key)
        compared += 1
    assert compared == {"pretrained": 2, "squad": 2, "encoder with pooler": 2}.get(purpose, 1)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.filterwarnings("ignore")
def test_what_transformers_writes_is_read(transformers, tmp_path):
    torch = pytest.importorskip("torch")

    torch.manual_seed(0)
    made, folder = write(tmp_path, "classifier")
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    model.save_pretrained(tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(tmp_path / "theirs")
    received = read_checkpoint(tmp_path / "theirs")
    assert_same(received, made)
    torch.save(model.state_dict(), tmp_path / "theirs" / "pytorch_model.bin")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    assert_same(read_checkpoint(tmp_path / "theirs"), made)


def encode(made, text):
    ids = WordPiece(made.vocab, made.config.do_lower_case).encode(text)
    return [made.vocab.cls_id, *ids, made.vocab.sep_id]


TEXTS = ("the river ab don't", "The RIVER été 中a", "")


@pytest.mark.parametrize("seed", [0, 1])
def test_tokenizer_json_splits_the_same(tmp_path, seed):
    tokenizers = pytest.importorskip("tokenizers")
    made, folder = write(tmp_path, "encoder", seed, vocab_size=70)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in (*TEXTS, "a" * 150):
        assert tokenizer.encode(text).ids == encode(made, text)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1])
def test_tokenizer_of_transformers_splits_the_same(transformers, tmp_path, seed):
    made, folder = write(tmp_path, "encoder", seed, vocab_size=70)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:  # It takes no heed of max_input_chars_per_word.
        assert tokenizer(text)["input_ids"] == encode(made, text)
    pair = tokenizer("the", "ab")
    expected = [0, 0, 0, *[1] * (len(encode(made, "ab")) - 1)]
    # A table of one row has no type of a second text.
    assert pair.get("token_type_ids") == (expected if made.config.type_vocab_size > 1 else None)
    assert tokenizer.model_max_length == made.config.max_position_embeddings
