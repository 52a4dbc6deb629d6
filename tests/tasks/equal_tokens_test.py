"""Texts that differ in spelling but not in their tokens: no negatives of each other."""

import numpy as np

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.embedding.examples import read_embedding_columns
from bert_tf.tasks.embedding.features import TextPacker, prepare_training
from bert_tf.tasks.reranking.examples import read_ranking_columns
from bert_tf.tasks.reranking.features import training_rows
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from tests.tiny_model import tiny_words

TOKENIZER = make_tokenizer(Vocab(tiny_words("the", "cat", "dog")), do_lower_case=True)


def groups_of(*columns):
    packer = TextPacker(TOKENIZER, EmbeddingConfig(max_seq_length=8))
    examples = read_embedding_columns(columns, None)
    return prepare_training(packer, examples, RetrieverConfig(num_negatives=1), True)[0].rows


def test_a_batch_has_equal_texts_once():
    groups = groups_of(["a", "b", "c"], ["the cat", "The CAT", "the dog"])
    batches = [set(batch.tolist()) for batch in groups.evaluation_plan(2)]
    assert not any({0, 1} <= batch for batch in batches)
    assert sorted(np.concatenate([list(batch) for batch in batches])) == [0, 1, 2]


def test_a_negative_that_equals_its_positive_is_left_out():
    groups = groups_of(["a", "b"], ["the cat", "dog"], ["THE cat", "cat"])
    documents, _ = groups.documents(np.array([0, 1]), 0)
    assert (documents[:, 1] < 0).tolist() == [True, False]


def test_an_irrelevant_document_that_equals_a_relevant_one_is_left_out():
    lists = [["the cat", "The Cat", "dog"]], [[1, 0, 0]]
    examples = read_ranking_columns((["a"], lists[0]), lists[1], "listnet")
    rows = training_rows(examples, TOKENIZER, 16, "listnet", 8)
    assert rows.num_choices == 2
