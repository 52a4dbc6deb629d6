"""TF_CONFIG: the hosts that train together and the index of this host.

The hosts come from a list, or from the variables that Slurm sets for every task. TensorFlow's
SlurmClusterResolver is not used, because it sorts host names alphabetically: with n9 and n10, task
0 on n9 considers itself to be n10, and both wait for each other forever.
"""

import itertools
import json
import os
import re
from collections.abc import Mapping

LOST_WORKER_STATUS = os.EX_UNAVAILABLE  # 69: exit status of a worker that lost another worker.

FIRST_PORT = 10000  # for jobs under Slurm; below Linux's ports of outgoing connections
NUM_PORTS = 20000


def tf_config(hosts: list[str], index: int) -> str:
    """Returns TF_CONFIG for the host at an index of a list of "name:port".

    Raises:
      ValueError: if there is no such index, a port is missing, or a host occurs twice.
    """
    if not 0 <= index < len(hosts):
        raise ValueError(f"Index {index} is not that of one of the {len(hosts)} hosts {hosts}.")
    for host in hosts:
        if not re.fullmatch(r"\S+:\d+", host):
            raise ValueError(f"Host {host!r} has no port; write it as {host or 'name'}:12345.")
    if len(set(hosts)) < len(hosts):
        raise ValueError(f"A host and port occur twice in {hosts}.")
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})


def read_tf_config() -> tuple[list[str], int]:
    """Returns the training hosts of TF_CONFIG, and the index of this host among them.

    Raises:
      ValueError: if it names no hosts.
    """
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        cluster = config.get("cluster", {})
        task = config.get("task", {})
        hosts = [*cluster.get("chief", []), *cluster.get("worker", [])]
        index, _ = worker_index(cluster, task.get("type", "worker"), int(task.get("index", 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"TF_CONFIG is not a JSON object of the form that TensorFlow reads: {error}."
        ) from None
    if not hosts:
        raise ValueError(
            "--distribution=multi_worker needs the hosts in the environment variable TF_CONFIG, "
            'for example {"cluster": {"worker": ["host1:12345", "host2:12345"]}, '
            '"task": {"type": "worker", "index": 0}}; bert_tf.launch sets it.'
        )
    return hosts, index


def worker_index(hosts: Mapping[str, list[str]], task_type: str, task_id: int) -> tuple[int, int]:
    """Returns the index of a host and the number of hosts; a "chief" precedes the workers.

    >>> worker_index({"chief": ["a"], "worker": ["b", "c"]}, "worker", 1)
    (2, 3)
    """
    num_chiefs = len(hosts.get("chief", []))
    num_hosts = num_chiefs + len(hosts.get("worker", []))
    if task_type == "worker":
        return num_chiefs + task_id, num_hosts
    return task_id, num_hosts


def expand(text: str) -> list[str]:
    """Expands a list of hosts in Slurm's short form, in its order.

    >>> expand("n[1-2,07-08],m5:2222,bert-[0-1].bert:2222")
    ['n1', 'n2', 'n07', 'n08', 'm5:2222', 'bert-0.bert:2222', 'bert-1.bert:2222']

    Raises:
      ValueError: if the text is not such a list.
    """
    part = r"(?:[^,\[\]\s]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
    if not re.fullmatch(f"{part}(?:,{part})*", text):
        raise ValueError(f"{text!r} is not a list of hosts such as n[1-4],m5.")
    hosts: list[str] = []
    for name in re.findall(part, text):
        choices = []
        # `split` alternates between text and the ranges in brackets.
        for index, part in enumerate(re.split(r"[\[\]]", name)):
            is_bracketed = index % 2 == 1
            choices.append(_numbers(part) if is_bracketed else [part])
        hosts += map("".join, itertools.product(*choices))
    return hosts


def _numbers(ranges: str) -> list[str]:
    """Returns the numbers of ranges such as 1-3,08."""
    numbers = []
    for span in ranges.split(","):
        first, _, last = span.partition("-")
        # Slurm keeps leading zeros: n[08-10] are n08, n09 and n10.
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last or first) + 1)]
    return numbers


def listed_config(hosts: str, index: int, environment: Mapping[str, str] = os.environ) -> str:
    """Returns TF_CONFIG for a list of hosts with ports in short form (see `expand`).

    A negative index means JOB_COMPLETION_INDEX, which Kubernetes sets.

    Raises:
      ValueError: if the index is not known.
    """
    text = str(index) if index >= 0 else environment.get("JOB_COMPLETION_INDEX", "")
    if not text.isdecimal():
        raise ValueError(
            f"Which of the hosts {hosts} is this one? Give --index. JOB_COMPLETION_INDEX, which "
            f"Kubernetes sets in an indexed Job, is {text!r}."
        )
    return tf_config(expand(hosts), int(text))


def slurm_config(environment: Mapping[str, str] = os.environ) -> str:
    """Returns TF_CONFIG for a task that srun started, with one task per node.

    The port is derived from the job's id, so two jobs on one node rarely have the same.

    Raises:
      ValueError: if one of Slurm's variables is missing, or there is not one task per node.
    """
    names = ("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_ID")
    nodelist, num_tasks, task, job = [environment.get(name, "") for name in names]
    if not (nodelist and num_tasks and task and job):
        raise ValueError(f"--slurm needs {', '.join(names)}; start the program with srun.")
    nodes = expand(nodelist)
    if int(num_tasks) != len(nodes):
        raise ValueError(
            f"--slurm: {num_tasks} tasks on {len(nodes)} nodes; give srun --ntasks-per-node=1, "
            f"because a task uses all GPUs of its node."
        )
    port = FIRST_PORT + int(job) % NUM_PORTS
    return tf_config([f"{node}:{port}" for node in nodes], int(task))
