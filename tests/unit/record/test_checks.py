"""The accepted result that a check is compared with, and the load its config is credited with."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders.candidates import the_one
from builders.checks import row
from builders.messages_measuring import BASELINE, KEY
from builders.soaked_runs import soaked_run

from tuner.errors import TunerError
from tuner.reason import Reason, ReasonKind
from tuner.record.checks import (
    HISTORY,
    Baseline,
    HistoryRow,
    append_history,
    baseline_path,
    credited_level,
    find_baseline,
    history,
    question_of,
    write_baseline,
)
from tuner.record.store import RunStore
from tuner.spec.load import load_spec

ROOT = Path(__file__).parents[3]
OTHER_MACHINE = replace(KEY, machine="b" * 16)


def a_row(number: int) -> HistoryRow:
    return HistoryRow.model_validate(row(number))


def spec(tmp_path: Path, old: str = "", new: str = "", name: str = "s.yaml"):  # type: ignore[no-untyped-def]
    text = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    assert old in text
    path = tmp_path / name
    path.write_text(text.replace(old, new) if old else text)
    return load_spec(path).spec


def test_accepted_baseline_reads_back_unchanged(tmp_path: Path) -> None:
    path = write_baseline(tmp_path, BASELINE)
    assert path == tmp_path / "baselines" / f"m-{KEY.fingerprint}.json"
    assert find_baseline(tmp_path, KEY) == BASELINE


def test_baseline_of_another_machine_is_refused_unless_allowed(tmp_path: Path) -> None:
    write_baseline(tmp_path, BASELINE)
    refused = find_baseline(tmp_path, OTHER_MACHINE)
    assert isinstance(refused, Reason)
    assert (refused.kind, refused.facts["machine"]) == (
        ReasonKind.ACCEPTED_ELSEWHERE,
        "Toy CPU, 2 cores",
    )
    assert find_baseline(tmp_path, OTHER_MACHINE, any_machine=True) == BASELINE


def test_baseline_of_this_machine_precedes_any_other(tmp_path: Path) -> None:
    write_baseline(tmp_path, replace(BASELINE, key=OTHER_MACHINE, accepted_at="2026"))
    write_baseline(tmp_path, BASELINE)
    assert find_baseline(tmp_path, KEY, any_machine=True) == BASELINE


def test_history_keeps_the_last_and_passes_over_a_torn_line(tmp_path: Path) -> None:
    assert history(tmp_path, KEY, 3) == []
    for number in range(5):
        append_history(tmp_path, KEY, a_row(number))
    (path,) = (tmp_path / "baselines").glob("*.history.jsonl")
    with path.open("a") as file:
        file.write('{"run_id": "r5')
    assert history(tmp_path, KEY, 3) == [a_row(2), a_row(3), a_row(4)]
    assert json.loads(path.read_text().splitlines()[0])["run_id"] == "r0"


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("p99_latency <= 40ms", "p99_latency <= 30ms", "slo"),
        ("{kind: poisson}", "{kind: bursts}", "workload"),
        ("maximize goodput", "minimize p99_latency at 300/s", "objective"),
    ],
)
def test_change_of_the_spec_changes_one_part_of_the_question(
    tmp_path: Path, old: str, new: str, part: str
) -> None:
    before, after = question_of(spec(tmp_path)), question_of(spec(tmp_path, old, new))
    assert [name for name in before if before[name] != after[name]] == [part]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{trials: 24, time: 75s}", "{trials: 9}"),
        ("75s}", "75s}\nconfirm: {rounds: 5}"),
        ("[8, 16, 32]", "[16, 32]"),
    ],
)
def test_the_search_is_no_part_of_the_question(tmp_path: Path, old: str, new: str) -> None:
    assert question_of(spec(tmp_path)) == question_of(spec(tmp_path, old, new))


@pytest.mark.parametrize("kind", ["trace", "recording"])
def test_a_file_counts_by_its_content_wherever_it_lies(tmp_path: Path, kind: str) -> None:
    hashed = []
    for directory, gaps in (("a", "100\n"), ("b", "100\n"), ("c", "200\n")):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "gaps.txt").write_text(gaps)
        new = f"{{kind: {kind}, file: gaps.txt}}"
        hashed.append(question_of(spec(tmp_path / directory, "{kind: poisson}", new)))
    assert hashed[0] == hashed[1] != hashed[2]


def test_a_models_name_is_no_pattern(tmp_path: Path) -> None:
    odd = replace(KEY, model="m[1]")
    write_baseline(tmp_path, replace(BASELINE, key=replace(OTHER_MACHINE, model="m[1]")))
    write_baseline(tmp_path, replace(BASELINE, key=replace(OTHER_MACHINE, model="m1")))
    reason = find_baseline(tmp_path, odd, any_machine=True)
    assert isinstance(reason, Baseline)
    assert reason.key.model == "m[1]"


def test_a_torn_line_does_not_swallow_the_next_check(tmp_path: Path) -> None:
    append_history(tmp_path, KEY, a_row(1))
    path = baseline_path(tmp_path, KEY).with_suffix(".history.jsonl")
    path.write_bytes(path.read_bytes() + b'{"n": 2, "at')
    append_history(tmp_path, KEY, a_row(3))
    assert history(tmp_path, KEY, 10) == [a_row(1), a_row(3)]


@pytest.mark.parametrize("suffix", [".json", ".history.jsonl"])
def test_pipe_in_place_of_a_file_is_reported_without_blocking(tmp_path: Path, suffix: str) -> None:
    path = baseline_path(tmp_path, KEY).with_suffix(suffix)
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(TunerError, match="pipe"):
        find_baseline(tmp_path, KEY) if suffix == ".json" else history(tmp_path, KEY, 3)


def test_baseline_and_history_are_not_written_through_linked_files(tmp_path: Path) -> None:
    results = tmp_path / "results"
    paths = [baseline_path(results, KEY), baseline_path(results, KEY).with_suffix(HISTORY)]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        (tmp_path / path.name).write_text("theirs")
        path.symlink_to(tmp_path / path.name)
    write_baseline(results, BASELINE)
    assert find_baseline(results, KEY) == BASELINE
    with pytest.raises(TunerError, match="is a link to"):
        append_history(results, KEY, a_row(1))
    assert [(tmp_path / path.name).read_text() for path in paths] == ["theirs"] * 2


def test_baselines_outlive_a_checkout_in_a_linked_directory(tmp_path: Path) -> None:
    results, kept = tmp_path / "results", tmp_path / "kept"
    results.mkdir()
    kept.mkdir()
    baseline_path(results, KEY).parent.symlink_to(kept)
    write_baseline(results, BASELINE)
    append_history(results, KEY, a_row(1))
    assert find_baseline(results, KEY) == BASELINE
    assert len(list(kept.iterdir())) == 2


def test_another_mix_is_another_question(tmp_path: Path) -> None:
    def question(share: int, space: str = "{int: [1, 4]}") -> dict[str, str]:
        path = tmp_path / "mix.yaml"
        path.write_text(
            f"repository: {ROOT / 'model_repository'}\n"
            f"models: {{tokenizer: {{}}, tiny-bert: {{space: {{instance_group.count: {space}}}}}}}"
            "\n"
            "streams:\n"
            f"  texts: {{model: tiny-bert, share: {share}%, slo: [p99_latency <= 40ms]}}\n"
            f"  words: {{model: tokenizer, share: {100 - share}%, slo: [p99_latency <= 10ms]}}\n"
        )
        return question_of(load_spec(path).spec)

    before, after = question(75), question(80)
    assert [name for name in before if before[name] != after[name]] == ["mix"]
    assert question(75, "{int: [1, 8]}") == before


def test_a_neighbour_that_is_only_loaded_makes_another_question(tmp_path: Path) -> None:
    def question(models: str) -> dict[str, str]:
        more = f"models: {{{models}}}\nspace:"
        return question_of(spec(tmp_path, "space:", more, name="beside.yaml"))

    alone, step = question(""), "tokenizer: {space: {instance_group.count: {int: [1, 4]}}}"
    assert "mix" not in alone
    assert question(step) == alone, "what is searched of it does not matter"
    assert question("tokenizer: {}") != question("tiny-bert: {}") != alone
    assert question(f"{step}, tiny-bert: {{}}") == question("tiny-bert: {}")


def test_a_written_config_has_the_load_of_its_run_while_it_is_in_place(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    then = RunStore.open(run).manifest()
    written = json.loads((run / "result.json").read_text())["written"]["sha256_after"]
    now = replace(then, models={"m": replace(the_one(then.models), sha256=written)})
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)
    assert credited_level(tmp_path, then) is None  # it was taken back
    assert credited_level(tmp_path, replace(now, fingerprint="another machine")) is None
    other = replace(now, spec={**now.spec, "slo": ["p99_latency <= 1ms"]})
    assert credited_level(tmp_path, other) is None
    shutil.copytree(run, tmp_path / run.name.replace("2", "3", 1))  # a newer run left a proposal
    newer = tmp_path / run.name.replace("2", "3", 1) / "result.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"written": None}))
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)
    (run / "result.json").write_text("{")
    assert credited_level(tmp_path, now) is None


def test_a_kept_config_has_the_load_of_its_run(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9, "baseline")
    now = RunStore.open(run).manifest()
    assert credited_level(tmp_path, now) == pytest.approx(soak.credited_level)


def test_a_config_has_no_load_of_a_run_that_replayed_another_recording(tmp_path: Path) -> None:
    """The file has the same name, and holds something else now."""
    run, soak = soaked_run(tmp_path, 0.9, "baseline")
    then = replace(RunStore.open(run).manifest(), load_files={"workload.arrivals.file": "1" * 64})
    (run / "manifest.json").write_text(json.dumps(then.to_json()))
    assert credited_level(tmp_path, then) == pytest.approx(soak.credited_level)
    now = replace(then, load_files={"workload.arrivals.file": "2" * 64})
    assert credited_level(tmp_path, now) is None
