"""Answers of exported models that embed texts or their tokens."""

import numpy as np

from bert_tf.inference.model_outputs import ModelOutputs
from bert_tf.tasks.embedding.answers import EmbedderAnswers, LateInteractionAnswers


class OutputEmbedder(ModelOutputs, EmbedderAnswers):
    """The answers of an exported embedder."""

    @property
    def _exported_prompt(self) -> str:
        return self._model.card.get("prompt", "")

    def named_prompt(self, name: str | None) -> str:
        if name is not None:
            raise ValueError(
                f"prompt_name is {name!r}, but an exported model has the prompt "
                f"{self._exported_prompt!r} alone; load the original model."
            )
        return self._exported_prompt

    def side_prompt(self, side: str) -> str:
        prompt = self._model.card.get(f"{side}_prompt")
        exported = self._exported_prompt
        if prompt is None:
            raise ValueError(
                f"The exported model does not record the prompt of a {side}; export it again, or "
                f"use encode, which has the prompt {exported!r}."
            )
        if prompt != exported:
            raise ValueError(
                f"The model was exported with the prompt {exported!r}, but a {side} needs "
                f"{prompt!r}: export it with --side={side}, or load the original model."
            )
        return prompt

    def encode_texts(self, texts: list[str], prompt: str, batch_size: int) -> np.ndarray:
        if prompt != self._exported_prompt:
            raise ValueError(
                f"prompt is {prompt!r}, but the model was exported with {self._exported_prompt!r}; "
                "load the original model."
            )
        # Without texts, an empty one shows the dimension of the array [0, D].
        rows = self.compute([texts or [""]], batch_size)
        return np.stack([row["embedding"] for row in rows])[: len(texts)]  # [B, D]


class OutputLateInteraction(ModelOutputs, LateInteractionAnswers):
    """The answers of an exported model of late interaction, which embeds one side."""

    @property
    def similarity(self) -> str:
        return str(self._model.card["similarity"])

    def encode_side(self, texts: list[str], side: str, batch_size: int) -> list[np.ndarray]:
        if side != (exported := self._model.card["side"]):
            raise ValueError(
                f"The model was exported for the side {exported}, but the texts are of the side "
                f"{side}: export it with --side={side}, or load the original model."
            )
        rows = self.compute([texts], batch_size)
        return [row["vectors"][row["scored"] > 0] for row in rows]
