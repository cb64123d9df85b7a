from __future__ import annotations

from pathlib import Path

import pytest
from builders.pages import NASTY, Made, with_result
from builders.runs import BETTER, CONFIG, Toy, make_run, with_config

from tuner.report.data import load
from tuner.report.render import (
    LIMIT,
    capped,
    patch_of,
    pull_request_of,
    write_proposal,
)


def test_the_body_names_no_place_of_the_machine(made: Made) -> None:
    text = pull_request_of(made("improved"))
    assert "/models/" not in text
    assert "--- a/toy/config.pbtxt\n" in text


def test_body_fits_and_drops_complete_parts_only(made: Made) -> None:
    data = with_result(made("improved"), diff="+ a line of a very long diff\n" * 5000)
    text = pull_request_of(data)
    assert len(text) <= LIMIT
    assert "very long diff" not in text
    assert text.count("```") % 2 == 0


def test_text_from_outside_stays_text(made: Made) -> None:
    assert "<img" not in pull_request_of(made("improved", model=NASTY)).split("```")[0]


@pytest.mark.parametrize("limit", [0, 10, 200, 1000])
def test_no_limit_is_exceeded(limit: int) -> None:
    assert len(capped(["one" * 50, "### two", "three" * 50], limit)) <= limit


def test_a_run_without_a_winner_proposes_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "other", Toy(trials=14), "kept")
    assert write_proposal(load(run)) == []


def test_the_patch_starts_at_the_root_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    config = tmp_path / "checkout" / "deploy" / "models" / "toy" / "config.pbtxt"
    patch = patch_of(with_config(make_run(tmp_path, Toy(trials=5)), config))
    name = "deploy/models/toy/config.pbtxt"
    assert patch.startswith(f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ ")
    for text, sign in ((CONFIG, "-"), (BETTER, "+")):
        (line,) = (t for t in text.splitlines() if t.startswith("max_batch_size"))
        assert f"\n{sign}{line}\n" in patch


def test_outside_a_checkout_it_starts_at_the_model_repository(tmp_path: Path) -> None:
    run = with_config(make_run(tmp_path), Path("/nowhere/models/toy/config.pbtxt"))
    assert "--- a/toy/config.pbtxt\n" in patch_of(run)


@pytest.mark.parametrize(
    "place", [Path("loop"), Path("/", *["x" * 200] * 50)], ids=["loop", "long"]
)
def test_impossible_path_is_reported_relative_to_the_repository(
    tmp_path: Path, place: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    run = with_config(make_run(tmp_path), tmp_path / place / "toy" / "config.pbtxt")
    assert "--- a/toy/config.pbtxt\n" in patch_of(run)


def test_both_files_lie_beside_the_best_config(tmp_path: Path) -> None:
    run = make_run(tmp_path, Toy(trials=14))
    paths = write_proposal(load(run))
    assert [p.relative_to(run).as_posix() for p in paths] == [
        "best/proposal.patch",
        "best/pull_request.md",
    ]
    assert all(p.stat().st_size > 0 for p in paths)
