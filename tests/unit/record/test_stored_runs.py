"""Runs, a check and a baseline as they were written: they open, and come back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.reasons import texts

from tuner.errors import SpecError
from tuner.reason import ReasonKind
from tuner.record.checks import Baseline, read_check
from tuner.record.earlier import reasons_of_earlier, result_of_earlier, with_data
from tuner.record.identity import question_in
from tuner.record.noise import noise_of
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Result
from tuner.record.store import RunStore
from tuner.report import markdown
from tuner.report.compare import compared
from tuner.report.data import load
from tuner.report.run_document import document
from tuner.report.terminal import lines_of
from tuner.spec.load import load_spec

OLD = Path(__file__).parents[2] / "runs" / "one-model"
STORE = RunStore(OLD)


def rows(name: str) -> list[Any]:
    return [json.loads(line) for line in (OLD / name).read_text().splitlines()]


def stored_json(name: str) -> Any:
    return json.loads((OLD / name).read_text())


READ: dict[str, Callable[[], list[Any]]] = {
    "trials.jsonl": STORE.trials,
    "rejected.jsonl": STORE.rejected,
}


@pytest.mark.parametrize("name", READ)
def test_rows_are_read_and_written_with_the_same_keys_and_values(name: str) -> None:
    written = [row.to_json() for row in READ[name]()]
    kept = [reasons_of_earlier(row, "reason") for row in without_workers(rows(name))]
    assert without_empty(written) == without_empty(with_data(kept))


def test_the_manifest_comes_back_as_it_was_written() -> None:
    (kept,) = without_workers([stored_json("manifest.json")])
    assert plain(STORE.manifest().to_json()) == kept


def without_workers(kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what earlier versions kept of workers; these runs had none."""
    bare = [{key: value for key, value in row.items() if key != "worker"} for row in kept]
    for row in bare:
        assert row.get("choices", {}).pop("storage", None) is None
    return bare


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"models": None}])
def test_a_manifest_of_another_version_is_refused_by_its_number(
    change: dict[str, Any], tmp_path: Path
) -> None:
    kept = {**stored_json("manifest.json"), **change}
    manifest = {key: value for key, value in kept.items() if value is not None}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SpecError, match=f"manifest version {kept['schema_version']} of another"):
        RunStore(tmp_path).manifest()


def test_the_spec_of_the_manifest_is_that_of_todays_reading(tmp_path: Path) -> None:
    """Else two runs of one spec, before and after, could not be compared."""
    old = stored_json("manifest.json")
    path = tmp_path / "tune.yaml"
    path.write_text(f"{old['spec_text']}budget: {{trials: 6}}\n")  # the command line's word
    today, then = load_spec(path).spec.plain(), old["spec"]
    assert Path(today.pop("repository")).name == Path(then.pop("repository")).name
    for part in ("confirm", "check", "search"):  # how it is found, proved, checked is not asked
        assert today.pop(part) != then.pop(part)
    assert today == then
    assert question_in(today) == question_in(then)


def test_a_baseline_keeps_its_keys_and_values() -> None:
    assert plain(Baseline.from_json(stored_json("baseline.json")).to_json()) == stored_json(
        "baseline.json"
    )


def test_the_run_is_reported() -> None:
    data = load(OLD)
    report = "\n".join(lines_of(document(data)))
    assert data.finished
    assert (
        "emulated-accelerator: Better: 384/s within p99 <= 40 ms (before: 95.9/s), written"
        in report
    )
    assert "soak at 384/s" in report
    assert len(data.repeats) == len(rows("confirmation.jsonl"))
    assert data.result.noise is not None
    assert plain(noise_of(STORE.confirmation()).to_json()) == stored_json("result.json")["noise"]  # type: ignore[union-attr]


def test_a_run_of_an_ensemble_is_read_and_comes_back_as_it_was_written() -> None:
    store = RunStore(OLD.with_name("ensemble"))
    files = {path.name: path.read_text() for path in store.directory.iterdir()}
    (kept,) = without_workers([json.loads(files["manifest.json"])])
    assert plain(store.manifest().to_json()) == kept
    trials = without_workers([json.loads(line) for line in files["trials.jsonl"].splitlines()])
    written = [trial.to_json() for trial in store.trials()]
    assert without_empty(written) == without_empty(with_data(trials))
    result = store.result()
    assert result is not None
    earlier = result_of_earlier(json.loads(files["result.json"]))
    assert without_empty(result.to_json()) == without_empty(earlier)
    assert {*result.models} == {"tiny-bert", "tokenizer"}
    text = markdown.render(document(load(store.directory)))
    assert "a request of the stream interactive spends" in text
    store.manifest().refuse_if_different(store.manifest())


def test_stored_run_is_compared_with_itself() -> None:
    comparison = compared(OLD, OLD)
    assert comparison.incomparable == ()
    assert comparison.ratio is not None
    assert comparison.ratio.estimate == pytest.approx(1.0)


def test_stored_result_comes_back_as_it_was_written() -> None:
    result = STORE.result()
    assert result is not None
    earlier = result_of_earlier(stored_json("result.json"))
    assert without_empty(result.to_json()) == without_empty(earlier)
    assert texts(result.why) == stored_json("result.json")["reasons"]
    assert [reason.kind for reason in result.why] == [ReasonKind.TEXT, ReasonKind.ANSWERS_SAME]


def test_stored_run_is_resumed_with_the_same_spec_alone() -> None:
    before = STORE.manifest()
    before.refuse_if_different(STORE.manifest())
    with pytest.raises(SpecError, match="was edited"):
        before.refuse_if_different(replace(before, spec_sha256="another"))


def test_the_check_is_read() -> None:
    checked = read_check(OLD)
    earlier = result_of_earlier(stored_json("check.json"))
    assert without_empty(checked.to_json()) == without_empty(earlier)
    assert checked.status.value == "fine"
    assert checked.baseline is not None


def test_sentences_of_earlier_measurements_are_unchanged() -> None:
    """Their data is the sentence alone, so that bounds and rounds count as before."""
    kept = stored_json("result.json")
    warned = kept["winner"]["rounds"][0]["measurement"]
    warned["warnings"], warned["disturbances"] = ["Only 3 requests."], ["It paused."]
    kept["winner"]["soak"] |= {"reason": "no answer", "limited": ["it was behind"]}
    kept["overload"] = {"current": None, "winner": None, "reasons": ["current config: none"]}
    result = Result.from_json(kept)
    assert result.winner is not None
    measurement, soak = result.winner.rounds[0].measurement, result.winner.soak
    assert measurement.warning_texts == ("Only 3 requests.",)
    assert measurement.disturbance_texts == ("It paused.",)
    assert soak is not None
    assert (soak.reason, soak.limited) == ("no answer", ("it was behind",))
    assert [reason.kind for reason in soak.behind] == [ReasonKind.CLIENT_BEHIND]
    assert result.overload is not None
    assert result.overload.reasons == ("current config: none",)


def test_reasons_of_slos_and_soaks_that_were_texts_have_the_same_words() -> None:
    kept = stored_json("result.json")
    winner = kept["winner"]
    behind, busy = "answered 90% of what was due", "Other processes took 74% of the CPU"
    winner["rounds"][0]["slo"][0] |= {"verdict": "not steady", "reason": behind}
    winner["soak"]["tried"][0]["excuse"] = busy
    miss = {"kind": "disturbed_miss", "subject": "", "facts": {"disturbances": busy}, "causes": []}
    winner["soak"] |= {"reason": f"it missed: {busy}", "reason_data": miss}
    winner["shapes"] = [shape_of(winner["rounds"][0])]
    proved = Result.from_json(kept).winner
    assert proved is not None
    assert proved.soak is not None
    (slo, *_), (shape,), tried = proved.rounds[0].slo, proved.shapes, proved.soak.tried[0]
    assert [slo.reason, shape.slo[0].reason] == [behind, behind]
    assert tried.excuse is not None
    assert (tried.excuse_text, tried.excuse.kind) == (busy, ReasonKind.TEXT)
    assert proved.soak.reason == f"it missed an SLO on a disturbed machine: {busy}"
    assert ProvedConfig.from_json(proved.to_json()) == proved


def shape_of(point: dict[str, Any]) -> dict[str, Any]:
    """The figures of one shape, as an earlier version stored them."""
    percentiles = {f"p{number}_latency_us": 1e3 for number in (50, 90, 95, 99)}
    rates = {"throughput_infer_per_s": 9.0, "goodput_infer_per_s": None}
    return {"shape": "s", "stream": "", "share": 1.0, **rates, **percentiles, "slo": point["slo"]}


def plain(data: Any) -> Any:
    return json.loads(json.dumps(data))


def without_empty(data: Any) -> Any:
    """Plain, without empty reasons of soaks and SLOs: earlier versions left them out."""
    if isinstance(data, dict):
        names = ("limited", "limited_data", "excuse", "excuse_data")
        empty = {k for k in names if k in data and not data[k]}
        return {k: without_empty(v) for k, v in data.items() if k not in empty}
    return [without_empty(item) for item in data] if isinstance(data, (list, tuple)) else data
