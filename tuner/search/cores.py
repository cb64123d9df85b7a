"""How server and load generator share the CPUs of a run: decided once, before measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.errors import TrialError
from tuner.lint.model_py import threads_left_open
from tuner.load import seeds
from tuner.machine.cpus import LITTLE, Cores, Sharing, core_count, decide_sharing, may_be_first
from tuner.meter.rates import SLOW_S
from tuner.meter.session import set_up_bench
from tuner.modelconfig.schema import enum_name
from tuner.modelconfig.values import FieldValue
from tuner.prepare.job import Job
from tuner.prepare.serving import Serving
from tuner.prepare.timebook import TimeBook
from tuner.progress.events import Events, Silent
from tuner.search.first_load import at_once
from tuner.space.candidate import Candidate, variable
from tuner.space.parameters import Knob
from tuner.spec.model import Spec
from tuner.spec.units import Percent
from tuner.triton.launchers import cores_of

_THREADS = "intra_op_thread_count"
_LEAVES = (
    f"ONNX Runtime without {_THREADS} has a thread for each CPU of the machine, and each on its CPU"
)
_FOLLOWS = (
    "{} of {} makes as many threads as the server has CPUs, and the server would have fewer beside "
    "a load generator with CPUs of its own"
)
#: Backends that start as many threads as the server has CPUs, and the parameter that sets them.
_COUNTED_BY = {"pytorch": "INTRA_OP_THREAD_COUNT", "openvino": "INFERENCE_NUM_THREADS"}
_NOT_FIRST = "real-time priority is not permitted here (CAP_SYS_NICE, RLIMIT_RTPRIO)"


def settle_cores(
    served: Serving,
    events: Events,
    book: TimeBook,
    checkpoint: Callable[[], None],
    known: Cores | None = None,
    likely: Sequence[Candidate] = (),
) -> Cores:
    """The CPUs of server and load generator, by the spec or by a measurement, noted in ``events``.

    To be called before any measurement that counts.

    Args:
        known: The earlier decision, where this is a part of a run or is compared with one.
        likely: Configs that may be better than the current one, the likeliest first: the first
            one that can be served decides.

    Raises:
        EnvironmentNotReadyError: The spec names CPUs that tune may not use here.
        InterruptedRunError: The user stopped it.
    """
    spec = served.job.spec
    if not _is_open(spec):
        if said := cores_note(served.job):
            events.note(said)
        return cores_of(spec)
    sharing, why = _expected_sharing(served.job)
    if known is not None:
        sharing, why = known.sharing, ""
    elif sharing is None:
        events.phase("measuring how much of a CPU the load generator uses")
        share = _load_cores(served, book, checkpoint, likely)
        sharing = Sharing.APART
        if share is not None:
            decided = decide_sharing(share, may_be_first=True, needs_all_cpus=False)
            sharing = decided or sharing
            why = f"the load generator takes {Percent(round(share, 3))} of one at saturation"
    cores = cores_of(spec, sharing)
    first = ", the latter with priority" if sharing is Sharing.TOGETHER and may_be_first() else ""
    events.note(f"{cores}{first}: {why}" if why else f"{cores}{first}")
    return cores


def cores_note(job: Job) -> str:
    """What is known about the CPUs before a server starts, in words; empty without a choice."""
    if not _is_open(job.spec):
        cores = cores_of(job.spec)
        if cores.server and leaves_its_cpus(job):
            return f"{cores}: {_LEAVES}: threads are put back, but as many; set their count"
        return str(cores) if job.spec.server.managed else ""
    sharing, why = _expected_sharing(job)
    if sharing is not None:
        return f"{cores_of(job.spec, sharing)}: {why}"
    return (
        f"{cores_of(job.spec)} where the latter takes less than {Percent(LITTLE)} of one at "
        f"saturation, else {cores_of(job.spec, Sharing.APART)}"
    )


def _is_open(spec: Spec) -> bool:
    """Whether the spec leaves the decision to the run, and the machine has several CPUs."""
    return (
        spec.server.managed
        and spec.server.cpus is None
        and spec.workload.cpus != "all"
        and core_count() > 1
    )


def _expected_sharing(job: Job) -> tuple[Sharing | None, str]:
    """The decision without a measurement, None where one is needed, and the reason in words."""
    needs_all = _LEAVES if leaves_its_cpus(job) else _follows_its_cpus(job)
    first = may_be_first()
    sharing = decide_sharing(None, may_be_first=first, needs_all_cpus=bool(needs_all))
    return sharing, needs_all or ("" if first else _NOT_FIRST)


def leaves_its_cpus(job: Job) -> bool:
    """Whether a config of the run starts a thread per CPU of the machine, not of the server."""
    for label, model in job.served.models.items():
        if model.files.backend(model.base.file) != "onnxruntime":
            continue
        searched = _searched(job, Knob(label, f"parameters.{_THREADS}"))
        if any(value is None or _is_open_count(str(value)) for value in searched):
            return True
        given = model.base.completed.parameters
        if _is_open_count(given[_THREADS].string_value if _THREADS in given else ""):
            return True
    return False


def _follows_its_cpus(job: Job) -> str:
    """Why a config starts fewer threads where the server has fewer CPUs; "" if it does not.

    With fewer CPUs, two instances with such threads seem better than they are, and a variable that
    limits threads seems useless: an XGBoost model was credited with 1,584/s on one of two CPUs, and
    its p99 at that rate was 4 s on both.
    """
    for label, model in job.served.models.items():
        config, backend = model.base.completed, model.files.backend(model.base.file)
        groups = {enum_name(group, "kind") for group in config.instance_group}
        if groups == {"KIND_GPU"}:
            continue
        if counted := _COUNTED_BY.get(backend, ""):
            searched = _searched(job, Knob(label, f"parameters.{counted}"))
            if counted not in config.parameters and (not searched or None in searched):
                return _FOLLOWS.format(backend, model.name)
        limits = threads_left_open(model.files, config).values()
        if any(_is_open_variable(job, name) for name in limits):
            return _FOLLOWS.format("a runtime", model.name)
    return ""


def _searched(job: Job, knob: Knob) -> Sequence[FieldValue]:
    """The values that the search may give a field; empty if the field is not searched."""
    return next((tuple(p) for p in job.space.parameters if p.knob == knob), ())


def _is_open_variable(job: Job, name: str) -> bool:
    """Whether the current config or a candidate runs without this environment variable."""
    now = job.space.current.start.environment.get(name)
    return now is None or None in _searched(job, variable(name))


def _is_open_count(text: str) -> bool:
    """Whether ONNX Runtime chooses the count itself: there is none, or none above 0."""
    return not text or text.strip().startswith("-") or not text.strip("0 ")


def _load_cores(
    served: Serving,
    book: TimeBook,
    checkpoint: Callable[[], None],
    likely: Sequence[Candidate],
) -> float | None:
    """Cores that the load generator uses while a config is saturated.

    The config is the first of ``likely`` and the current one that can be served. 0 for a slow
    model, which answers few requests; None where no config can be measured.
    """
    job, seed = served.job, seeds.of_search(served.job.spec.search.seed)
    with set_up_bench(served, Silent(), book, checkpoint) as bench:
        for candidate in (*likely, job.space.current):
            try:
                bench.deploy(candidate)
                alone_s = bench.one_at_a_time(seed)[""]
                if alone_s >= SLOW_S:
                    return 0.0
                measured = bench.saturate(at_once(alone_s), seed)
                break
            except TrialError as error:
                bench.lost(error.reason)
        else:
            return None
    share, rate = measured.client_cores, measured.requests_per_s
    if share is None or rate <= 0.0:
        return None
    listed = job.plan.listed if job.plan.arrivals.open_loop else None
    return share * min(max(listed) / rate, 1.0) if listed else share
