"""Why a worker does not join a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.jobs import Facts, opened
from builders.joining import a_random_search, request_of, url_of
from builders.model_files import REPOSITORY, shipped_config, write_model
from builders.refusals import Case
from builders.told_runs import noted

from tuner.bench.job import Job, job_from
from tuner.cli.storage import warn_of_password
from tuner.search.study.offer import find_offer
from tuner.spec.load import load_spec
from tuner.workers.worker import (
    refuse_another_machine,
    refuse_another_spec,
    refuse_other_configs,
    refuse_other_files,
)


def offered(act: Callable[[Job, Any], object]) -> Case:
    """With the offer of a run that searches."""

    def told(here: Path) -> None:
        job = a_random_search(here)
        with opened(job, request_of(job, here)) as run:
            offer = find_offer(url_of(run), run.store.run_id)
        act(job, offer)

    return told


def searching(called: str, *, ended: bool = False) -> Case:
    def told(here: Path) -> None:
        job = a_random_search(here)
        with opened(job, request_of(job, here)) as run:
            if not ended:
                find_offer(url_of(run), called)
        find_offer(url_of(run), called)

    return told


SPEC = Path(__file__).parents[1] / "cases" / "good" / "minimal.yaml"
#: What `tune worker` is given wrong, and how it ends.
MISTAKES = {
    "": 2,
    f"{SPEC}": 2,
    "no-such-run": 2,
    f"{SPEC} --gpus first --storage sqlite:///x.db": 2,
    "m --storage sqlite:///x.db": 2,
    f"{SPEC} --storage sqlite:///x.db": 4,
    f"{SPEC} --storage nonsense": 4,
}
URL = "postgresql://tuner:hunter2@db/optuna"


def mistaken() -> dict[str, Case]:
    """What `tune worker` says of what it is given, and of a storage with a password."""

    def worker(words: str, storage: str = "", **patched: object) -> Case:
        def told(_: Path) -> str:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TUNE_STORAGE", storage)
                for name, value in patched.items():
                    patch.setattr(name.replace("__", "."), value)
                return noted(f"worker {words}")

        return told

    def unreachable(*_: object, **__: object) -> None:
        raise RuntimeError(f"no server answers for {URL}")

    def warned(_: Path) -> list[str]:
        notes: list[str] = []
        warn_of_password(URL, notes.append)
        return notes

    offers = "tuner__search__study__offer__"
    empty = {
        f"{offers}open_storage": lambda _: SimpleNamespace(get_all_studies=list),
        f"{offers}close_storage": lambda _: None,
    }
    return {
        **{words.replace(str(SPEC), "SPEC") or "nothing": worker(words) for words in MISTAKES},
        "a port that is no number": worker(f"{SPEC}", URL.replace("@db", "@db:port")),
        "a storage that does not answer": worker(
            f"{SPEC}", URL, optuna__storages__RDBStorage=unreachable
        ),
        "a storage without a run": worker(f"{SPEC}", URL, **empty),
        "a storage for a name": worker(f"m {URL}"),
        "a password for all to see": warned,
    }


def not_joined() -> dict[str, Case]:
    def machine(**facts: object) -> Case:
        def act(_: Job, offer: Any) -> None:
            there = replace(offer.manifest, fingerprint="1" * 16, **facts)
            refuse_another_machine(there, Facts())  # type: ignore[arg-type]

        return offered(act)

    def spec(_: Job, offer: Any) -> None:
        text = Path("spec.yaml").read_text()
        own = Path("own.yaml")
        own.write_text(text.replace("40ms", "50ms") + "workload: {window: 5s}\n")
        refuse_another_spec(load_spec(own), offer)

    def config(job: Job, offer: Any) -> None:
        shipped = shipped_config(REPOSITORY / job.spec.name)
        write_model(
            Path("models") / job.spec.name, shipped.replace("batch_size: 16", "batch_size: 4")
        )
        loaded = load_spec(job.loaded.path, [f"repository={Path.cwd() / 'models'}"])
        refuse_other_configs(job_from(loaded, loaded.spec, {}), offer.manifest)

    def files(job: Job, _: Any) -> None:
        refuse_other_files(job, "r", {"emulated-accelerator/1/model.py": "0" * 16, "workload": "0"})

    return {
        "no run has that name": searching("nothing"),
        "the run has ended": searching("a-run", ended=True),
        "its storage is not there": lambda here: find_offer(f"sqlite:///{here / 'none.db'}", "m"),
        "the run's machine is another": machine(),
        "the run's machine has a GPU": machine(gpus=[{"name": "NVIDIA H200", "driver": "570"}]),
        "its spec is another": offered(spec),
        "its config is another": offered(config),
        "its files are others": offered(files),
    }
