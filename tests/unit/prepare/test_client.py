"""Who measures follows from the spec and the model; `golden/messages` holds what is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.messages_requests import IMAGE, sent

from tuner.errors import SpecError
from tuner.load.generators import PERF_ANALYZER, TUNE_CLIENT
from tuner.prepare import job as job_steps
from tuner.prepare.sending import refuse_unreachable, sending_notes
from tuner.prepare.tools import choose_generator, client_notes


def test_small_tensors_are_measured_with_perf_analyzer(tmp_path: Path) -> None:
    small = sent(tmp_path)
    assert choose_generator(small).kind is PERF_ANALYZER
    assert client_notes(small) == []
    assert [*sending_notes(small, {})] == []  # of tune's own client


def test_without_perf_analyzer_the_client_of_tune_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_steps, "has_perf_analyzer", lambda *_: False)
    assert choose_generator(sent(tmp_path)).kind is TUNE_CLIENT


@pytest.mark.parametrize(("cost_s", "costly"), [(0.0007, False), (0.02, True)])
def test_run_reports_client_time_for_images_if_large_against_the_latency(
    cost_s: float, costly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def cost(size_bytes: int, *_: object) -> float:
        sizes.append(size_bytes)
        return cost_s

    monkeypatch.setattr("tuner.prepare.sending.request_cost_s", cost)
    images = sent(tmp_path, IMAGE)
    assert choose_generator(images).kind is TUNE_CLIENT
    (note,) = sending_notes(images, {})
    assert f" {1e3 * cost_s:g} ms " in note
    assert sizes == [3 * 224 * 224 * 4]
    assert [*sending_notes(images, {}, costly_only=True)] == ([note] if costly else [])


@pytest.mark.parametrize(
    ("space", "batching"),
    [
        ("dynamic_batching.default_queue_policy.max_queue_size: {choice: [0, 64]}", ""),
        ("", "default_queue_policy { max_queue_size: 64 }"),
    ],
)
def test_a_space_that_may_refuse_requests_is_measured_with_one_client(
    tmp_path: Path, space: str, batching: str
) -> None:
    """Its configs that refuse none as well, or two kinds of latency would be compared."""
    assert choose_generator(sent(tmp_path, batching=batching, space=space)).kind is TUNE_CLIENT


@pytest.mark.parametrize(("cost_s", "refused"), [(0.03, False), (0.2, True)])
def test_an_slo_below_what_the_client_takes_is_refused(
    cost_s: float, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.prepare.sending.request_cost_s", lambda *_: cost_s)
    images = sent(tmp_path, IMAGE)
    (bound,) = images.spec.slos
    assert bound.bound == pytest.approx(40e3)
    if not refused:
        refuse_unreachable(images, {})
        return
    with pytest.raises(SpecError, match=r"p99_latency <= 40ms cannot be met: .* 200 ms"):
        refuse_unreachable(images, {})
