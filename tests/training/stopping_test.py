"""Notices of a preemption: noted where work is finished in order, raised elsewhere."""

import os
import signal

import pytest

from bert_tf.training.stopping import PREEMPTED, Stopped, StopRequest, stoppable

NOTICES = [signal.SIGTERM, signal.SIGUSR1]


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def same_after():
    before = [signal.getsignal(number) for number in (*NOTICES, signal.SIGINT)]
    yield
    assert [signal.getsignal(number) for number in (*NOTICES, signal.SIGINT)] == before


@pytest.mark.parametrize("number", NOTICES)
def test_a_notice_ends_work_with_a_status_of_its_own(number):
    done = []

    def work():
        try:
            done.append("begun")
            send(number)
            done.append("went on")
        except Exception:  # Nothing that expects errors of work takes a notice for one.
            done.append("taken for an error")
        finally:
            send(number)  # A second one does not disturb the end.
            done.append("ended")
        return 0

    assert stoppable(work) == PREEMPTED == 75
    assert done == ["begun", "ended"]


@pytest.mark.parametrize("number", NOTICES)
def test_a_notice_is_noted_where_work_must_be_finished(number):
    def work():
        with StopRequest() as request:
            assert not request.number
            send(number)
            send(signal.SIGTERM)
            assert request.number == number
        raise Stopped(request.number)

    assert stoppable(work) == PREEMPTED


def test_without_a_notice_the_status_is_that_of_the_work():
    assert stoppable(lambda: 0) == 0
    assert stoppable(lambda: 3) == 3
    with pytest.raises(ValueError, match="wrong"):
        stoppable(lambda: (_ for _ in ()).throw(ValueError("wrong")))


def test_control_c_has_the_status_that_it_always_had():
    with StopRequest() as request:
        send(signal.SIGINT)
        assert request.number == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # The second stops at once.
    assert Stopped(request.number).exit_status == 130
    with pytest.raises(KeyboardInterrupt):
        stoppable(lambda: send(signal.SIGINT))
