"""Of which parts the report of a run is made; what they say is in `tests/golden`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.pages import STATUSES, Made, with_result

from tuner.load.probes.warmup import WarmUp
from tuner.reason import Reason, ReasonKind
from tuner.record.confirmation import ChangeUndone
from tuner.record.proved import ProvedConfig
from tuner.record.result_schema import Gain, ToKnow
from tuner.report import html, markdown, run_document
from tuner.report.blocks import Bullets, Code, Document, Fold, Sentence, Steps, Tone
from tuner.report.data import ReportData
from tuner.report.headline import headline
from tuner.report.render import pull_request_of
from tuner.report.run_document import SECTIONS, document
from tuner.report.sentence import next_steps
from tuner.score.point import judge_point
from tuner.spec.slo import Slo

SLOS = (Slo.parse("p99_latency <= 40ms"), Slo.parse("error_rate <= 0%"))


def folds_of(page: Document) -> dict[str, Fold]:
    return {block.name: block for block in page.blocks if isinstance(block, Fold)}


def test_the_first_screen_answers_what_by_how_much_and_what_now(made: Made) -> None:
    data = made("improved")
    page = document(data)
    assert (page.headline, page.tone) == (headline(data), Tone.GOOD)
    kinds = [type(b).__name__ for b in page.blocks if not isinstance(b, Fold)]
    assert kinds == ["Sentence", "Table", "Steps", "Table", "Bullets", "Chart"]


def test_interrupted_run_can_be_resumed_by_the_printed_command(made: Made) -> None:
    data = made("killed")
    command = f"tune run search_spaces/toy.yaml --resume {data.directory}"
    steps = [("resume it where it stopped", command)]
    assert next_steps(data) == steps
    assert Steps("What next", tuple(steps)) in document(data).blocks


@pytest.mark.parametrize("name", ["killed", "not known"])
def test_a_run_whose_config_was_edited_meanwhile_is_run_again(
    name: str, made: Made, tmp_path: Path
) -> None:
    data = made(name)
    if name == "not known":
        gain = {
            "ratio": {"estimate": 1.05, "low": 0.97, "high": 1.13},
            "confidence": 0.95,
            "rounds": {"best": 5, "current": 5},
        }
        more = ToKnow(rounds=4, minutes=6.2)
        data = with_result(data, gain=Gain.model_validate(gain), to_know=more, reasons=())
    ((label, config),) = data.manifest.models.items()
    edited = tmp_path / "config.pbtxt"
    edited.write_text(f"{config.text}# edited\n")
    moved = {label: replace(config, path=str(edited))}
    ((_, before),) = next_steps(data)
    ((_, after),) = next_steps(replace(data, manifest=replace(data.manifest, models=moved)))
    assert ("--resume" in before, "--resume" in after) == (True, False)


def test_rounds_that_take_longer_than_twice_the_run_are_not_offered(made: Made) -> None:
    data = made("not known")
    run_minutes = data.result.time.wall_s / 60.0

    def step(minutes: float) -> str:
        more = ToKnow(rounds=4, minutes=minutes)
        ((_, command),) = next_steps(with_result(data, to_know=more, reasons=()))
        return command

    assert "--resume" in step(run_minutes)
    assert "--more" in step(run_minutes)
    assert "--resume" not in step(2.0 * run_minutes + 1.0)


@pytest.mark.parametrize("status", STATUSES)
def test_a_section_without_anything_to_say_is_left_out(made: Made, status: str) -> None:
    data = made(status)
    folds = folds_of(document(data))
    assert list(folds) == [fold.name for make in SECTIONS if (fold := make(data)).blocks]
    assert ("change" in folds) == (status == "improved")
    assert ("overload" in folds) == (status not in ("failed", "interrupted", "killed"))


def test_a_new_section_is_a_function_and_its_place_in_the_list(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting(data: ReportData) -> Fold:
        return Fold("waiting", "Requests waiting", (Sentence(f"none of {data.model}"),))

    monkeypatch.setattr(run_document, "SECTIONS", (waiting, *SECTIONS))
    page = document(made("improved"))
    for text in (html.render(page), markdown.render(page)):
        assert text.index("Requests waiting") < text.index("none of toy")


@pytest.mark.parametrize("kept", [True, False])
def test_simplified_winner_is_reported(made: Made, kept: bool) -> None:
    row = ChangeUndone("max_batch_size", 900.0, 899.0, -1.0, kept=kept)
    proof = folds_of(document(with_result(made("improved"), simplification=(row,))))["proof"]
    simpler = [b for b in proof.blocks if isinstance(b, Sentence) and "simpler config" in b.text]
    assert bool(simpler) is not kept


def test_a_variable_that_the_winner_needs_is_said_with_every_place_to_set_it(made: Made) -> None:
    data = with_result(made("improved"), environment={"OMP_NUM_THREADS": 1})
    page = document(data)
    (code,) = [b for b in page.blocks if isinstance(b, Code) and "environment" in b.caption]
    places = [line.split()[0] for line in code.text.splitlines()]
    assert places == ["command", "Docker", "Kubernetes"]
    steps = [what for what, _ in next_steps(data)]
    assert "set the variables below in the server's environment" in steps
    assert any('server: {environment: {OMP_NUM_THREADS: "1"}}' in step for step in steps)
    assert "docker run -e OMP_NUM_THREADS=1 ..." in pull_request_of(data)


def test_warm_up_savings_are_reported_at_once_with_text_to_paste(made: Made) -> None:
    block = "model_warmup [\n]\n"
    warm_up = WarmUp("toy", (1, 2), block, 0.7, 0.005, 1.3, 0.006, 5.1)
    improved = made("improved")
    page = document(with_result(improved, warm_up=warm_up))
    (first,) = [b for b in page.blocks if isinstance(b, Bullets) and b.caption == "First calls"]
    assert first.sentences[0] == warm_up.sentence
    (pasted,) = folds_of(page)["warm-up"].blocks
    assert isinstance(pasted, Code)
    assert pasted.text == block
    slow = replace(warm_up, first_warm_s=0.6)
    assert "warm-up" not in folds_of(document(with_result(improved, warm_up=slow)))


@pytest.mark.parametrize(("p99_latency_us", "cautions"), [(2e6, 0), (30e3, 2)])
def test_overload_of_the_current_config_is_no_caution_about_a_winner(
    p99_latency_us: float, cautions: int, made: Made
) -> None:
    data = made("improved")
    assert data.current is not None
    before = data.current.judged.measurement
    overload = (
        Reason(ReasonKind.ENDED_EARLY, facts={"duration_s": 0.5}),
        Reason(ReasonKind.UNANSWERED, facts={"unanswered_count": 1400}),
    )
    measured = replace(before, p99_latency_us=p99_latency_us, latencies_us=None, warnings=overload)
    current = ProvedConfig.of(
        data.current.candidate,
        [judge_point(SLOS, measured)],
        at_most_infer_per_s=180.0,
        from_search=True,
    )
    page = document(with_result(data, baseline=current))
    lists = [b for b in page.blocks if isinstance(b, Bullets)]
    texts = [s for b in lists if b.caption == "Caution" for s in b.sentences]
    assert sum("Stopped after" in t or "without an answer" in t for t in texts) == cautions
