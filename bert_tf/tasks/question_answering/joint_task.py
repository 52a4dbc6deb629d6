"""Question answering with the joint head; see `joint_head`."""

from typing import Any

import tensorflow as tf

from bert_tf.system.type_names import Outputs
from bert_tf.tasks.question_answering.answers import SquadPredictions
from bert_tf.tasks.question_answering.features import SquadExamples
from bert_tf.tasks.question_answering.joint_answers import Beams, make_beam_predictions
from bert_tf.tasks.question_answering.joint_head import BEAM, NO_ANSWER, joint_losses
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.training.task import Batch


class JointSquadTask(SquadTask):
    """Trains and evaluates a `BertJointSpanLabeler`; arguments are those of `SquadTask`.

    Differs from the original, which sums the losses of a batch instead of averaging them. The
    evaluation loss is that of training, with ends given the annotated start; there it has no part
    for the ends.
    """

    def _losses(self, batch: Batch, outputs: Outputs) -> Any:
        return joint_losses(
            outputs,
            batch["start_positions"],
            batch["end_positions"],
            batch["is_impossible"],
        )

    def predictions(self, batch: Batch, outputs: Outputs) -> dict[str, tf.Tensor]:
        """Returns the beam, the score of no answer and the loss of each row."""
        kept = {name: outputs[name] for name in (*BEAM, NO_ANSWER) if name in outputs}
        return {**kept, "loss": self._losses(batch, outputs)}

    def answers(self, examples: SquadExamples, outputs: Outputs) -> SquadPredictions:
        """Returns the contents of the original's output files."""
        beams = Beams.of_rows(outputs)
        return make_beam_predictions(examples.questions, examples.features, beams, self.config)
