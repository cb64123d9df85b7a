"""What commands say of the runs and checks that they are given, besides showing them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from builders.checks import facts
from builders.commands import called
from builders.messages_commands import edit, put
from builders.refusals import Case
from builders.runs import CONFIG, RUNS, Toy, edit_config, make_run, stored_run

ROOT = Path(__file__).parents[2]
SIZED = RUNS / "one-model"
WHERE = "--repository models"
SEARCHED = ("tiny-bert", "tokenizer")


def noted(*lines: str) -> str:
    """What `tune` notes on stderr at each of these lines, and its exit code."""
    printed = []
    for words in lines:
        code, _, err = called(*words.split())
        said = err.replace(sys.executable, "python")  # may be in ROOT
        printed.append(f"$ tune {words}\n{said}({code})".replace(str(ROOT), "ROOT"))
    return "\n".join(printed)


def lines(*words: str, make: Callable[[Path], object] = lambda _: None) -> Case:
    def case(here: Path) -> str:
        make(here)
        return noted(*words)

    return case


def sized_run(
    parent: Path,
    *,
    soak: dict[str, Any] | None = None,
    measured: dict[str, Any] | None = None,
    manifest: dict[str, Any] | None = None,
) -> Path:
    """A stored run with other facts: of its winner's soak, of the measurement in it, of the run."""
    run = Path(shutil.copytree(SIZED, parent / "run"))
    result = json.loads((run / "result.json").read_text())
    winner = result["winner"]["soak"]
    winner["tried"][0]["measurement"].update(measured or {})
    winner.update(soak or {})
    edit(run, "result", result)
    edit(run, "manifest", manifest or {})
    return run


def put_several(here: Path) -> Path:
    """A run that searched two models, not written yet, and their configs as it read them."""
    run = stored_run(here)
    edit(run, "result", {"written": None})
    for name in SEARCHED:
        (here / "models" / name / "1").mkdir(parents=True)
        (here / "models" / name / "config.pbtxt").write_text(CONFIG.replace("toy", name))
    return run


def put_one(here: Path) -> Path:
    run = make_run(here / "made", Toy(trials=5))
    put(run, here)
    shutil.rmtree(here / "made")
    return here / "run"


def link_config(here: Path) -> None:
    put_one(here)
    config = here / "models" / "toy" / "config.pbtxt"
    (here / "models" / "configs").mkdir()
    config.rename(here / "models" / "configs" / "toy.pbtxt")
    config.symlink_to(here / "models" / "configs" / "toy.pbtxt")


def move_away(here: Path) -> None:
    edit_config(put_one(here), path="/ci/models/toy/config.pbtxt")


def add_a_model(run: Path) -> Path:
    models = json.loads((run / "result.json").read_text())["models"]
    edit(run, "result", {"models": {**models, "other": models["tokenizer"]}})
    return run


def edit_tokenizer(run: Path) -> Path:
    (run.parent / "models" / "tokenizer" / "config.pbtxt").write_text("# by hand\n")
    return run


def several(*words: str, change: Callable[[Path], Path] = lambda run: run) -> Case:
    def case(here: Path) -> str:
        run = change(put_several(here)).name
        return noted(*(line.replace("RUN", run) for line in words))

    return case


def write_twice(here: Path) -> None:
    """By two runs, the later of which is the last."""
    put_one(here)
    for name in ("earlier", "later"):
        run = Path(shutil.copytree(here / "run", here / name))
        (here / "models" / "toy" / "config.pbtxt").write_text(CONFIG)
        edit(run, "manifest", {"run_id": name})
        noted(f"apply {name}")


def from_elsewhere(here: Path) -> str:
    put_one(here)
    noted("apply run")
    (here / "elsewhere").mkdir()
    with chdir(here / "elsewhere"):
        return noted("rollback ../run")


def nowhere(here: Path) -> str:
    (here / "gone").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here / "gone")
        (here / "gone").rmdir()
        return noted("init m")


def write_check(here: Path) -> None:
    (here / "nightly").mkdir()
    (here / "nightly" / "check.json").write_text(facts().model_dump_json())
    (here / "nightly" / "manifest.json").write_text("{}")


def named() -> dict[str, Case]:
    """By what is special about a run, or a place."""
    sample = ROOT / "results" / "sample"
    size = "size run --rate 500/s"
    closed = {"load": {"arrivals": "closed", "level": 8.0}}
    wrong = ("--rate=fast", "--rate=0/s", "--headroom=130%", "--headroom=30", "--price=-1/h")
    no_soak = {"tried": [], "reason": "confirm.soak is 0"}
    return {
        "the config is a link": lines("apply run --dry-run", "apply run", make=link_config),
        "it is of another machine": lines(
            f"apply run {WHERE} --dry-run", f"apply run {WHERE}", make=move_away
        ),
        "it is taken back": lines(
            "apply run", "rollback run --dry-run", "rollback run", make=put_one
        ),
        "it is taken back from elsewhere": from_elsewhere,
        "another run wrote after it": lines("rollback earlier", "rollback later", make=write_twice),
        "it searched several models": several(
            f"apply RUN {WHERE} --dry-run",
            f"apply RUN {WHERE}",
            f"rollback tokenizer {WHERE} --output .",
            f"rollback tokenizer {WHERE} --output elsewhere",
        ),
        "one of its configs was edited": several(f"apply RUN {WHERE}", change=edit_tokenizer),
        "its result names a model more": several(f"apply RUN {WHERE}", change=add_a_model),
        "only its result is there": lines(
            f"report {sample}", f"report --format json {sample}", f"compare {sample} {sample}"
        ),
        "it is a check": lines("report nightly --format patch", make=write_check),
        "its clients wait for answers": lines(size, make=lambda h: sized_run(h, measured=closed)),
        "no load is credited": lines(size, make=lambda here: sized_run(here, soak=no_soak)),
        "wrong numbers": lines(*(f"{size} {number}" for number in wrong), make=sized_run),
        "the working directory is gone": nowhere,
    }
