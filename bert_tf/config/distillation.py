"""Configuration of the distillation from a teacher."""

import dataclasses

from bert_tf.config.fields import Config, option


@dataclasses.dataclass(frozen=True)
class TeacherConfig(Config):
    """Distillation from another model (Hinton et al. 2015)."""

    teacher: str = option(
        "",
        "Model to learn from, in addition to the labels or instead of them: any model that "
        "--init_checkpoint takes, with the student's vocabulary. Empty: no teacher.",
    )
    learn_labels: bool = option(
        True,
        "Learn the labels as well; false: only the teacher.",
        within="teacher_options",
    )
    teacher_weight: float = option(
        1.0,
        "Weight of the loss to the teacher's scores or embeddings; the labels' loss has weight 1.",
        lower=0.0,
        needs=("teacher",),
        within="teacher_options",
    )
    distillation_temperature: float = option(
        2.0,
        "Temperature that divides both models' scores; the loss is multiplied by its square.",
        lower=0.01,
        needs=("teacher",),
        within="teacher_options",
    )

    def check(self) -> None:
        if not self.teacher and not self.learn_labels:
            raise ValueError("learn_labels=false leaves nothing to learn; give a --teacher.")

    def check_without_scores(self, learned: str) -> None:
        """Raises ValueError for a temperature in a task that learns no class scores."""
        if self.distillation_temperature != TeacherConfig().distillation_temperature:
            raise ValueError(
                f"distillation_temperature={self.distillation_temperature:g} divides class scores, "
                f"but {learned} have no class scores; leave it out."
            )
