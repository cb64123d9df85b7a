from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tuner.cli import cli
from tuner.cli.boundary import guarded
from tuner.cli.doctor_command import noise_lines
from tuner.confirm.repeatability import Settings, Spread, advice, rounds_needed
from tuner.errors import EnvironmentNotReadyError
from tuner.programs.noise import Noise
from tuner.server import binaries
from tuner.server.binaries import Installation, Origin
from tuner.triton.doctor import run_checks


def test_noise_without_a_spec_outside_a_checkout_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert guarded(cli, ["doctor", "--noise"]) == EnvironmentNotReadyError.exit_code
    assert "tune doctor --noise SPEC" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "warned"),
    [("2.51.0", True), ("2.59.0", True), ("2.59.1", False), ("2.60.0", False), ("odd", False)],
)
def test_a_server_with_public_holes_is_warned_of_and_fine_all_the_same(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def found(*_: object) -> Iterator[Installation]:
        yield Installation(Path("/t"), version, Origin.PATH, {})

    for program in ("tritonserver", "perf_analyzer"):
        monkeypatch.setattr(binaries, program, found)
    monkeypatch.setattr("tuner.triton.doctor.free_ports", lambda _: nullcontext((1, 2, 3)))
    check, *_ = run_checks({})
    assert (check.id, check.ok) == ("tritonserver", True)
    assert check.mend.startswith("older than release 25.07") is warned


def test_the_help_tells_of_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(cli, ["doctor", "--help"]) == 0
    assert "--noise" in capsys.readouterr().out


def noise(cv: float, disturbances: tuple[str, ...] = ()) -> Noise:
    settings = Settings(window_s=5.0, rounds=3, min_gain=0.02)
    return Noise(
        model="m",
        fingerprint="abc",
        measured_at="2025-03-01T10:00:00+00:00",
        config_sha256=None,
        spec_path="m.yaml",
        level=118.4,
        servers=3,
        throughput_within=Spread(0.001, 6),
        throughput_between=Spread(0.002, 3),
        p99_within=Spread(0.0242, 6),
        p99_between=Spread(None, 1),
        capacity=Spread(cv, 3),
        settings=settings,
        advice=advice(cv * math.sqrt(2), settings, 20.0),
        neighbour="instances 2",
        comparison=Spread(cv * math.sqrt(2), 3),
        seconds=80.0,
        disturbances=disturbances,
    )


def test_the_settings_to_change_stand_beside_what_they_are_now() -> None:
    lines = noise_lines(noise(0.0175))
    needed = rounds_needed(0.0175 * math.sqrt(2), 0.02)
    assert f"confirm.rounds    {needed}  (now 3)" in lines
    assert any("rounds (" in line and f"{needed} rounds" in line for line in lines)
    assert "workload.window   5.0s  (as now)" in lines
    assert any("2.42%" in line for line in lines)
    assert any("ratio of the two" in line and "2.47%" in line for line in lines)
    assert any("uncertain by about 50%" in line for line in lines)


def test_a_disturbed_measurement_is_not_passed_off_as_the_machines_own() -> None:
    lines = noise_lines(noise(0.001, ("Other processes took 40 %.",)))
    assert "DISTURBED: Other processes took 40 %. Measure again when the machine is quiet." in lines
    assert "confirm.rounds    3  (as now)" in lines
