"""TF_CONFIG from lists, Slurm's variables and Kubernetes' index."""

import json
import re

import pytest

from bert_tf.system.hosts import expand, listed_config, slurm_config, tf_config

SLURM = {
    "SLURM_STEP_NODELIST": "n[9-10],m5",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_JOB_ID": "39999",
}


def test_slurm_numbers_tasks_node_by_node():
    """Not in the order of words, in which n10 comes before n9; outgoing ports begin at 32768."""
    config = json.loads(slurm_config(SLURM))
    assert config["cluster"]["worker"] == ["n9:29999", "n10:29999", "m5:29999"]
    assert config["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"SLURM_PROCID": ""}, "--slurm .*SLURM_PROCID.*srun"),
        ({"SLURM_PROCID": "5"}, "Index 5.*3 hosts"),
        ({"SLURM_STEP_NUM_TASKS": "6"}, "--slurm: 6 tasks .*3 nodes; .*--ntasks-per-node=1"),
        ({"SLURM_STEP_NODELIST": "n[1-3"}, r"'n\[1-3' .*n\[1-4\],m5"),
    ],
)
def test_contradictions_of_slurm_are_said(changed, message):
    with pytest.raises(ValueError, match=message):
        slurm_config(SLURM | changed)


def test_short_forms():
    assert expand("n[08-11]") == ["n08", "n09", "n10", "n11"]
    assert expand("r[1-2]n[3,5]:7,a:1") == ["r1n3:7", "r1n5:7", "r2n3:7", "r2n5:7", "a:1"]
    for text in ("", "n[1-2", "n]", "a,,b", "n[a-b]", "n[1--2]", "a b"):
        with pytest.raises(ValueError, match=rf"{re.escape(repr(text))} .*n\[1-4\],m5"):
            expand(text)


def test_the_index_comes_from_the_flag_or_from_kubernetes():
    pod = {"JOB_COMPLETION_INDEX": "1"}
    assert json.loads(listed_config("a:1,b:1", -1, pod))["task"]["index"] == 1
    assert json.loads(listed_config("a:1,b:1", 0, pod))["task"]["index"] == 0
    with pytest.raises(ValueError, match="a:1,b:1"):
        listed_config("a:1,b:1", -1, {})


def test_wrong_hosts_are_said():
    for hosts, message in ((["a"], "a:12345"), (["a:1", "a:1"], r"\['a:1', 'a:1'\]")):
        with pytest.raises(ValueError, match=message):
            tf_config(hosts, 0)
