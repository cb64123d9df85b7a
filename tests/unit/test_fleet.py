"""What travels to a bench and back is the same there; a fleet of Ray without a Ray."""

from __future__ import annotations

import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

import tuner
from tuner.bench_on_ray import Board
from tuner.errors import EnvironmentNotReadyError, TunerError
from tuner.fleet import BenchLostError, BenchPlace, Done, Need
from tuner.fleet_on_ray import RayFleet, _join
from tuner.machine.stop import Stop
from tuner.spec.metrics import METRICS, Metric
from tuner.spec.mistakes import Finding, Mistake


def kinds(of: type[TunerError] = TunerError) -> Iterator[type[TunerError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


def every_error() -> list[type[TunerError]]:
    for module in pkgutil.walk_packages(tuner.__path__, "tuner."):
        import_module(module.name)
    return sorted({k for k in kinds() if k.__module__.startswith("tuner.")}, key=str)


def made(kind: type[TunerError]) -> TunerError:
    if kind.__name__ == "SpecMistakesError":
        return kind([Mistake("spec.yaml", 3, 7, "slo", "no such metric")])  # type: ignore[arg-type]
    if kind.__name__ == "FindingsError":
        return kind([Finding(("slo",), "no such metric", hint="p99_latency")])  # type: ignore[arg-type]
    return kind("what happened", "what to do")


def test_each_error_is_the_same_in_another_process() -> None:
    errors = every_error()
    assert len(errors) > 15
    for kind in errors:
        error = made(kind)
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind
        assert (vars(back), back.args, str(back)) == (vars(error), error.args, str(error))
        assert back.exit_code == error.exit_code


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_metric_is_itself_in_another_process(metric: Metric) -> None:
    back, unit = pickle.loads(pickle.dumps((metric, metric.unit)))
    assert back is metric
    assert unit is metric.unit
    assert back.is_latency == metric.is_latency


class Ray:
    """Ends each piece of work as ``ends`` says: an error to raise, or a value."""

    def __init__(self, ends: list[Any]) -> None:
        self.ends, self.killed = ends, list[Any]()
        self.cluster = list[dict[str, Any]]()
        self.said = list[tuple[str, object]]()
        kinds = {"RayError": Exception}
        for name in ("OutOfMemoryError", "RayActorError"):
            kinds[name] = type(name, (Exception,), {})
        self.exceptions = SimpleNamespace(**kinds)
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, **__: None)
        self.util = SimpleNamespace(scheduling_strategies=strategies)

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "node")

    def remote(self, kind: type) -> Any:
        return Actor(kind is Board, self.started)

    def started(self, *work: Any) -> object:
        return object()

    def wait(self, references: list[object], timeout: float) -> tuple[list[object], list[object]]:
        del timeout
        return references[:1], references[1:]

    def get(self, reference: object, timeout: float = 0.0) -> Any:
        if isinstance(reference, list):
            said, self.said = self.said, []
            return said
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end, None

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)


class Actor:
    def __init__(self, board: bool, started: Any) -> None:
        self._board, self._started = board, started

    def options(self, **_: object) -> Actor:
        return self

    def remote(self, *_: object) -> Actor:
        return self

    def __getattr__(self, name: str) -> Any:
        answer: Any = self._started if name == "do" else lambda *_: []
        return SimpleNamespace(remote=answer)


def fleet_of(ray: Ray, benches: int = 2) -> RayFleet:
    fleet = RayFleet(ray, lambda *_: None, Stop())
    for number in range(benches):
        fleet.open(f"bench {number}", lambda *_: None, None, Need())  # type: ignore[arg-type,return-value]
        fleet.submit(f"bench {number}", None)
    return fleet


def test_task_that_ran_out_of_memory_is_repeated_once_alone() -> None:
    ray = Ray([])
    short = ray.exceptions.OutOfMemoryError("node killed workers")
    ray.ends = [short, "second", "first"]
    fleet = fleet_of(ray)
    assert [fleet.next_done() for _ in range(2)] == [
        Done("bench 1", "second"),
        Done("bench 0", "first"),
    ]


def test_task_that_runs_out_of_memory_twice_is_lost_with_its_node() -> None:
    ray = Ray([])
    ray.ends = [ray.exceptions.OutOfMemoryError("the server grew")] * 2
    error = fleet_of(ray, 1).next_done().error
    assert isinstance(error, BenchLostError)
    assert error.message == (
        "the bench of bench 0 is lost: its node ran out of memory, twice (the server grew)"
    )


@pytest.mark.parametrize("cause", [TunerError("what happened", "what to do"), None])
def test_other_error_of_ray_is_reported_by_its_cause_and_never_by_its_text(
    cause: TunerError | None,
) -> None:
    ray = Ray([])
    error = Exception("\x1b[36mray::do()\x1b[39m pid=7")
    error.cause = cause  # type: ignore[attr-defined]
    ray.ends = [error]
    failure = fleet_of(ray, 1).next_done().error
    assert failure is not None
    assert failure is cause or failure.message.startswith("a defect of a bench: ")
    assert "\x1b" not in failure.message


def test_cpus_are_given_to_one_bench_of_a_machine_at_a_time() -> None:
    board, one = Board(), Need(cpus=1)
    assert board.claim("a", "here", [2, 0, 1], Need(cpus=2)) == (0, 2)
    assert board.claim("b", "here", [2, 0, 1], Need(cpus=2)) is None
    assert board.claim("b", "here", [2, 0, 1], one) == (1,)
    assert board.claim("c", "there", [2, 0, 1], one) == (2,)
    assert board.claim("d", "here", [2, 0, 1], Need(cpus=1, named=(0,))) is None
    assert board.claim("a", "here", [2, 0, 1], Need(cpus=2)) == (0, 2)  # it was started again
    board.free("a")
    assert board.claim("d", "here", [2, 0, 1], Need(cpus=1, named=(0,))) == (0,)


def node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("nodes", "gpus", "beside", "need", "room"),
    [
        ([node("a", CPU=64.0, GPU=8.0)], None, None, Need(1, 8), 8),
        ([node("a", CPU=64.0, GPU=8.0)], 2, None, Need(2, 16), 4),
        ([node("a", CPU=64.0, GPU=8.0)], None, 3, Need(1, 8), 8),
        ([node("a", CPU=16.0, GPU=2.0), node("b", CPU=8.0)], None, None, Need(1, 8), 2),
        ([node("a", CPU=16.0), node("b", CPU=8.0)], 0, None, Need(0, 8), 3),
        ([node("a", CPU=2.0)], None, None, Need(0, 2), 1),
        ([node("a", CPU=2.0)], None, 2, Need(0, 1), 2),
        ([node("a", CPU=2.0)], None, 5, Need(0, 1), 2),
        ([node("a", CPU=16.0), node("b", CPU=8.0)], 0, 4, Need(0, 5), 4),
        ([node("a", CPU=4.0), node("b", alive=False, CPU=4.0)], None, None, Need(0, 4), 1),
    ],
)
def test_benches_share_the_cpus_of_nodes_by_their_gpus_or_as_many_as_are_wanted(
    nodes: list[dict[str, Any]], gpus: int | None, beside: int | None, need: Need, room: int
) -> None:
    ray = Ray([])
    ray.cluster = nodes
    fleet = RayFleet(ray, lambda *_: None, Stop())
    assert fleet.need(gpus, beside=beside) == need
    assert fleet.room(need) == room


def test_benches_that_name_the_same_cpus_have_room_on_different_nodes() -> None:
    ray = Ray([])
    ray.cluster = [node("a", CPU=4.0), node("b", CPU=4.0)]
    fleet = RayFleet(ray, lambda *_: None, Stop())
    assert fleet.room(Need(0, 1, named=(0,))) == 2


def test_bench_that_does_not_move_is_lost_with_its_node() -> None:
    ray = Ray(["done elsewhere"])
    ray.cluster = [node("a", alive=False, CPU=4.0), node("b", CPU=4.0)]
    fleet = RayFleet(ray, lambda *_: None, Stop())
    for name, where in (("bench 0", "a"), ("bench 1", "b")):
        fleet.open(name, lambda *_: None, None, Need(moves=False))  # type: ignore[arg-type,return-value]
        fleet.submit(name, None)
        ray.said.append((name, BenchPlace("host", node=where)))
    lost = fleet.next_done()
    assert isinstance(lost.error, BenchLostError)
    assert lost.error.message == "the bench of bench 0 is lost: its node is gone"
    assert fleet.next_done() == Done("bench 1", "done elsewhere")


class Starting:
    """A Ray that starts when it has failed so often."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.shutdowns = 0
        self._private = SimpleNamespace(worker=SimpleNamespace())

    def init(self, **_: object) -> None:
        if self.failures:
            raise Exception(self.failures.pop(0))  # noqa: TRY002 - as Ray does

    def shutdown(self) -> None:
        self.shutdowns += 1


SLOW = "The current node timed out during startup.\nSee the logs."


def test_ray_is_started_once_more_where_a_busy_machine_was_too_slow() -> None:
    ray = Starting(SLOW)
    _join(ray, None)
    assert (ray.failures, ray.shutdowns) == ([], 1)


@pytest.mark.parametrize(
    ("failures", "address", "said"),
    [
        ([SLOW, SLOW], None, "cannot start Ray: The current node timed out during startup."),
        (["no token"], None, "cannot start Ray: no token"),
        ([SLOW], "h:1", "cannot join the Ray cluster at h:1: The current node timed out"),
    ],
)
def test_a_ray_that_does_not_start_is_an_error_with_its_first_line(
    failures: list[str], address: str | None, said: str
) -> None:
    with pytest.raises(EnvironmentNotReadyError) as caught:
        _join(Starting(*failures), address)
    assert str(caught.value).startswith(said)
    assert "See the logs" not in str(caught.value)
    assert ("every node" in caught.value.hint) is (address is not None)
