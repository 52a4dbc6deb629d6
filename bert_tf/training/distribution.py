"""Devices: the strategy behind one flag, and batches split over its replicas."""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.config import TrainingConfig


def make_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    """Returns the strategy of `config.distribution`.

    `mirrored` takes the machine's GPUs, or, where there are none, `num_devices` logical CPU
    devices. `multi_worker` reads TF_CONFIG. `tpu` connects to `tpu_name` (empty: the local TPU).

    Raises:
      ValueError: if more devices are asked for than the machine has, or no TPU answers.
    """
    kind = "tpu" if config.use_tpu else config.distribution
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(_local_devices(config.num_devices))
    if kind == "multi_worker":
        # RING works on CPU and GPU alike; NCCL is chosen by TensorFlow where all hosts have GPUs.
        gpus = tf.config.list_physical_devices("GPU")
        communication = tf.distribute.experimental.CommunicationImplementation
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=communication.AUTO if gpus else communication.RING
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    if kind == "tpu":
        return _tpu_strategy(config)
    return tf.distribute.get_strategy()


def _tpu_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=config.tpu_name or "local",
            zone=config.tpu_zone or None,
            project=config.gcp_project or None,
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ValueError(
            f"--distribution=tpu: no TPU answers as {config.tpu_name or 'local'!r} "
            f"({type(error).__name__}: {str(error).splitlines()[0]}). Give --tpu_name, and "
            f"--tpu_zone and --gcp_project where it is not this machine's own."
        ) from error


def _local_devices(num_devices: int) -> list[str]:
    gpus = tf.config.list_logical_devices("GPU") if tf.config.list_physical_devices("GPU") else []
    if not gpus:
        return _logical_cpus(max(1, num_devices))
    if num_devices > len(gpus):
        raise ValueError(f"--num_devices={num_devices}, but this machine has {len(gpus)} GPUs.")
    return [gpu.name for gpu in gpus[: num_devices or len(gpus)]]


def _logical_cpus(count: int) -> list[str]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        present = tf.config.get_logical_device_configuration(cpu) or [None]
        if len(present) < count:
            device = tf.config.LogicalDeviceConfiguration()
            tf.config.set_logical_device_configuration(cpu, [device] * count)
    except RuntimeError as error:  # TensorFlow has started already with fewer devices.
        raise ValueError(f"--num_devices={count} must be set before TensorFlow starts.") from error
    return [f"CPU:{index}" for index in range(count)]


def worker_of(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns (index of this host, number of hosts) among those that read data."""
    resolver = strategy.cluster_resolver
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return resolver.task_id, len(resolver.cluster_spec().as_dict()["worker"])
    return 0, 1


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """True on the one host that writes the run directory."""
    return worker_of(strategy)[0] == 0


def distribute(
    strategy: tf.distribute.Strategy, make_dataset: Callable[[int, int], tf.data.Dataset]
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns a dataset whose element holds each replica's rows of one global batch.

    Args:
      strategy: as made by `make_strategy`.
      make_dataset: (worker_index, num_workers) to a dataset of this worker's rows; the rows
        of a batch are dealt to the worker's replicas in order.
    """
    if strategy.num_replicas_in_sync == 1 and not _is_remote(strategy):
        return make_dataset(0, 1)

    def from_context(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        dataset = make_dataset(context.input_pipeline_id, context.num_input_pipelines)

        def split(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {
                name: tf.reshape(value, [replicas, value.shape[0] // replicas, *value.shape[1:]])
                for name, value in batch.items()
            }

        return dataset.map(split).unbatch().prefetch(2 * replicas)

    return strategy.distribute_datasets_from_function(from_context)


def _is_remote(strategy: tf.distribute.Strategy) -> bool:
    return isinstance(
        strategy, tf.distribute.TPUStrategy | tf.distribute.MultiWorkerMirroredStrategy
    )


def any_worker(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """True on every host if `flag` is true on any of them."""
    if worker_of(strategy)[1] == 1:
        return flag

    @tf.function
    def total(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, (value,)), None
        )

    return bool(total(tf.constant(float(flag))).numpy() > 0)
