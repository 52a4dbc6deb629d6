"""Configuration of the objective of pre-training."""

import dataclasses
import functools

from bert_tf.config.distillation import TeacherConfig
from bert_tf.config.fields import option

OBJECTIVE_NAMES = (
    "masked_lm",
    "masked_diffusion",
    "permuted_lm",
    "masked_permuted_lm",
    "replaced_tokens",
)
# Objectives that predict the tokens in an order, in rows of one text; and the vectors that each
# target has besides those of the text.
ORDERED_OBJECTIVES = {"permuted_lm": 1, "masked_permuted_lm": 2}
EMBEDDING_SHARINGS = ("full", "gradient_disentangled")
# Fields of ELECTRA's objective, and of learning from a teacher.
of_electra = functools.partial(
    option, needs=("objective", "replaced_tokens"), within="objective_options"
)
of_teacher = functools.partial(option, within="teacher_options")


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(TeacherConfig):
    """The objective of pre-training."""

    objective: str = option(
        "masked_lm",
        "masked_lm: BERT's; masked_diffusion: the same with any share of a text masked; "
        "permuted_lm: XLNet's, which predicts the tokens one after the other in a random order; "
        "masked_permuted_lm: MPNet's, the same with [MASK] at the tokens that come later; "
        "replaced_tokens: ELECTRA's, in which a small generator fills in masks and the encoder "
        "detects the replaced tokens.",
        choices=OBJECTIVE_NAMES,
    )
    generator_hidden_size: float = of_electra(
        0.25,
        "Width of the generator as a fraction of the encoder's width, at most 1.",
        lower=0.01,
    )
    generator_layers: float = of_electra(
        1.0,
        "Layers of the generator as a fraction of the encoder's layers.",
        lower=0.01,
        upper=1.0,
    )
    discriminator_weight: float = of_electra(
        50.0,
        "Weight of the replaced-token loss relative to the generator's loss.",
        lower=0.0,
    )
    embedding_sharing: str = of_electra(
        "full",
        "full: generator and discriminator share the embeddings; gradient_disentangled: the "
        "discriminator adds a learned difference to the generator's tables, which learn from the "
        "generator's loss alone (DeBERTaV3).",
        choices=EMBEDDING_SHARINGS,
    )
    electra_reference_sampling: bool = of_electra(
        False,
        "Draw positions with replacement, as google-research/electra does: a token may be drawn "
        "twice, and if its replacements differ, the input is the mean of their ids.",
    )
    hidden_weight: float = of_teacher(
        0.0,
        "With a teacher as wide as the student: weight of 1 - cosine of both models' last hidden "
        "states (DistilBERT).",
        lower=0.0,
        needs=("teacher",),
    )
    relation_weight: float = of_teacher(
        0.0,
        "Weight of the loss to the teacher's attention relations (MiniLMv2); widths may differ.",
        lower=0.0,
        needs=("teacher",),
    )
    relation_heads: int = of_teacher(
        0,
        "Relation heads that queries, keys and values are split into; 0: heads of 16 numbers in "
        "the teacher.",
        lower=0,
        needs=("relation_weight",),
    )
    teacher_layer: int = of_teacher(
        0,
        "Layer of the teacher whose relations are learned, counted from 1; 0: the last layer.",
        lower=0,
        needs=("relation_weight",),
    )

    def check(self) -> None:
        super().check()
        if self.generator_hidden_size > 1:
            raise ValueError(
                f"generator_hidden_size {self.generator_hidden_size:g} makes the generator wider "
                "than the discriminator, whose embeddings it shares; give at most 1."
            )
        self.check_needs(("hidden_weight", "relation_weight"))
        weights = (self.teacher_weight, self.hidden_weight, self.relation_weight)
        if self.teacher and not any(weights):
            raise ValueError(
                "--teacher is given, but teacher_weight, hidden_weight and relation_weight are all "
                "0."
            )
