"""That the whole writes of `fuzz.writes` are made, and that one which is not exact is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import writes
from fuzz.targets import CONFIG
from fuzz.watch import BadBehaviourError
from fuzz.writes import done, write_and_take_back
from unit.modelconfig.configs import GOOD

from tuner.modelconfig.edit import edit
from tuner.run.result_schema import ChangedConfig
from tuner.steps.outcome import Change
from tuner.writeback.written import Written, WrittenFile


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.pbtxt").write_bytes(CONFIG)
    return tmp_path / "models"


def test_every_published_config_is_written_and_taken_back_exactly(repository: Path) -> None:
    before = done.copy()
    for seed, path in enumerate(GOOD):
        (repository / "m" / "config.pbtxt").write_bytes(path.read_bytes())
        write_and_take_back(seed, repository)
    made = done - before
    assert made["candidates"] >= len(GOOD)
    assert made["fields"] >= len(GOOD) / 2


NOTHING_WRITTEN = WrittenFile(Path(), Path(), None, None, None, changed=False, notes=())


def drawn_up(text: str) -> Change:
    return Change({"": ChangedConfig(config_before=text, config_after=f"{text} ")}, "")


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("edit", lambda text, fields: edit(text, fields).replace("# one", "# two")),
        ("draw_up", lambda job, candidate: drawn_up(job.served.models[""].files.text)),
        ("rollback", lambda repository, model: None),
        ("apply", lambda plan: Written((NOTHING_WRITTEN,), "run")),
    ],
)
def test_a_write_that_is_not_exact_is_noticed(
    repository: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: object
) -> None:
    write_and_take_back(1, repository)
    monkeypatch.setattr(writes, name, broken)
    with pytest.raises((BadBehaviourError, AssertionError)):
        write_and_take_back(1, repository)
