"""What the report of a run says first, and what it leaves to its folds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from builders.pages import STATUSES, Made, told

from tuner.record.confirmation import ChangeUndone
from tuner.record.result_schema import Gain, ToKnow
from tuner.report import html, markdown, run_document
from tuner.report.blocks import Bullets, Document, Fold, Sentence, Steps, Table, Tone
from tuner.report.data import ReportData
from tuner.report.headline import gain_sentence, gain_text, headline
from tuner.report.run_document import SECTIONS, document
from tuner.report.sentence import next_steps, prediction_sentence, repeat_commands, verdict_sentence
from tuner.score.trial import Predicted


def folds_of(shown: Document) -> dict[str, Fold]:
    return {block.name: block for block in shown.blocks if isinstance(block, Fold)}


def test_the_first_screen_answers_what_by_how_much_and_what_now(made: Made) -> None:
    data = made("improved")
    shown = document(data)
    assert (shown.headline, shown.tone) == (headline(data), Tone.GOOD)
    kinds = [type(b).__name__ for b in shown.blocks if not isinstance(b, Fold)]
    assert kinds == ["Sentence", "Table", "Steps", "Table", "Bullets", "Chart"]
    caution = next(b for b in shown.blocks if isinstance(b, Bullets))
    assert caution.sentences == ("best config at 1,936/s: the load generator used 1.9 of 2 cores",)
    assert "37 configs" in shown.facts
    change, _ = (b for b in shown.blocks if isinstance(b, Table))
    assert change.headers == ("field", "before", "after")
    assert ("max_batch_size", "1", "16") in change.rows


def gain(**facts: object) -> Gain:
    ratio = {"estimate": 1.65, "low": 1.53, "high": 1.78}
    return Gain.model_validate({"ratio": ratio, "confidence": 0.95, **facts})


def test_a_small_gain_is_told_in_percent_and_a_large_one_in_times() -> None:
    assert gain_text(gain()) == "+65%"
    large = {"estimate": 17.9, "low": 17.4, "high": 18.4}
    assert gain_text(gain(ratio=large)) == "17.9x"
    assert gain_text(gain(ratio=large, at_least=True)) == "at least 17.4x"


def test_the_headline_has_both_loads_and_the_slo_and_below_it_how_sure_that_is(made: Made) -> None:
    data = told(made("improved"), gain=gain(compared="capacity"))
    assert headline(data) == "Better: 99.7/s -> 1,915/s within p99 <= 40 ms, written"
    assert gain_sentence(data) == (
        "At least +53% in capacity, 95% sure; +65% by the best estimate."
    )


@pytest.mark.parametrize(
    ("known", "before", "why"),
    [
        ({"credited_infer_per_s": 35.2, "from_search": True}, "about 35.2/s", "measured once"),
        ({"at_most_infer_per_s": 35.2}, "at most 35.2/s", "it answered no more"),
        ({}, "no load", "met the SLOs at no load that was tried"),
    ],
)
def test_of_a_current_config_without_rounds_what_is_known_is_told(
    made: Made, known: dict[str, Any], before: str, why: str
) -> None:
    data = told(made("improved"), gain=gain(at_least=True))
    assert data.current is not None
    data = replace(data, current=replace(data.current, **{"credited_infer_per_s": None, **known}))
    assert headline(data).startswith(f"Better: {before} -> 1,915/s within p99 <= 40 ms")
    assert gain_sentence(data).startswith("At least +53% in goodput, 95% sure. The current config ")
    assert why in gain_sentence(data)


def test_where_the_load_generator_could_send_no_more_the_load_is_a_least(made: Made) -> None:
    data = made("improved")
    assert data.best is not None
    shown = headline(replace(data, best=replace(data.best, at_least=True)))
    assert "99.7/s -> at least 1," in shown


def test_a_minimised_metric_is_told_at_its_load(made: Made) -> None:
    shown = headline(made("improved", objective="minimize p99_latency at 100/s"))
    assert re.fullmatch(r"Better: \S+ ms -> \S+ ms p99 latency at \S+/s, written", shown)


@pytest.mark.parametrize(
    ("high", "words"),
    [
        (1.064, "Kept: any gain is below 7% (95% sure)"),
        (0.97, "Kept: no gain is possible (95% sure)"),
    ],
)
def test_kept_says_how_much_there_can_still_be_to_gain(made: Made, high: float, words: str) -> None:
    found = gain(ratio={"estimate": 0.97, "low": 0.94, "high": high})
    data = told(made("kept"), gain=found)
    assert headline(data) == words
    assert headline(told(data, gain=None)) == "Kept"
    assert gain_sentence(data).startswith("Measured: about 101/s now, about ")


def test_not_known_says_both_ends_and_what_it_would_take_to_know(made: Made) -> None:
    found = gain(ratio={"estimate": 1.05, "low": 0.97, "high": 1.13})
    data = told(made("not known"), gain=found, to_know=ToKnow(rounds=4, minutes=6.2), reasons=())
    ends = "the best other config is between 3% worse and 13% better (95% sure)"
    assert headline(data) == f"Not known: {ends}"
    ((advice, command),) = next_steps(data)
    assert advice == "go on for 4 more rounds: about 6.2 min, with confirm.time raised in the spec"
    assert "--resume" in command


def test_where_nothing_tried_beats_the_current_config_it_was_the_best_of_the_search(
    made: Made,
) -> None:
    data = made("not known")
    assert data.current is not None
    ahead = replace(data, current=replace(data.current, credited_infer_per_s=5000.0))
    assert verdict_sentence(ahead) == "The current config, which stays, was the best of the search."
    assert verdict_sentence(data).startswith("No gain was proved")
    assert data.best_name == "best other config"


def test_where_others_took_the_machine_that_is_the_first_sentence_and_the_first_advice(
    made: Made,
) -> None:
    data = made("not known")
    row = data.repeats[0]
    measured = row.point.measurement
    host = replace(measured.host, other_cpu_percent=89.0)
    busy = replace(row, point=replace(row.point, measurement=replace(measured, host=host)))
    shown = replace(data, repeats=(busy, *data.repeats[1:]))
    first = document(shown).blocks[0]
    assert isinstance(first, Sentence)
    assert first.text.startswith("Others took up to 89% of the CPU while this was measured")
    assert next_steps(shown)[0][0].startswith("stop the other work on this machine")
    assert next_steps(data)[0][0].startswith("go on for more rounds")


@pytest.mark.parametrize(
    ("status", "start"),
    [
        ("kept", "No gain worth a change was found among 37 configs measured."),
        ("infeasible", "None of 37 configs measured meets every SLO"),
        ("not known", "No gain was proved, and none ruled out; the current config stays."),
        ("failed", "The run failed after 40 trials; nothing was written. Best so far"),
        ("interrupted", "The run was stopped after 40 trials; nothing was written."),
        ("killed", "The run was stopped after 40 trials; nothing was written."),
    ],
)
def test_every_other_end_begins_with_a_sentence_and_its_reasons(
    made: Made, status: str, start: str
) -> None:
    data = made(status)
    sentence, *rest = document(data).blocks
    assert isinstance(sentence, Sentence)
    assert sentence.text.startswith(start)
    reasons = next(b for b in rest if isinstance(b, Bullets))
    assert reasons.sentences == data.result.reasons
    assert any(command.startswith("tune ") for _, command in next_steps(data))


def test_what_looked_better_and_was_not_is_told(made: Made) -> None:
    repeats = made("improved", seed=1).repeats
    sentence = verdict_sentence(replace(made("kept"), repeats=repeats))
    assert sentence.endswith("what looked better was not better when measured again.")


def test_infeasible_names_the_nearest_config_and_the_slo_it_misses(made: Made) -> None:
    data = made("infeasible", slo=("p99_latency <= 5ms",))
    assert "misses p99_latency <= 5ms, found " in verdict_sentence(data)


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
    assert document(data).headline.endswith(", not written")
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_taken_back_is_told_and_no_undoing_is_offered(made: Made) -> None:
    data = replace(made("improved"), taken_back=True)
    assert document(data).headline.endswith(", written and taken back")
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_what_was_written_is_loaded_checked_and_can_be_taken_back(made: Made) -> None:
    assert [command for _, command in next_steps(made("improved"))] == [
        "tune rollback toy --repository /models",
        "curl -X POST localhost:8000/v2/repository/models/toy/load",
        "tune check search_spaces/toy.yaml --update-baseline",
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
    row = ChangeUndone("max_batch_size", 900.0, 899.0, -1.0, kept=kept)
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
