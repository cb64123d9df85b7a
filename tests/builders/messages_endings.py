"""How runs end that do not come to their end, on an emulated bench: what stands on the terminal."""

from __future__ import annotations

import errno
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import click
import pytest
from builders.events import Watching
from builders.jobs import SPEC, Facts
from builders.measurements import P99_40MS, synthetic_measurement
from builders.messages_writes import failing
from builders.model_files import REPOSITORY, shipped_config, write_model
from builders.refusals import Case
from builders.series import make_specs, series_in
from builders.workplace import MODEL, Workplace, best_of, interrupt

from tuner.errors import DeployRefusedError, EnvironmentNotReadyError, InterruptedRunError
from tuner.prepare.job import Job, Request
from tuner.prepare.serving import Serving
from tuner.record.confirmation import Repeat, Role
from tuner.record.result_schema import RunDecision
from tuner.record.store import RunStore
from tuner.report import render
from tuner.run import run as pipeline
from tuner.run.plan import draw_plan
from tuner.score.point import judge_point
from tuner.score.trial import Trial

#: What comes before the run that is shown: it may begin one, and answers the words that go on.
Before = Callable[[Workplace, pytest.MonkeyPatch], Sequence[object]]
RUN_ID = re.compile(r"\d{8}-\d{6}-([\w-]+?)(-[0-9a-f]{4,})?(?=[/'\s:;,)]|$)", re.MULTILINE)


def ended(before: Before) -> Case:
    """The standard error of a `tune` with its exit code."""

    def case(here: Path) -> str:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            workplace = Workplace(here, patch)
            with redirect_stdout(out), redirect_stderr(out):
                words = before(workplace, patch)
            with redirect_stdout(out), redirect_stderr(err):
                code = workplace.tune(*map(str, words))
        text = re.sub(r"[0-9a-f]{16} now", "FINGERPRINT now", click.unstyle(err.getvalue()))
        stable = RUN_ID.sub(r"ID-\1", text).rstrip()
        return f"{stable}\n({code})"

    return case


OPTIONS = (
    *("--no-write", "--seed", "7", "--trials", "3", "--time-budget", "10m"),
    *("--output", "results"),
)
NEW = ("run", "my spec.yaml", "--progress", "none")


def interrupted(workplace: Workplace, *options: str) -> Sequence[object]:
    """A run stopped after its second trial, and the words that go on with it."""
    workplace.bench.then = {1: interrupt}
    assert workplace.tune(*NEW, *options) == 130
    workplace.bench.then = {}
    return "run", "--resume", workplace.store.directory, "--progress", "none"


def twice_measured(session: Any, trials: Sequence[Trial], _: object) -> RunDecision:
    """A proof that measured the winner twice at one load."""
    verdict = best_of(trials)
    assert verdict.winner is not None
    for number, p99_us in enumerate((20e3, 22e3)):
        point = judge_point([P99_40MS], synthetic_measurement(100.0, p99_us))
        session.record(Repeat(number, 0, Role.CANDIDATE, verdict.winner.candidate.key, point))
    return verdict


def forge(run: Path, facts: Mapping[str, object] = MappingProxyType({}), **chosen: object) -> None:
    """Has a run or a series say that it was started with these choices."""
    (path,) = (p for n in ("manifest", "series") if (p := run / f"{n}.json").exists())
    kept = json.loads(path.read_text())
    kept["choices"].update(chosen)
    path.write_text(json.dumps({**kept, **facts}))


def new_after(change: Callable[[Workplace], object], *more: str) -> Case:
    def before(workplace: Workplace, _: pytest.MonkeyPatch) -> Sequence[object]:
        change(workplace)
        return *NEW, *more

    return ended(before)


def resumed_after(change: Callable[[Workplace], object], *more: str, first: str = "") -> Case:
    def before(workplace: Workplace, _: pytest.MonkeyPatch) -> Sequence[object]:
        words = interrupted(workplace, *first.split())
        change(workplace)
        return *words[:1], *more, *words[1:]

    return ended(before)


def in_trial(number: int, act: Callable[[Workplace], object]) -> Case:
    return new_after(lambda w: w.bench.then.update({number: lambda: act(w)}))


def edit(path: Path, more: str = "# more\n") -> None:
    path.write_text(path.read_text() + more)


def where(name: str) -> Case:
    """The disk is full whenever the run's store does this."""

    def before(_: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
        patch.setattr(RunStore, name, failing(errno.ENOSPC))
        return NEW

    return ended(before)


def full_for_good(_: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
    for name in ("append_trial", "write_result"):
        patch.setattr(RunStore, name, failing(errno.ENOSPC))
    return NEW


def left(_: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
    @contextmanager
    def find_programs(*_: object) -> Iterator[Any]:
        yield Facts()
        raise EnvironmentNotReadyError("g:1 is not as it was found")

    patch.setattr(pipeline, "find_programs", find_programs)
    return NEW


def refused(workplace: Workplace) -> None:
    def out_of_memory() -> None:
        raise DeployRefusedError("out of memory")

    workplace.bench.then = dict.fromkeys(range(8), out_of_memory)


def proving(workplace: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
    patch.setattr(pipeline, "prove", twice_measured)
    workplace.overloading = interrupt
    return NEW


def reported(_: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
    """A signal comes once the result is stored."""
    real, signals = render.report_run, [InterruptedRunError("interrupted")]

    def report(directory: Path) -> None:
        if signals:
            raise signals.pop()
        real(directory)

    patch.setattr(render, "report_run", report)
    return NEW


def latin_1(workplace: Workplace) -> None:
    workplace.config.write_bytes(workplace.config.read_bytes() + b"# caf\xe9\n")
    space = "space: {parameters.language: {choice: [de, fran\u00e7ais]}, "
    spec = workplace.spec.read_text(encoding="utf-8").replace("space: {", space)
    workplace.spec.write_text(spec, encoding="utf-8")


def foreign_trial(workplace: Workplace) -> None:
    path = workplace.store.directory / "trials.jsonl"
    first, second = path.read_text().splitlines()
    row = json.loads(second)
    row["candidate"]["models"][MODEL] = {"parameters.EXECUTION_ENV_PATH": "/x"}
    path.write_text(f"{first}\n{json.dumps(row)}\n")


def of_a_series(change: Callable[[Path], object], *named: str) -> Case:
    def before(workplace: Workplace, _: pytest.MonkeyPatch) -> Sequence[object]:
        make_specs(Path(), 2)
        workplace.bench.then = {1: interrupt}
        words = ("run", "specs/*.yaml", "--no-write", "--progress", "none")
        assert workplace.tune(*words) == 130
        directory = series_in(workplace.results)
        change(directory)
        return "run", *named, "--resume", directory, "--progress", "none"

    return ended(before)


def moved(workplace: Workplace) -> None:
    workplace.spec.rename("moved.yaml")


def other_spec(workplace: Workplace) -> None:
    shutil.copy(workplace.spec, "other.yaml")
    edit(Path("other.yaml"))


def stopped_runs() -> dict[str, Case]:
    return {
        "stopped in its second trial": in_trial(1, lambda _: interrupt()),
        "stopped after its config was edited": in_trial(1, lambda w: (edit(w.config), interrupt())),
        "stopped with options of its own": ended(
            lambda w, _: (w.bench.then.update({1: interrupt}), (*NEW, *OPTIONS))[1]
        ),
        "stopped while it proved the winner": ended(proving),
        "stopped after its result was stored": ended(reported),
        "its config was edited while it searched": in_trial(1, lambda w: edit(w.config)),
        "its directory was removed": in_trial(2, lambda w: shutil.rmtree(w.store.directory)),
        "its server is not as it was found": ended(left),
        "every config was refused": new_after(refused),
        "the disk is full at a trial": where("append_trial"),
        "the disk is full at the winner's config": where("write_best"),
        "nothing can be found in its time": new_after(lambda _: None, "--time-budget", "2s"),
        "its results cannot be where they are to be": new_after(
            lambda _: None, "--output", "my spec.yaml/results"
        ),
        "its config is in Latin-1 and its space is not": new_after(latin_1),
    }


def resumed_runs() -> dict[str, Case]:
    def nothing(_: object) -> None:
        pass

    return {
        "another seed": resumed_after(nothing, "--seed", "8", first="--seed 7"),
        "its spec was edited": resumed_after(lambda w: edit(w.spec)),
        "its spec is another": resumed_after(other_spec, "other.yaml"),
        "its spec moved": resumed_after(moved),
        "its config was edited": resumed_after(lambda w: edit(w.config)),
        "it would set a value of the spec": resumed_after(
            lambda w: forge(
                w.store.directory, overrides=["server.binary=/evil.sh", "model=\x1b[2J\n x"]
            )
        ),
        "it was not begun here": resumed_after(lambda _: shutil.rmtree("state")),
        "a trial is of no config of the space": resumed_after(foreign_trial),
        "a series, and a spec was edited": of_a_series(lambda _: edit(Path("specs/model-01.yaml"))),
        "a series, and the machine is another": of_a_series(
            lambda d: forge(d, {"fingerprint": "1" * 16})
        ),
        "a series, and a spec is not named": of_a_series(lambda _: None, "specs/model-00.yaml"),
    }


def noted_runs() -> dict[str, Case]:
    """What a run notes while it goes on, and what its result says of a defect."""

    def noted(before: Before) -> Case:
        def case(here: Path) -> list[str]:
            watching = Watching()
            with pytest.MonkeyPatch.context() as patch:
                workplace = Workplace(here, patch)
                before(workplace, patch)
                state = here / "state"
                request = Request(workplace.spec, workplace.results, write=False, state=state)
                with suppress(ZeroDivisionError, OSError, EnvironmentNotReadyError):
                    pipeline.run(request, watching, lambda _: None)
                results = [RunStore(run).result() for run in workplace.results.iterdir()]
            ends = dict.fromkeys(reason for r in results if r for reason in r.reasons)
            notes = [re.sub(r"\d+:\d\d|[\d.]+ minutes", "TIME", note) for note in watching.notes]
            return [*notes, *(f"ended: {reason}" for reason in ends)]

        return case

    def loading(_: Workplace, patch: pytest.MonkeyPatch) -> Sequence[object]:
        @contextmanager
        def serving(job: Job, *_: object) -> Iterator[Serving]:
            yield Serving(job, cast("Any", None), cast("Any", SimpleNamespace(memory=dict)), 60.0)

        patch.setattr(pipeline, "serving", serving)
        return ()

    def before(workplace: Workplace, _: pytest.MonkeyPatch) -> Sequence[object]:
        workplace.tune(*NEW, "--no-write")
        return ()

    def breaking(workplace: Workplace, _: pytest.MonkeyPatch) -> Sequence[object]:
        def breaks() -> None:
            raise ZeroDivisionError("oops")

        workplace.overloading = breaks
        return ()

    return {
        "a run": noted(lambda *_: ()),
        "its model loads for a minute": noted(loading),
        "there was one before": noted(before),
        "a defect of tune": noted(breaking),
        "the disk is full and stays so": noted(full_for_good),
    }


PAIR = REPOSITORY.parent / "benchmarks" / "searches" / "served_models"
FILE = "workload: {inputs: {kind: file, file: recorded.json}}\n"
RECORDING = (
    "workload: {arrivals: {kind: recording, file: requests.jsonl}, "
    "inputs: {kind: recording, file: recorded.json}}\n"
)
REMOTE = "server: {mode: remote, http: 'h:1', grpc: 'h:2'}\n"
READ = 'parameters.intra_op_thread_count: {choice: ["1", "2"]}, '
NOT_READ = READ.replace("intra_op_thread_count", "INTRA_OP_THREADS")


def plans() -> dict[str, Case]:
    """What a plan notes of models and servers that are special, or ends with."""

    def planned(make: Callable[[Path], object], spec: str) -> Case:
        def case(here: Path) -> list[str]:
            make(here)
            (here / "spec.yaml").write_text(spec)
            plan = draw_plan(here / "spec.yaml", {"PATH": ""}, 0)
            return [*plan.notes, replace(plan, space_exact=False).space_text]

        return case

    def onnx(config: str | None = None) -> Callable[[Path], object]:
        def make(here: Path) -> None:
            model = here / "models" / "m"
            write_model(model, config or "")
            (model / "1" / "model.onnx").touch()
            if config is None:
                (model / "config.pbtxt").unlink()

        return make

    def link(here: Path) -> None:
        write_model(here / "real" / "m", shipped_config(REPOSITORY / MODEL), "class Model: ...\n")
        (here / "models").mkdir()
        (here / "models" / "m").symlink_to(here / "real" / "m")

    def record(here: Path) -> None:
        write_model(here / "models" / "m", shipped_config(REPOSITORY / MODEL), "class Model: ...\n")
        row = {"x": {"content": [1.0] * 64, "shape": [64]}}
        (here / "recorded.json").write_text(json.dumps({"data": [row]}))
        lines = [json.dumps({"due_s": k / 8, "entry": 0}) for k in range(601)]
        (here / "requests.jsonl").write_text("\n".join(lines))

    def without_backends(here: Path) -> None:
        onnx('platform: "onnxruntime_onnx"')(here)
        server = here / "server" / "bin" / "tritonserver"
        server.parent.mkdir(parents=True)
        server.write_text("#!/no/such/program\n")
        server.chmod(0o755)
        (here / "server" / "backends" / "python").mkdir(parents=True)

    spec = SPEC.format(repository="models").replace(MODEL, "m")
    pair = (PAIR / "pair.yaml").read_text().replace("repository: .", f"repository: {PAIR}")
    return {
        "a mistyped repository": planned(lambda here: (here / "modls").mkdir(), spec),
        "a batch size that is left to the server": planned(onnx(), spec + REMOTE),
        **{
            f"a parameter that its backend {what}": planned(
                onnx('platform: "onnxruntime_onnx"'),
                spec.replace("space: {", f"space: {{{parameter}") + REMOTE,
            )
            for what, parameter in (("reads", READ), ("does not read", NOT_READ))
        },
        "requests of a file for a server elsewhere": planned(record, spec + REMOTE + FILE),
        "requests of a recording for a server elsewhere": planned(
            record, spec + REMOTE + RECORDING
        ),
        "a model behind a link": planned(link, spec + REMOTE),
        "a server without the backend": planned(
            without_backends, spec + "server: {binary: server/bin/tritonserver}\n"
        ),
        "a load that perf_analyzer cannot make": planned(
            lambda _: None, f"{pair}\nserver: {{binary: /usr/bin/env}}\n"
        ),
    }
