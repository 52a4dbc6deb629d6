"""The files that deploy TensorFlow Serving: they parse, and they name the same things.

Nothing here runs Docker, Kubernetes or TensorFlow Serving.
"""

import itertools
import pathlib
import subprocess

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from export.serving_client import ClientConfig
from tests.export.serving_stand_in import StandIn
from tests.export.toy_model import save_toy_model

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "export/serving"
Field = descriptor_pb2.FieldDescriptorProto
# Two of the server's messages that tensorflow-serving-api does not hold, by field: the type (a
# message by its name) and whether it repeats. As in the server's session_bundle_config.proto and
# monitoring_config.proto.
INT64 = ".google.protobuf.Int64Value"
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": (INT64, False),
        "batch_timeout_micros": (INT64, False),
        "max_enqueued_batches": (INT64, False),
        "num_batch_threads": (INT64, False),
        "allowed_batch_sizes": (Field.TYPE_INT64, True),
        "pad_variable_length_inputs": (Field.TYPE_BOOL, False),
    },
    "PrometheusConfig": {
        "enable": (Field.TYPE_BOOL, False),
        "path": (Field.TYPE_STRING, False),
    },
    "MonitoringConfig": {"prometheus_config": (".serving_files.PrometheusConfig", False)},
}
# Flags of tensorflow_model_server, from its main.cc, that the files use.
SERVER_FLAGS = {
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "monitoring_config_file",
    "enable_batching",
    "batching_parameters_file",
    "rest_api_timeout_in_ms",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
}


def make_message(name):
    file = descriptor_pb2.FileDescriptorProto(name="serving_files.proto", package="serving_files")
    file.syntax = "proto3"
    file.dependency.append("google/protobuf/wrappers.proto")
    for message, fields in MESSAGES.items():
        definition = file.message_type.add(name=message)
        for number, (field, (kind, repeats)) in enumerate(fields.items(), 1):
            label = Field.LABEL_REPEATED if repeats else Field.LABEL_OPTIONAL
            added = definition.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = Field.TYPE_MESSAGE, kind
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"serving_files.{name}"))()


def parse(name, message):
    return text_format.Parse((FOLDER / name).read_text("ascii"), message)


@pytest.fixture(scope="module")
def models():
    config = parse("models.config", model_server_config_pb2.ModelServerConfig())
    return {model.name: model for model in config.model_config_list.config}


@pytest.fixture(scope="module")
def batching():
    return parse("batching.config", make_message("BatchingParameters"))


@pytest.fixture(scope="module")
def monitoring():
    return parse("monitoring.config", make_message("MonitoringConfig"))


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["serving"]


@pytest.fixture(scope="module")
def kubernetes():
    """The objects by kind."""
    objects = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    assert [item["kind"] for item in objects] == [
        "Deployment",
        "Service",
        "HorizontalPodAutoscaler",
    ]
    return {item["kind"]: item for item in objects}


@pytest.fixture(scope="module")
def pod(kubernetes):
    return kubernetes["Deployment"]["spec"]["template"]["spec"]


def test_models(models):
    """The two folders that one export makes."""
    assert list(models) == ["bert", "bert_ids"]
    for name, model in models.items():
        assert model.base_path == f"/models/{name}" and model.model_platform == "tensorflow"
        assert model.model_version_policy.latest.num_versions >= 1


def test_batches(batching):
    sizes, most = list(batching.allowed_batch_sizes), batching.max_batch_size.value
    assert sizes[0] == 1 and sizes[-1] == most
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes))
    assert ClientConfig().batch_size <= most
    assert 0 < batching.batch_timeout_micros.value <= 10_000
    assert batching.max_enqueued_batches.value and batching.num_batch_threads.value
    # The server pads with the first value of a tensor, which for a mask is that of a real piece.
    assert not batching.pad_variable_length_inputs
    assert "pad_variable_length_inputs: false" in (FOLDER / "batching.config").read_text()


def test_metrics(monitoring, kubernetes):
    path = monitoring.prometheus_config.path
    assert monitoring.prometheus_config.enable and path.startswith("/")
    notes = kubernetes["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/path"] == path and notes["prometheus.io/port"] == "8501"


def test_both_start_the_same_server(compose, pod):
    (container,) = pod["containers"]
    assert compose["image"] == container["image"]
    name, version = compose["image"].split(":")
    assert name == "tensorflow/serving"
    assert [int(part) for part in version.split(".")] >= [2, 20]
    assert compose["command"] == container["args"]
    given = dict(flag.removeprefix("--").partition("=")[::2] for flag in compose["command"])
    assert set(given) == SERVER_FLAGS
    for flag, value in given.items():
        if flag.endswith("_file"):
            assert value.startswith("/config/") and (FOLDER / pathlib.Path(value).name).exists()


def test_models_are_mounted_where_they_are_looked_for_and_read_only(compose, pod, models):
    (container,) = pod["containers"]
    assert [volume.rsplit(":", 2)[1:] for volume in compose["volumes"]] == [
        ["/models", "ro"],
        ["/config", "ro"],
    ]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == {"/models", "/config"}
    assert all(mount["readOnly"] for mount in mounts.values())
    assert {m["name"] for m in mounts.values()} == {volume["name"] for volume in pod["volumes"]}
    assert {str(pathlib.Path(model.base_path).parent) for model in models.values()} == {"/models"}


def test_ports(compose, kubernetes, pod):
    assert compose["ports"] == ["8500:8500", "8501:8501"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    service = kubernetes["Service"]["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports


def test_kubernetes_objects_name_each_other(kubernetes):
    deployment = kubernetes["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert kubernetes["Service"]["spec"]["selector"] == labels
    target = kubernetes["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert [target[key] for key in ("apiVersion", "kind", "name")] == [
        deployment["apiVersion"],
        "Deployment",
        deployment["metadata"]["name"],
    ]


def test_probes(pod, models):
    (container,) = pod["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert path in [f"/v1/models/{name}/metadata" for name in models]
        assert container[probe]["httpGet"]["port"] == "rest"
    assert container["livenessProbe"]["tcpSocket"]["port"] == "grpc"
    assert {"requests", "limits"} <= set(container["resources"])


def test_health_check_of_compose_tells_a_served_model(compose, tmp_path):
    """The command is run, with the port of the stand-in for that of the server."""
    kind, *command = compose["healthcheck"]["test"]
    assert kind == "CMD" and "127.0.0.1/8501" in command[-1]
    save_toy_model(tmp_path / "bert/1")
    with StandIn({"bert": tmp_path / "bert"}) as stand_in:

        def is_healthy():
            *shell, script = command
            script = script.replace(
                "127.0.0.1/8501", f"127.0.0.1/{stand_in.rest.rpartition(':')[2]}"
            )
            return subprocess.run([*shell, script], timeout=10, capture_output=True).returncode == 0

        assert is_healthy()
        stand_in.models.clear()
        assert not is_healthy()
    assert not is_healthy()
