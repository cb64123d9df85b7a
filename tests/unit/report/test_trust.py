"""Whether the answer may be trusted: each check with a word in front."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.pages import Made, checks_of, text_of, told
from builders.soaked_runs import soaked_run

from tuner.load.probes.lone import LoneRequests
from tuner.load.watch.machine import disturbances
from tuner.measurement.measurement import HostUse
from tuner.measurement.window import LatencyBound
from tuner.record.proved import ProvedConfig
from tuner.report.data import ReportData, load
from tuner.report.trust import trust
from tuner.space.words import changes_text

SAME = "Answers to 16 requests are the current config's (floats within 0.001)."
QUIET = HostUse(other_cpu_percent=1.0, stalled_percent=0.0)


def on(config: ProvedConfig | None, host: HostUse) -> ProvedConfig:
    """The config as if it had been measured on such a machine."""
    assert config is not None
    rounds = (replace(p, measurement=replace(p.measurement, host=host)) for p in config.rounds)
    return ProvedConfig.of(config.candidate, [*rounds], soak=config.soak)


def said_of_it(data: ReportData, text: str) -> str:
    """A reason of the run, told of the config that the answer is about."""
    assert data.shown_config is not None
    return f"{changes_text(data.shown_config.candidate, data.manifest.current)}: {text}"


def with_host(data: ReportData, host: HostUse) -> ReportData:
    return replace(data, current=on(data.current, host), best=on(data.best, host))


def word_of(data: ReportData) -> str:
    table = trust(data)
    assert table is not None
    return table.caption.removeprefix("May I trust it? ")


def test_yes_is_said_where_rounds_soak_answers_and_machine_had_no_fault(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    data = load(run)
    data = with_host(told(data, reasons=(said_of_it(data, SAME),)), QUIET)
    assert data.best is not None
    held = replace(soak, tried=soak.tried[1:])
    clean = replace(data, best=ProvedConfig.of(data.best.candidate, data.best.rounds, soak=held))
    assert word_of(clean) == "YES"
    assert [word for word, _ in checks_of(clean).values()] == ["yes"] * 4
    assert word_of(data) == "WITH CARE"  # the claim had to be lowered
    assert "| no | soak at 1,936/s |" in text_of(data)


@pytest.mark.parametrize(
    ("host", "check", "word", "found"),
    [
        (QUIET, "quiet machine", "yes", "at most 1% of the CPU"),
        (replace(QUIET, cores=2), "quiet machine", "yes", "at most 1% of 2 cores"),
        (replace(QUIET, other_cpu_percent=0.2), "quiet machine", "yes", "at most 0.2% of the CPU"),
        (replace(QUIET, stalled_percent=0.3), "quiet machine", "yes", "at most 1.3% of the CPU"),
        (replace(QUIET, other_cpu_percent=34.0), "busy machine", "care", "at most 34% of the CPU"),
        (HostUse(), "machine", "care", "what others took of the CPU is not known"),
    ],
)
def test_whether_the_machine_was_quiet_is_told(
    made: Made, host: HostUse, check: str, word: str, found: str
) -> None:
    known, said = checks_of(with_host(made("improved"), host))[check]
    assert known == word
    assert found in said


def test_beside_a_machine_that_stood_still_nobody_is_said_to_have_taken_nothing(
    tmp_path: Path,
) -> None:
    """Nor where that was in a soak that did not hold."""
    run, soak = soaked_run(tmp_path, 0.9)
    data = with_host(load(run), QUIET)
    assert data.best is not None
    lost, held = soak.tried
    still = replace(lost.measurement, host=HostUse(other_cpu_percent=0.0, stalled_percent=0.3))
    still = replace(still, disturbances=disturbances(still, LatencyBound(0.999, 0.04)))
    best = replace(data.best, soak=replace(soak, tried=(replace(lost, measurement=still), held)))
    known, said = checks_of(replace(data, best=best))["busy machine"]
    assert (known, still.disturbances[0] in said) == ("care", True)
    assert "1% of the CPU: The machine stood still for 0.3% of the time" in said


def test_what_was_left_out_changed_or_never_soaked_is_told(made: Made) -> None:
    data = made("improved")
    changed = said_of_it(data, "It changes answers: y.")
    checks = checks_of(told(data, reasons=("Left out for lack of time: overloading.", changed)))
    assert checks["left out for lack of time"] == ("not done", "overloading")
    assert checks["answers"] == ("no", "It changes answers: y.")
    assert checks["no soak"][0] == "care"


def test_only_the_answers_of_the_config_that_is_written_are_held_against_it(made: Made) -> None:
    """A simpler config was asked first, and did not hold."""
    data = made("improved")
    simpler = "instances 7: It changes answers: y."
    table = trust(told(data, reasons=(simpler, said_of_it(data, SAME))))
    assert table is not None
    assert [row for row in table.rows if row[1] == "answers"] == [("yes", "answers", SAME)]


@pytest.mark.parametrize(("served", "word"), [(30, "yes"), (28, "no")])
def test_a_config_that_refuses_lone_requests_after_an_overload_is_not_to_be_trusted(
    made: Made, served: int, word: str
) -> None:
    data = made("improved")
    probes = data.result.overload
    assert probes is not None
    assert probes.winner is not None
    assert "after an overload" not in checks_of(data)  # no policy of it refuses requests
    winner = replace(probes.winner, lone=LoneRequests(30, served, 12e3))
    known, said = checks_of(told(data, overload=replace(probes, winner=winner)))[
        "after an overload"
    ]
    assert (known, said) == (
        word,
        f"{served} of 30 lone requests were served, each within 12 ms",
    )


def test_a_round_that_was_missed_is_counted_with_the_latency_found(made: Made) -> None:
    data = made("improved", slo=("p99_latency <= 40ms",))
    assert data.best is not None
    first, *rest = data.best.rounds
    missed = replace(first, slo=tuple(replace(s, verdict=s.verdict.FAIL) for s in first.slo))
    shown = replace(data, best=ProvedConfig.of(data.best.candidate, [missed, *rest]))
    assert checks_of(shown)["2 of 3 rounds on fresh servers"][0] == "no"


def test_an_open_answer_is_not_to_be_trusted_and_a_failed_run_makes_no_claim(made: Made) -> None:
    assert word_of(made("not known")) == "NO"
    assert trust(made("failed")) is None
