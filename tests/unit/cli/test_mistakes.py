"""The mistakes that a newcomer made, again: each is told with its place and what to do about it."""

from __future__ import annotations

from pathlib import Path

from builders.commands import Tune
from builders.workplace import MODEL, Workplace


def test_mistakes_around_a_run_that_is_emulated(workplace: Workplace, tmp_path: Path) -> None:
    tune, repository = workplace.tune, workplace.config.parents[1]
    assert isinstance(tune, Tune)

    def expect_error(code: int, words: str, *arguments: object) -> None:
        assert tune(*arguments) == code, tune.err
        assert words in tune.err + tune.out
        assert "Traceback" not in tune.err

    own = ("rollback", MODEL, "--repository", repository)
    expect_error(2, "nothing to restore: tune never wrote", *own)
    assert tune("run", "my spec.yaml", "--progress", "none") == 0
    run, written = workplace.store.directory, workplace.config.read_text()
    (tmp_path / "elsewhere").mkdir()
    expect_error(2, "did you mean run --on ray?", "worker", run)
    expect_error(2, "is not a run: it has no manifest.json", "report", "elsewhere")
    expect_error(
        4, f"no model directory elsewhere/{MODEL}", "apply", run, "--repository", "elsewhere"
    )
    workplace.config.write_text(f"{written}# mine\n")
    expect_error(13, "nothing was written", "apply", run)
    expect_error(13, "--force` replaces it", *own)
    workplace.config.write_text(written)
    expect_error(0, "restored: ", *own)
    expect_error(0, "already restored: ", *own)
    expect_error(0, "Better, taken back", "report")
