"""Static embedders made of encoders, against the files that model2vec wrote and against NumPy."""

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.checkpoints.static_embeddings import TABLE
from bert_tf.checkpoints.static_tokenizer import rows_of_tokens
from bert_tf.tasks.embedding.static_distillation import distill, project, sif_weights
from tests.float_bounds import OTHER_FRAMEWORK, assert_close
from tests.programs import fail, finish, run
from tests.shared_data import golden_file, read_arrays, shared_data
from tests.tiny_model import write_tiny_model


def test_vectors_and_tokens_are_those_of_model2vec(tmp_path):
    folder = shared_data("fixtures", "families", "static_embeddings")
    golden = read_arrays(folder / "model2vec" / "golden.npz")
    expected = safetensors.numpy.load_file(folder / "model2vec" / "model.safetensors")
    made = distill(read_checkpoint(folder / "teacher"), dimension=12)
    rows = rows_of_tokens(made.vocab)
    assert [made.vocab.tokens[row] for row in rows] == golden["in_token_texts"].tolist()
    assert_close(made.weights[TABLE][rows], expected["embeddings"], OTHER_FRAMEWORK)
    weights = sif_weights(len(rows), 1e-4)
    assert_close(weights, golden["out_sif_weights"], OTHER_FRAMEWORK)


def test_components_are_those_of_a_singular_value_decomposition():
    vectors = np.random.default_rng(1).normal(size=[50, 7]) * np.arange(1, 8)
    centred = vectors - vectors.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    components = project(vectors.astype(np.float32), 3)
    # The sign of a component is free in the decomposition.
    assert_close(np.abs(components), np.abs(left * values)[:, :3], OTHER_FRAMEWORK)
    assert (components.max(axis=0) == np.abs(components).max(axis=0)).all()


@pytest.mark.parametrize("family", ["xlm_roberta", pytest.param("roberta", marks=pytest.mark.slow)])
def test_a_vector_is_that_of_the_token_between_special_tokens(family, tmp_path):
    folder = golden_file("families", family, "masked_lm")
    teacher = read_checkpoint(folder)
    made = distill(teacher, dimension=0, sif_coefficient=0.0)
    vocab = teacher.vocab
    kept = [made.vocab.tokens[row] for row in rows_of_tokens(made.vocab)]
    assert set(vocab.tokens) - set(kept) >= {vocab.cls, vocab.sep, vocab.mask}
    assert {vocab.pad, vocab.unk} <= set(kept)
    encoder = bert_tf.BertEncoder.from_pretrained(folder, use_pooler=False)
    for token in kept[5:200:40]:
        ids = np.array([[vocab.cls_id, vocab.ids[token], vocab.sep_id]])
        inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
        expected = encoder(inputs)["sequence_output"].numpy()[0].mean(axis=0)
        row = made.weights[TABLE][made.vocab.ids[token]]
        assert_close(row, expected, OTHER_FRAMEWORK)


@pytest.mark.slow
def test_the_program_writes_a_folder_that_embeds(tmp_path):
    model = write_tiny_model(tmp_path / "model", "cat", "cats", "mat")
    given = {"init_checkpoint": model, "dimension": 8}
    finish(run("distill_static", output_dir=tmp_path / "static", **given))
    vectors = bert_tf.load(tmp_path / "static").encode(["cat mat", "mat cat", ""])
    assert vectors.shape == (3, 8)
    assert_close(vectors[0], vectors[1])  # The order of tokens has no effect.
    assert not vectors[2].any()
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("query,positive\n" + "cat,cats\nmat,a mat\nb,c\nx,y\n" * 2)
    training = {"train_file": pairs, "train_batch_size": 4, "num_train_epochs": 3}
    training |= {"learning_rate": 0.1, "matryoshka_dims": "8,4"}
    folder = tmp_path / "run"
    finish(
        run(
            "run_retriever",
            "--do_train",
            init_checkpoint=tmp_path / "static",
            output_dir=folder,
            **training,
        )
    )
    trained = bert_tf.load(folder)
    assert trained.encode(["cat"]).shape == (1, 8)
    assert not np.allclose(trained.encode(["cat"]), vectors[:1])
    assert "output_dir" in fail(run("distill_static", init_checkpoint=model))
    assert "static" in fail(run("distill_static", output_dir=tmp_path / "static", **given))
    given["dimension"] = 33  # Of 32.
    assert "33" in fail(run("distill_static", output_dir=tmp_path / "other", **given))
    given = {"init_checkpoint": tmp_path / "static"}
    assert "encoder" in fail(run("distill_static", output_dir=tmp_path / "again", **given))
