"""What the report of a run says first, and what it leaves to its folds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.pages import STATUSES, Made, tiles_of, told

from tuner.report import html, markdown, run_document
from tuner.report.blocks import Document, Fold, Items, Sentence, Steps, Table, Tone
from tuner.report.data import ReportData
from tuner.report.run_document import SECTIONS, document
from tuner.report.sentence import next_steps, prediction_sentence, repeat_commands, verdict_sentence
from tuner.report.tiles import gain_texts
from tuner.run.confirmation import PutBack
from tuner.run.result_schema import Gain
from tuner.score.trial import Predicted


def folds_of(shown: Document) -> dict[str, Fold]:
    return {block.name: block for block in shown.blocks if isinstance(block, Fold)}


def test_the_first_screen_answers_what_by_how_much_and_what_now(made: Made) -> None:
    shown = document(made("improved"))
    assert (shown.headline, shown.tone) == ("Improved, written", Tone.GOOD)
    kinds = [type(b).__name__ for b in shown.blocks if not isinstance(b, Fold)]
    assert kinds == ["Tiles", "Table", "Steps", "Items", "Chart"]
    caution = next(b for b in shown.blocks if isinstance(b, Items))
    assert caution.sentences == ("best config at 1,936/s: the load generator used 1.9 of 2 cores",)
    assert "37 configs" in shown.facts
    (change,) = (b for b in shown.blocks if isinstance(b, Table))
    assert change.headers == ("field", "before", "after")
    assert ("max_batch_size", "1", "16") in change.rows


def test_the_figures_are_gain_goodput_and_each_latency_slo(made: Made) -> None:
    tiles = tiles_of(made("improved"))
    gain, goodput, p99 = tiles.values()
    assert gain.label == "gain in capacity"
    assert gain.note.startswith("95% interval ")
    assert goodput.value.startswith("99.7 -> ")
    assert "118/s -> " in goodput.note
    assert p99.value.endswith(" of 40 ms")
    assert p99.note == "met in 3 of 3 rounds"
    assert p99.share is not None
    assert 0.5 < p99.share < 1.0


def test_a_round_that_was_missed_is_counted(made: Made) -> None:
    data = made("improved")
    row = next(r for r in data.slo if r.found.metric == "p99_latency")
    missed = replace(row.rounds[0], verdict=row.rounds[0].verdict.FAIL)
    shown = replace(data, slo=(replace(row, rounds=(missed, *row.rounds[1:])),))
    assert tiles_of(shown)["p99 latency"].note == "met in 2 of 3 rounds"


def gain(**facts: object) -> Gain:
    ratio = {"estimate": 1.65, "low": 1.53, "high": 1.78}
    return Gain.model_validate({"ratio": ratio, "confidence": 0.95, **facts})


def test_a_small_gain_is_told_in_percent_and_a_large_one_in_times() -> None:
    assert gain_texts(gain()) == ("+65%", "95% interval +53% to +78%")
    large = {"estimate": 17.9, "low": 17.4, "high": 18.4}
    assert gain_texts(gain(ratio=large))[0] == "17.9x"


def test_a_gain_over_a_load_that_the_current_config_did_not_stand_is_a_least(made: Made) -> None:
    data = made("improved")
    assert data.current is not None
    assert data.result.gain is not None
    least = data.result.gain.model_copy(update={"at_least": True})
    shown = replace(
        told(data, gain=least),
        current=replace(data.current, credited_infer_per_s=None, at_most_infer_per_s=35.2),
    )
    found, goodput, *_ = tiles_of(shown).values()
    assert found.value.startswith("at least ")
    assert found.note == "the current config was only measured at a load it does not sustain"
    assert goodput.value.startswith("at most 35.2 -> ")


def test_a_current_config_that_met_the_slos_at_no_load_has_no_ratio(made: Made) -> None:
    data = made("improved")
    assert data.current is not None
    current = replace(data.current, credited_infer_per_s=None)
    found, goodput, *_ = tiles_of(replace(told(data, gain=None), current=current)).values()
    assert found.value == "now meets the SLOs"
    assert goodput.value.startswith("none -> ")


def test_where_the_load_generator_could_send_no_more_the_goodput_is_a_least(made: Made) -> None:
    data = made("improved")
    assert data.best is not None
    tiles = tiles_of(replace(data, best=replace(data.best, at_least=True)))
    assert "99.7 -> at least 1," in tiles["goodput, before and after"].value


def test_a_minimised_metric_is_shown_instead_of_the_goodput(made: Made) -> None:
    data = made("improved", objective="minimize p99_latency at 100/s")
    tiles = tiles_of(data)
    assert " ms -> " in tiles["p99 latency, before and after"].value
    assert tiles["gain in p99 latency"].value.endswith("x")


def test_a_kept_config_is_told_by_itself(made: Made) -> None:
    data = made("kept")
    assert not any(isinstance(b, Table) for b in document(data).blocks)
    assert tiles_of(data)["goodput of the current config"].value == "101/s"


@pytest.mark.parametrize(
    ("status", "start"),
    [
        ("kept", "Nothing better than the current config was found among 37 configs measured."),
        ("infeasible", "None of 37 configs measured meets every SLO"),
        ("not known", "Delay "),
        ("failed", "The run failed after 40 trials; nothing was written. Best so far"),
        ("interrupted", "The run was stopped after 40 trials; nothing was written."),
        ("killed", "The run was stopped after 40 trials; nothing was written."),
    ],
)
def test_every_other_end_begins_with_a_sentence_and_its_reasons(
    made: Made, status: str, start: str
) -> None:
    data = made(status)
    sentence, reasons, *_ = document(data).blocks
    assert isinstance(sentence, Sentence)
    assert sentence.text.startswith(start)
    assert isinstance(reasons, Items)
    assert reasons.sentences == data.result.reasons
    assert any(command.startswith("tune ") for _, command in next_steps(data))


def test_what_looked_better_and_was_not_is_told(made: Made) -> None:
    repeats = made("improved", seed=1).repeats
    sentence = verdict_sentence(replace(made("kept"), repeats=repeats))
    assert sentence.endswith("what looked better was not better when measured again.")


def test_infeasible_names_the_nearest_config_and_the_slo_it_misses(made: Made) -> None:
    data = made("infeasible", slo=("p99_latency <= 5ms",))
    assert "misses p99_latency <= 5ms, found " in verdict_sentence(data)
    tile = tiles_of(data)["p99 latency"]
    assert tile.tone is Tone.BAD
    assert tile.share is not None
    assert tile.share > 1.0


def test_a_search_of_which_configs_failed_does_not_say_that_none_meets_the_slos(
    made: Made,
) -> None:
    data = made("infeasible")
    numbers = ", ".join(str(t.number) for t in data.failed)
    assert document(data).headline == "No config that loaded and was measured meets the SLOs"
    reason, _ = next_steps(data)[0]
    assert reason == f"mend why configs failed, or leave them out of the space: trial {numbers}"
    idle = told(data, reasons=("the current config: one request at a time takes 50 ms: misses x",))
    assert next_steps(idle)[0][0] == reason
    whole = replace(data, trials=tuple(t for t in data.trials if t not in data.failed))
    assert document(whole).headline == "No config meets the SLOs"
    assert "failed" not in next_steps(whole)[0][0]


def test_improved_but_not_written_says_so(made: Made) -> None:
    data = told(made("improved"), written=None)
    assert document(data).headline == "Improved, not written"
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_taken_back_is_told_and_no_undoing_is_offered(made: Made) -> None:
    data = replace(made("improved"), taken_back=True)
    assert document(data).headline == "Improved, written and taken back"
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_what_was_written_is_loaded_checked_and_can_be_taken_back(made: Made) -> None:
    assert [command for _, command in next_steps(made("improved"))] == [
        "curl -X POST localhost:8000/v2/repository/models/toy/load",
        "tune check search_spaces/toy.yaml --update-baseline",
        "tune rollback toy --repository /models",
    ]


def test_an_interrupted_run_can_be_resumed_by_the_command_shown(made: Made) -> None:
    data = made("killed")
    command = f"tune run search_spaces/toy.yaml --resume {data.directory}"
    steps = [("resume it where it stopped", command)]
    assert next_steps(data) == steps
    assert Steps("What next", tuple(steps)) in document(data).blocks


def test_commands_to_repeat_are_fit_for_a_shell(made: Made) -> None:
    commands = dict(repeat_commands(made("improved")))
    assert commands["the run, as it was started"] == "tune run search_spaces/toy.yaml --seed 0"
    assert all(command.startswith("tune ") for command in commands.values())


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("the load generator could not keep up with 7802/s", "more cores"),
        ("ModuleNotFoundError: No module named 'torch'", "install torch"),
        (
            "unable to find backend library for backend 'onnxruntime', try",
            "the backend onnxruntime",
        ),
        ("Model 'add' is not ready. (add lies in the repository, but", "calls: [add]"),
        ("the model fails: no (its input was made up of random values)", "inputs: {kind: file"),
    ],
)
@pytest.mark.parametrize("status", ["not known", "failed", "kept"])
def test_what_to_do_next_follows_from_the_cause(
    made: Made, status: str, reason: str, remedy: str
) -> None:
    (first, _), (again, command) = next_steps(told(made(status), reasons=(reason,)))
    assert remedy in first
    assert (again, command) == ("then run again", "tune run search_spaces/toy.yaml")


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
        return Fold("waiting", "Requests waiting", (Sentence(f"{data.model} kept none waiting"),))

    monkeypatch.setattr(run_document, "SECTIONS", (waiting, *SECTIONS))
    shown = document(made("improved"))
    for text in (html.render(shown), markdown.render(shown)):
        assert text.index("Requests waiting") < text.index("toy kept none waiting")


@pytest.mark.parametrize("kept", [True, False])
def test_a_winner_made_simpler_is_told(made: Made, kept: bool) -> None:
    row = PutBack("max_batch_size", 900.0, 899.0, -1.0, kept=kept)
    proof = folds_of(document(told(made("improved"), simplification=(row,))))["proof"]
    simpler = [b for b in proof.blocks if isinstance(b, Sentence) and "simpler config" in b.text]
    assert bool(simpler) is not kept


def test_predictions_are_told_by_how_good_they_were(made: Made) -> None:
    data = made(trials=4)
    assert prediction_sentence(data) == ""
    good = Predicted(data.trials[1].score.value * 1.05, 0.0, 1e9)  # type: ignore[union-attr]
    wrong = Predicted(data.trials[2].score.value * 2.0, 1e9, 2e9)  # type: ignore[union-attr]
    trials = (
        data.trials[0],
        replace(data.trials[1], predicted=good),
        replace(data.trials[2], predicted=wrong),
    )
    sentence = prediction_sentence(replace(data, trials=trials))
    assert sentence.startswith("Of 2 scores that the search predicted, 1 held within the 90%")
    assert sentence.endswith("off by 52.5%.")
