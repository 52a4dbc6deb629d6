"""The table of features against the published formats."""

import numpy as np

from bert_tf.corpus import features

# google-research/bert create_pretraining_data.py (v1), Model Garden use_v2_feature_names (v2).
V1_TO_V2 = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
    "masked_lm_positions": "masked_lm_positions",
    "masked_lm_ids": "masked_lm_ids",
    "masked_lm_weights": "masked_lm_weights",
    "next_sentence_labels": "next_sentence_labels",
}


def test_names_are_those_of_the_published_formats():
    assert {f.file_name: f.name for f in features.MASKED_FEATURES} == V1_TO_V2
    unmasked = [name for name in V1_TO_V2 if not name.startswith("masked_lm")]
    assert [f.file_name for f in features.STORED[False]] == unmasked


def test_only_the_weights_are_floats():
    floats = [f.name for f in features.MASKED_FEATURES if f.dtype == np.float32]
    assert floats == [f.name for f in features.MASKED_FEATURES if f.file_dtype == np.float32]
    assert floats == ["masked_lm_weights"]


def test_a_batch_has_every_feature_and_the_weight_of_its_label():
    names = [f.name for f in features.MASKED_FEATURES]
    assert list(features.PretrainingBatch.__annotations__) == [*names, "next_sentence_weights"]
