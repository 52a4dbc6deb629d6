"""Tables of rules: they name fields that their programs have, and refuse what they exclude."""

import pytest

from bert_tf.config import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainingConfigs,
    TrainingConfig,
)
from bert_tf.config.fine_tuning_config import ClassifierConfig, FineTuningConfig
from bert_tf.config.flag_rules import MODEL_RULES, PRETRAINING_RULES
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.config.rules import Exclusion, Rule, check_rules, is_set
from bert_tf.tasks.base.programs.program import Configs
from bert_tf.tasks.classification.inputs import CLASSIFIER_RULES
from bert_tf.tasks.embedding.inputs import RETRIEVER_RULES

SHARED = (ModelConfig, DataConfig, OptimizerConfig, TrainingConfig, FineTuningConfig)
TABLES = [
    (PRETRAINING_RULES, PretrainingConfigs, tuple(PretrainingConfigs.__annotations__.values())),
    (MODEL_RULES, Configs, (*SHARED, ClassifierConfig)),
    (CLASSIFIER_RULES, Configs, (*SHARED, ClassifierConfig)),
    (RETRIEVER_RULES, Configs, (*SHARED, RetrieverConfig)),
]


@pytest.mark.parametrize(("rules", "groups", "classes"), TABLES)
def test_rules_name_fields_of_their_program(rules, groups, classes) -> None:
    configs = groups(*(each() for each in classes))
    for rule in rules:
        if isinstance(rule, Exclusion):
            for setting in (rule.setting, *rule.others.split()):
                is_set(configs, setting)  # A name that no group has is a KeyError.
        else:
            rule.is_broken(configs)
            assert rule.message.format(c=configs)


def test_an_exclusion_names_both_flags_with_their_values() -> None:
    rules = [Exclusion("num_workers", "is alone", "use_next_sentence=false short_seq_prob")]
    check_rules(rules, [DataConfig(use_next_sentence=False)])
    check_rules(rules, [DataConfig(num_workers=3)])
    with pytest.raises(ValueError, match=r"--num_workers=3 .*--short_seq_prob=0.5"):
        check_rules(rules, [DataConfig(num_workers=3, short_seq_prob=0.5)])
    with pytest.raises(ValueError, match="--num_workers=3 .*--pairs"):
        check_rules(rules, [DataConfig(num_workers=3, use_next_sentence=False)])


@pytest.mark.parametrize(
    ("model", "training", "named"),
    [
        ({}, {}, "attention_probs_dropout_prob is 0.1"),
        ({"position_type": "relative"}, {}, "position_type is relative"),
        ({}, {"precision": "float32"}, "--precision=float32"),
        ({}, {"pack_rows": True}, "--pack_rows=true"),
        ({}, {"jit_compile": False}, "--jit_compile=false"),
    ],
)
def test_what_fused_attention_cannot_do(model, training, named) -> None:
    has_dropout = "dropout" in named
    fields = {"attention_probs_dropout_prob": 0.1 if has_dropout else 0.0, **model}
    options = {"attention": "fused", "precision": "mixed_bfloat16"}
    configs = Configs(*(each() for each in (*SHARED, ClassifierConfig)))
    configs = configs._replace(model=ModelConfig(**fields))
    with pytest.raises(ValueError, match=f"--attention=fused .*{named}"):
        check_rules(MODEL_RULES, configs._replace(training=TrainingConfig(**options | training)))
    check_rules(MODEL_RULES, configs._replace(training=TrainingConfig(**training)))


@pytest.mark.parametrize("given", [{"use_tpu": True}, {"distribution": "tpu"}])
def test_a_field_refuses_its_conflicts(given) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=f"pack_rows .*{name}"):
        TrainingConfig(pack_rows=True, **given)
    TrainingConfig(pack_rows=True, distribution="mirrored")


def test_the_first_broken_rule_is_reported() -> None:
    rules = [
        Rule(lambda c: c.vocab_size < 7, "not broken"),
        Rule(lambda c: c.vocab_size > 7, "--vocab_size={c.vocab_size} is above 7"),
        Rule(lambda c: True, "later"),
    ]
    with pytest.raises(ValueError, match="--vocab_size=8"):
        check_rules(rules, ModelConfig(vocab_size=8))
    check_rules(rules[:2], ModelConfig(vocab_size=7))
