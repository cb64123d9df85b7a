"""What held for long, and where an SLO begins to be missed: figures, picture and tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.pages import checks_of
from builders.runs import Toy, make_run
from builders.soaked_runs import soaked_run

from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import Soak
from tuner.record.noise import noise_of
from tuner.record.proved import ProvedConfig
from tuner.record.store import RunStore
from tuner.report.data import load
from tuner.report.headline import headline
from tuner.report.quantities import rate_text
from tuner.report.tables import comparison


def test_claim_above_the_load_of_the_rounds_rests_on_the_soak_alone(tmp_path: Path) -> None:
    run, soak = soaked_run(tmp_path, 1.2)
    assert soak.sustained is not None
    table = comparison(load(run))
    assert table is not None
    assert table.rows[0][2] == f"{rate_text(soak.sustained.throughput_infer_per_s)} for 30 s"


def test_a_soak_is_no_round(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", Toy(trials=20))
    run, _ = soaked_run(tmp_path / "soaked", 0.9)
    noise = [noise_of(RunStore.open(r).confirmation()) for r in (plain, run)]
    assert noise[0] == noise[1]
    data = load(run)
    assert data.best is not None
    assert len(data.best.rounds) == 3


@pytest.mark.parametrize("tried", [0, 1])
def test_claim_without_a_sustained_soak_is_that_of_the_rounds(tmp_path: Path, tried: int) -> None:
    run, soak = soaked_run(tmp_path, 0.9)
    result = json.loads((run / "result.json").read_text())
    proved = ProvedConfig.from_json(result["winner"])
    rounds = min(p.measurement.throughput_infer_per_s for p in proved.rounds)
    given_up = Soak(soak.tried[:tried], Reason(ReasonKind.LOAD_NOT_SENT))
    config = ProvedConfig.of(proved.candidate, proved.rounds, soak=given_up)
    result["winner"] = config.to_json()
    (run / "result.json").write_text(json.dumps(result))
    data = load(run)
    assert f"Better: {rate_text(rounds)} within " in headline(data)
    checks = checks_of(data)
    assert checks["soak"] == ("caution", given_up.reason)
    assert ("no" in [word for word, _ in checks.values()]) is bool(tried)
