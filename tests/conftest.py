"""Fixtures of all tests, and the TensorFlow they run on: two CPUs, few threads, fixed seeds."""

import contextlib
import gc
import os
import pathlib
import random
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import bert_tf  # noqa: F401  First: it selects Keras' backend.
from bert_tf.system.around_import import around_import
from tests.shared_data import skip_together

# Tests run in several processes side by side: each computes with one thread, which is also
# deterministic; the second inter-op thread lets two replicas meet in an all-reduce.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")

# A shell starts background jobs with Ctrl-C ignored, and their children inherit that. With a
# handler here the children have the default.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'"
WORDS = """
the a of and to in is was it on for with as at by his her she he they river boat water mill stone
house garden king rain night morning slow ##ly ##ing ##ed ##s ##er walk stop turn open read
""".split()

CORPUS = """
The mill stood on the slow river.
Its wheel turned with the water.
A boat was tied to the stone house.
She walked there in the morning.
The rain had stopped at night.
He opened the door and read a letter.
It was from the king of the islands.

In the garden grew apples and pears.
They were red, yellow and green.
The children of the house picked them.
Each of them filled a basket.
Nobody counted the apples.
In the evening they baked a cake!
The smell went through all rooms.
Even the cat came in.

Stone is heavier than water.
Wood is lighter, so a boat floats.
Iron sinks, but an iron ship floats.
How can that be?
A ship is mostly air.
It weighs less than the water it moves aside.
An old mathematician found this in a bath.

The train leaves at 7:45.
It stops at every small station.
At each stop someone gets off.
Mrs. Miller reads her newspaper.
Her neighbour sleeps by the window.
Nobody speaks before the first tunnel.
Then everybody looks at the dark glass.
After 31 minutes they arrive.

Snow fell for three days.
The roads were closed.
We burned wood and told stories.
My brother knew the longest ones.
In one of them a fox learned to write.
It wrote to the hunters.
They answered, and the hunt was over.
When the sun came back we were sorry.

The clock in the tower has no hands.
Still it strikes every hour.
Visitors ask why.
The keeper smiles and says nothing.
He winds it twice a week.
""".strip()


@contextlib.contextmanager
def two_cpus(tensorflow: types.ModuleType) -> Iterator[None]:
    """Gives TensorFlow two CPUs as soon as it is loaded, by whatever test: before it computes."""
    yield
    cpu = tensorflow.config.list_physical_devices("CPU")[0]
    tensorflow.config.set_logical_device_configuration(
        cpu, [tensorflow.config.LogicalDeviceConfiguration()] * 2
    )


around_import("tensorflow", two_cpus)  # Tests that need no TensorFlow do not wait for it.


@contextlib.contextmanager
def nameless_handles(operations: types.ModuleType) -> Iterator[None]:
    """Leaves the names of variables out of their handles: TensorFlow makes a kernel for each name.

    That takes a millisecond a variable, a tenth of the time of the fast run. Only TensorFlow's
    message about a variable without a value shows that name.
    """
    yield
    make_handle = operations.var_handle_op

    def nameless(*arguments: Any, debug_name: str = "", **options: Any) -> Any:
        return make_handle(*arguments, **options)

    operations.var_handle_op = nameless


around_import("tensorflow.python.ops.gen_resource_variable_ops", nameless_handles)


class QuickUpdates:
    """Leaves the updates of variables to TensorFlow: XLA compiles each shape for a tenth second."""

    def __init__(self) -> None:
        self.are_on = False

    @contextlib.contextmanager
    def __call__(self, optimizers: types.ModuleType) -> Iterator[None]:
        yield
        compiled = optimizers.AdamWeightDecay._traced

        def traced(optimizer: Any, update: Callable[..., None]) -> Callable[..., None]:
            import tensorflow as tf

            if self.are_on:
                return tf.function(update, autograph=False)
            return compiled(optimizer, update)

        optimizers.AdamWeightDecay._traced = traced


quick_updates = QuickUpdates()
around_import("bert_tf.training.optimizers", quick_updates)


def is_fast_run(config: pytest.Config) -> bool:
    """Whether slow tests are left out."""
    return "not slow" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    if is_fast_run(config):
        # oneDNN prepares a kernel for each new shape, a fifteenth of the time of the fast run. Slow
        # runs have it, as users do. TensorFlow reads the variable when it is loaded.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def computes_as_in_use(item: pytest.Item) -> bool:
    """Whether a test has the graph optimizer and compiled updates in the fast run, too."""
    folder = pathlib.Path(__file__).parent
    is_of_exports = item.path.is_relative_to(folder / "export")
    return is_of_exports or item.get_closest_marker("as_in_use") is not None


@pytest.hookimpl(trylast=True)  # After -m and -k: what they leave out is not counted.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=skip_together(items))


def pytest_collection_finish() -> None:
    # What was imported stays; looking through it for garbage again and again takes a twentieth of
    # the time of a run.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # Tracing makes many objects that stay.


def pytest_runtest_setup(item: pytest.Item) -> None:
    is_off = is_fast_run(item.config) and not computes_as_in_use(item)
    # Here, and not in a fixture of each test: those of modules are made earlier.
    quick_updates.are_on = is_off
    if "tensorflow" in sys.modules:
        # The graph optimizer takes an eighth of the time of the fast run. Slow runs and SavedModels
        # have it, as users do.
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": is_off})
    if item.get_closest_marker("gpu"):
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            pytest.skip("needs a GPU")


def kept_kernels() -> contextlib.AbstractContextManager[Any]:
    """Keeps the kernels of all operations when seeds are set, which makes them anew else.

    That takes a fifth of the time of the fast run. It is for the states of random operations that
    run eagerly: bert_tf has none, its random numbers are functions of their seeds.
    """
    from tensorflow.python.eager import context

    return mock.patch.object(context.pywrap_tfe, "TFE_ContextClearCaches")


@pytest.fixture(autouse=True)
def _same_start() -> None:
    """Starts every test from the same seeds and from float32, whatever ran before it."""
    random.seed(1)
    np.random.seed(1)
    if "keras" in sys.modules:
        import keras

        with kept_kernels():
            keras.utils.set_random_seed(1)  # TensorFlow's as well
        keras.config.set_dtype_policy("float32")
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        if "keras" not in sys.modules:
            with kept_kernels():
                tf.random.set_seed(1)
        # Mirrored strategies number their all-reduces from the same start: TensorFlow would mix
        # up those of two tests in one process, as its own tests would without this line.
        tf.distribute.MirroredStrategy._collective_key_base += 100_000


@pytest.fixture
def tiny_config() -> "bert_tf.config.ModelConfig":
    """A model of a layer x 32 for `tiny_vocab`, with dropout off."""
    from bert_tf.config import ModelConfig

    return ModelConfig(
        vocab_size=len(tiny_tokens()),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=64,
    )


def tiny_tokens() -> list[str]:
    """Returns special tokens, every letter in both forms, some words and endings."""
    letters = [form + letter for form in ("", "##") for letter in LETTERS]
    return list(dict.fromkeys([*SPECIAL_TOKENS, *letters, *WORDS]))


@pytest.fixture
def tiny_vocab() -> "bert_tf.text.vocab.Vocab":
    """A vocabulary that writes any lower-case English sentence without [UNK]."""
    from bert_tf.text.vocab import Vocab

    return Vocab(tuple(tiny_tokens()))
