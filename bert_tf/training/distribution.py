"""Devices: creates the strategy for --distribution and splits batches over its replicas."""

import contextlib
import functools
import signal
import zlib
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from bert_tf.config import TrainingConfig
from bert_tf.corpus.mapping import ALL, InputShard, map_in_order
from bert_tf.system.hosts import read_tf_config, worker_index
from bert_tf.training.batch_ramp import check_ramp

START_SECONDS = 300  # for TensorFlow on all workers to connect, once all workers have reported


def make_strategy(config: TrainingConfig) -> tf.distribute.Strategy:
    """Returns the strategy of `config.distribution`.

    `mirrored` uses the machine's GPUs, or `num_devices` logical CPU devices if there is no GPU.
    `multi_worker` reads TF_CONFIG. `tpu` connects to `tpu_name` (empty: the local TPU). A single
    device always gets the default strategy.

    Raises:
      ValueError: if the machine has fewer devices than requested, TF_CONFIG names no hosts, or no
        TPU answers.
    """
    kind = "tpu" if config.use_tpu else config.distribution
    if kind == "tpu":
        return _tpu_strategy(config)
    gpus = tf.config.list_physical_devices("GPU")
    if kind == "mirrored" and len(devices := _local_devices(config.num_devices)) > 1:
        return tf.distribute.MirroredStrategy(devices)
    if kind == "multi_worker":
        hosts, _ = read_tf_config()
        if len(hosts) > 1 or len(gpus) > 1:
            return _multi_worker_strategy()
    elif kind == "one_device" and (len(gpus) > 1 or config.num_devices > 1):
        logging.warning(
            "Uses one device%s: --distribution=mirrored uses all, or with "
            "--training_options=num_devices=N some of them.",
            f" of {len(gpus)} GPUs" if gpus else "",
        )
    return tf.distribute.get_strategy()


def _multi_worker_strategy() -> tf.distribute.Strategy:
    tf.get_logger().setLevel("WARNING")  # TensorFlow logs each reduction that it builds.
    # RING works on CPUs and GPUs. With AUTO, TensorFlow chooses NCCL if all hosts have GPUs.
    gpus = tf.config.list_physical_devices("GPU")
    communication = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=communication.AUTO if gpus else communication.RING
    )
    with _time_limit(START_SECONDS):
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Ends the process by SIGALRM, status 142, if the block takes longer.

    The kernel does this, because a Python thread cannot: TensorFlow holds the interpreter's lock
    while it waits for a worker, even for a dead one.
    """
    logging.info(
        "Connecting to the other workers' TensorFlow; a process that waits %d s ends.", seconds
    )
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


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
            f"--tpu_zone and --gcp_project if it is not attached to this machine."
        ) from error


def _local_devices(num_devices: int) -> list[str]:
    # Listing logical devices starts TensorFlow, after which logical CPUs cannot be configured.
    if not tf.config.list_physical_devices("GPU"):
        return _logical_cpus(max(1, num_devices))
    gpus = tf.config.list_logical_devices("GPU")
    if num_devices > len(gpus):
        raise ValueError(
            f"--training_options=num_devices={num_devices}, but this machine has {len(gpus)} GPUs."
        )
    return [gpu.name for gpu in gpus[: num_devices or len(gpus)]]


def _logical_cpus(count: int) -> list[str]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        present = tf.config.get_logical_device_configuration(cpu) or [None]
        if len(present) < count:
            device = tf.config.LogicalDeviceConfiguration()
            tf.config.set_logical_device_configuration(cpu, [device] * count)
    except RuntimeError as error:  # TensorFlow has already started with fewer devices.
        raise ValueError(
            f"--training_options=num_devices={count} must be set before TensorFlow starts."
        ) from error
    return [f"CPU:{index}" for index in range(count)]


def check_batch_sizes(training: TrainingConfig, replicas: int) -> None:
    """Raises ValueError if a batch cannot be split over replicas and micro-batches, or grow."""
    check_ramp(training)
    micro = training.gradient_accumulation_steps
    # Small batches of a ramp may have fewer micro-batches; see `Stage.micro_batches`.
    parts = {"train_batch_size": replicas * max(1, micro), "batch_ramp_start": replicas}
    if training.do_eval or training.eval_steps or not training.do_train:
        parts["eval_batch_size"] = replicas
    for name, divisor in parts.items():
        size = getattr(training, name)
        if size % divisor:
            of_micro = f", gradient_accumulation_steps {micro}" if divisor > replicas else ""
            raise ValueError(
                f"--{name}={size} is not a multiple of {divisor} (replicas {replicas}{of_micro})."
            )


def worker_of(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns (index of this host, number of hosts) among those that read data."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    return worker_index(resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this host is the one that writes the run directory."""
    return worker_of(strategy)[0] == 0


def distribute(
    strategy: tf.distribute.Strategy,
    make_dataset: Callable[[InputShard], tf.data.Dataset],
    pack: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]] | None = None,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns a dataset whose elements are each replica's rows of one global batch.

    Args:
      make_dataset: from this worker's part to a dataset of its rows; the rows of a batch are
        distributed to the worker's replicas in order.
      pack: a function applied to each replica's rows at the end, or None.
    """
    remote = tf.distribute.TPUStrategy | tf.distribute.MultiWorkerMirroredStrategy
    if strategy.num_replicas_in_sync == 1 and not isinstance(strategy, remote):
        return _packed(make_dataset(ALL), pack)

    def from_context(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        shard = InputShard(context.input_pipeline_id, context.num_input_pipelines)
        dataset = make_dataset(shard)

        def split(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: split_rows(value, replicas) for name, value in batch.items()}

        # unbatch gives each replica in turn its part of the worker's rows.
        return _packed(dataset.map(split).unbatch(), pack).prefetch(2 * replicas)

    return strategy.distribute_datasets_from_function(from_context)


def _packed(dataset: tf.data.Dataset, pack: Callable | None) -> tf.data.Dataset:
    if pack is None:
        return dataset
    return map_in_order(dataset, pack)


def split_rows(value: tf.Tensor, count: int) -> tf.Tensor:
    """Splits the rows of a batch into equal parts: [B, ...] -> [count, B / count, ...]."""
    shape = tf.shape(value)
    # Lengths may be unknown while tracing; under XLA all are known.
    sizes = [shape[axis] if size is None else size for axis, size in enumerate(value.shape)]
    return tf.reshape(value, [count, sizes[0] // count, *sizes[1:]])


def any_worker(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns on every host whether `flag` is true on any of them."""
    return bool(_sum(strategy, [float(flag)])[0] > 0)


def from_chief(strategy: tf.distribute.Strategy, *numbers: float) -> list[float]:
    """Returns the chief's numbers on every host."""
    # Only the chief's numbers enter the sum; the last number counts its replicas.
    weight = float(is_chief(strategy))
    *totals, replicas = _sum(strategy, [weight * number for number in (*numbers, 1.0)])
    return [total / replicas for total in totals]


def check_same_step(strategy: tf.distribute.Strategy, step: int) -> None:
    """Raises ValueError on every host if the hosts are at different steps."""
    if not _is_same(strategy, step):
        raise ValueError(
            f"The hosts resume at different steps, this one at {step}: they must share one "
            f"--output_dir."
        )


def check_same_data(strategy: tf.distribute.Strategy, fingerprint: str) -> None:
    """Raises ValueError on every host if the hosts have different training examples."""
    # 24 bits, as `_is_same` needs.
    if not _is_same(strategy, zlib.crc32(fingerprint.encode()) >> 8):
        raise ValueError(
            f"The hosts have different training examples, this one {fingerprint}: they must read "
            f"the same files."
        )


def _is_same(strategy: tf.distribute.Strategy, number: int) -> bool:
    """Returns on every host whether all hosts passed the same number, which is below 2 ** 24."""
    # A sum of numbers could be equal by chance; each host compares with the chief's.
    return not any_worker(strategy, number != from_chief(strategy, number)[0])


def _sum(strategy: tf.distribute.Strategy, values: list[float]) -> list[float]:
    """Returns the sums of the values over the replicas of all hosts."""
    if worker_of(strategy)[1] == 1:
        return values
    return _summing(strategy)(tf.constant(values, tf.float64)).numpy().tolist()


@functools.cache
def _summing(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
    def total(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, strategy.run(tf.identity, (value,)), None
        )

    return total
