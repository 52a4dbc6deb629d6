"""Models from checkpoints of google-research/bert, Hugging Face, keras-hub and bert_tf.

    model = BertClassifier.from_pretrained(
        "hf://google-bert/bert-base-uncased", num_labels=3, allow_missing=["cls/"]
    )

A weight that the checkpoint lacks, or that the model does not know, stops the load unless it is
listed.
"""

import os
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.config import ModelConfig
from bert_tf.system.nested_layers import nested_layers
from bert_tf.system.type_names import Batch, Fields, Outputs, Tensor

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class FromPretrained:
    """Mixin that adds `from_pretrained` to an encoder, or to a Keras model with an encoder `bert`.

    A class overrides `arguments_for` to take more than the configuration from a checkpoint, and
    sets `electra_network` to the ELECTRA network that it needs: "generator", or "" for the
    discriminator if there is one.

    Saved models keep the configuration and the paths of frozen layers. Keras does not keep the
    latter, so the optimizer of a loaded model would have more variables than that of the saved one.
    """

    config: ModelConfig
    electra_network = ""
    reads_pooler = True  # If False, a checkpoint may lack the pooler, which then stays random.

    def __call__(self, inputs: Batch | Sequence[str], *arguments: object, **options: object) -> Any:
        if not isinstance(inputs, Mapping):
            inputs = self.inputs_of(inputs)
        return super().__call__(inputs, *arguments, **options)  # type: ignore[misc]

    def __setattr__(self, name: str, value: object) -> None:
        # Keras would track a preprocessor as a layer, and then compile the model without XLA.
        if name == "preprocessor":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def inputs_of(self, x: object) -> dict[str, Tensor]:
        """Returns the inputs of `call` for anything but a dict of ids, if the model takes it."""
        raise ValueError(
            f"{type(self).__name__} takes a dict of input_word_ids, input_mask and "
            f"input_type_ids, received {type(x).__name__} {x!r:.60}; "
            "bert_tf.BertPreprocessor makes the dict from texts."
        )

    def get_config(self) -> Fields:
        layers = nested_layers(self)
        # Paths and not names: names repeat, for example in each encoder layer.
        frozen = [layer.path for layer in layers if layer.path and not layer.trainable]
        encoder: Any = getattr(self, "bert", self)
        return {
            **super().get_config(),  # type: ignore[misc]
            "config": self.config.to_dict(),
            "recompute": encoder.recompute,
            "unpad": encoder.unpad,
            "frozen": frozen,
        }

    @classmethod
    def from_config(cls, config: Fields) -> Self:
        arguments = {**config, "config": ModelConfig.from_dict(config["config"])}
        frozen = arguments.pop("frozen")
        model = cls(**arguments)
        if frozen:
            # Outer layers come first: setting `trainable` also sets it for the layers inside.
            for layer in nested_layers(model):
                layer.trainable = layer.path not in frozen
        return model

    def own_loss(
        self,
        x: Batch,
        y: Tensor | None,
        outputs: Outputs | Tensor,
        weights: Tensor | None,
        training: bool,
    ) -> Tensor | None:
        """Returns the loss of a batch, float32 []; None for the loss that was compiled."""
        return None

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: Outputs | Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns `own_loss` or else the compiled loss; `fit` and `evaluate` call this."""
        loss = self.own_loss(x, y, y_pred, sample_weight, training)
        if loss is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)  # type: ignore[misc]
        # The gradients of replicas are added, so each replica gets its share of the loss.
        num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return loss * (1.0 / num_replicas) if num_replicas > 1 else loss

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        """Returns the constructor arguments that the checkpoint determines."""
        return {}

    @classmethod
    def from_pretrained(
        cls,
        path: str | pathlib.Path,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        **arguments: Any,
    ) -> Self:
        """Loads the model from a checkpoint in any format; see `bert_tf.checkpoints.formats`.

        Args:
          path: folder, file or checkpoint prefix.
          allow_missing: prefixes of weight names that the checkpoint may lack, for example `cls/`;
            these weights keep their random initial values.
          allow_unexpected: prefixes of names in the files to leave out. Heads that this class does
            not have are always left out and logged.
          arguments: arguments of the constructor, except the configuration, which is read from
            the checkpoint.

        Raises:
          ValueError: if the checkpoint cannot be read, or if weights are missing, unknown or of the
            wrong shape; the message names them.
        """
        return cls.from_checkpoint(
            cls.read(path, allow_missing, allow_unexpected), allow_missing, **arguments
        )

    @classmethod
    def read(
        cls, path: str | pathlib.Path, allow_missing: Sequence[str], allow_unexpected: Sequence[str]
    ) -> "Checkpoint":
        """Reads and checks a checkpoint; see `from_pretrained`."""
        from bert_tf.checkpoints.electra_networks import refuse_discriminator
        from bert_tf.checkpoints.formats import read_checkpoint

        checkpoint = read_checkpoint(path, electra_network=cls.electra_network)
        if cls.electra_network == "generator" and not allow_missing:
            refuse_discriminator(checkpoint)
        checkpoint.check(allow_unexpected, allow_missing)
        for note in checkpoint.notes:
            logging.info("%s: %s", path, note)
        return checkpoint

    @classmethod
    def from_checkpoint(
        cls, checkpoint: "Checkpoint", allow_missing: Sequence[str] = (), **arguments: Any
    ) -> Self:
        """Makes the model from a `Checkpoint` in memory; see `from_pretrained`."""
        arguments = {**cls.arguments_for(checkpoint), **arguments}
        model = cls(checkpoint.config, **arguments)  # type: ignore[call-arg]
        assign_checkpoint(model, checkpoint, allow_missing)
        return model

    def save_pretrained(self, folder: str | os.PathLike, form: str = "") -> None:
        """Writes weights, configuration, tokenizer, labels and model card into a new folder.

        The folder is the same as from `convert_checkpoint`. `from_pretrained` reads it back bit for
        bit, transformers or sentence-transformers can load it, and huggingface_hub's
        `upload_folder` publishes it.

        Args:
          folder: an empty folder, or one that does not exist.
          form: huggingface, sentence_transformers, bert_tf, google or keras_hub, of late
            interaction also pylate or stanford; "" is sentence_transformers for an embedding model,
            else huggingface.

        Raises:
          ValueError: if the folder is not empty, or the form cannot hold the model.
        """
        from bert_tf.inference import publishing

        publishing.save_pretrained(self, folder, form)

    def export(
        self,
        folder: str | os.PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Sequence[object] | None = None,
        *,
        version: int = 0,
        kind: str = "",
        **options: Any,
    ) -> Any:
        """Exports a SavedModel that takes texts, as a new version, like `export.saved_model`.

        With the format "onnx" it writes the folder of `export.onnx`, in float32. With another
        format or an input signature this is Keras' method.

        Args:
          folder: folder of the model; `folder/1` takes texts, and `folder_ids/1` takes ids. Of the
            format "onnx", a new folder.
          format: tf_saved_model, onnx, or another of Keras.
          input_signature: see Keras; None exports a model that takes texts.
          version: number of the version; 0 is the next free one.
          kind: kind of answers; "" is determined by the heads.
          options: `max_seq_length`, `precision`, `top_k` and others, as flags of
            `export.saved_model`.

        Returns:
          The paths of the new versions, or of the ONNX file.

        Raises:
          ValueError: if the model lacks a tokenizer or the head for `kind`, or the version exists.
        """
        if format not in ("tf_saved_model", "onnx") or input_signature is not None:
            options |= {"verbose": verbose, "input_signature": input_signature}
            return super().export(folder, format, **options)  # type: ignore[misc]
        from bert_tf.inference import publishing

        if format == "onnx":
            return publishing.export_onnx(self, folder, kind, **options)
        return publishing.export(self, folder, version, kind, **options)

    def to_checkpoint(self, tower: str = "") -> "Checkpoint":
        """Returns the weights, configuration, vocabulary and labels of the model.

        Args:
          tower: "generator", "discriminator" or "both"; only `ElectraPretrainer` has two networks.
        """
        from bert_tf.checkpoints.checkpoint import Checkpoint
        from bert_tf.checkpoints.embedding import DECODER
        from bert_tf.checkpoints.keras_archive import settings_of

        model: Any = self
        variables = checkpoint_variables(self)
        weights = {
            name: np.asarray(variable).astype(np.float32, copy=False)
            for name, variable in variables.items()
            if not name.startswith(DECODER)
        }
        text_source = getattr(self, "preprocessor", None) or self
        return Checkpoint(
            source=model.name,
            form="keras",
            config=self.config,
            weights=weights,
            vocab=getattr(text_source, "vocab", None),
            stated_casing=self.config.do_lower_case,
            labels=getattr(self, "labels", None) or (),
            embedding=getattr(self, "embedding", None),
            problem_type=getattr(self, "problem_type", ""),
            settings=settings_of(type(self).__name__, self.get_config()),
        )


def checkpoint_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their names in checkpoints."""
    encoder = getattr(model, "bert", model)
    start = f"{encoder.name}/"
    variables = {}
    # `weights` includes frozen variables, but not the states of seed generators.
    for variable in model.weights:
        name = variable.path
        # Checkpoints name the encoder bert/, whatever the name of the model's encoder is.
        if name.startswith(start):
            name = f"bert/{name.removeprefix(start)}"
        variables[name] = variable
    return variables


def assign_checkpoint(
    model: keras.Model, checkpoint: "Checkpoint", allow_missing: Sequence[str] = ()
) -> None:
    """Assigns the weights of a checkpoint to a model; see `FromPretrained.from_pretrained`."""
    from bert_tf.checkpoints.checkpoint import (
        HEADS,
        PRETRAINING_HEADS,
        listed,
        shape_differences,
        unnamed,
        with_transform,
    )
    from bert_tf.checkpoints.families import made_by_tasks

    variables = checkpoint_variables(model)
    weights = with_transform(checkpoint.weights, checkpoint.config)
    random = [name for name in variables if name not in weights]
    # The family's own pre-training has no such weights: a task makes them.
    free = [*allow_missing, *made_by_tasks(checkpoint.config)]
    if not model.reads_pooler:
        free.append(HEADS["pooler"])
    missing = unnamed(random, free)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    mismatched = shape_differences(weights, shapes)
    if missing or mismatched:
        raise ValueError(
            f"{checkpoint.source} does not fit the model:{listed('missing', missing)}"
            f"{listed('of another shape', mismatched)} list weights that may be missing in "
            f"allow_missing (--allow_missing); they are then initialized at random."
        )
    # A line for each layer, not for each weight.
    left_out = sorted({name.rpartition("/")[0] for name in weights if name not in variables})
    if random:
        logging.info("Initialized at random: %s", ", ".join(random))
    # A model without the heads of pre-training, and without the pooler, is nothing to report.
    heads = tuple(HEADS[name] for name in PRETRAINING_HEADS)
    if surprising := [name for name in left_out if not f"{name}/".startswith(heads)]:
        logging.info("Not used by the model: %s", ", ".join(surprising))
    for name, variable in variables.items():
        if name in weights:
            variable.assign(weights[name])
