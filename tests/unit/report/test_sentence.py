from __future__ import annotations

import re
from dataclasses import replace

import pytest
from unit.report.conftest import Made

from tuner.report.next_steps import next_steps, repeat_commands
from tuner.report.sentence import verdict_sentence


def test_improved_says_what_by_how_much_and_how_sure(made: Made) -> None:
    sentence = verdict_sentence(made("improved"))
    assert re.fullmatch(
        r"Writes .*instances \d.*: [\d,]+/s within p99_latency <= 40ms and error_rate <= 0%"
        r" in each of 3 rounds; its capacity is [\d.]+ times the current config's, "
        r"[\d,]+/s over 118/s on average "
        r"\(95% interval [\d.]+ to [\d.]+\)\.",
        sentence,
    )


def test_a_gain_over_a_load_that_the_current_config_did_not_stand_is_a_least(made: Made) -> None:
    data = made("improved")
    assert data.improvement is not None
    bound = data.improvement.model_copy(update={"at_least": True})
    sentence = verdict_sentence(replace(data, improvement=bound))
    assert re.search(
        r"its capacity is at least [\d.]+ times the current config's, [\d,]+/s over less than "
        r"118/s on average "
        r"\(the current config was only measured at a load it does not sustain\)",
        sentence,
    )


@pytest.mark.parametrize("compared", [None, "throughput"])
def test_where_no_capacities_were_compared_none_are_named(made: Made, compared: str | None) -> None:
    data = made("improved")
    assert data.improvement is not None
    other = data.improvement.model_copy(update={"compared": compared})
    sentence = verdict_sentence(replace(data, improvement=other))
    assert re.search(r" in each of 3 rounds, [\d.]+ times the current config \(95%", sentence)
    assert "capacity" not in sentence


def test_kept_counts_what_was_given_up_early_and_says_what_looked_better(made: Made) -> None:
    data = made("kept")
    assert " among 37 configs measured; the current config: " in verdict_sentence(data)
    repeats = made("improved", seed=1).repeats
    again = verdict_sentence(replace(data, repeats=repeats))
    assert " measured, and what looked better was not better when measured again; " in again


def test_improved_but_not_written_says_so(made: Made) -> None:
    data = replace(made("improved"), written=None)
    assert verdict_sentence(data).startswith("Found, and did not write, ")
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_taken_back_is_told_and_no_undoing_is_offered(made: Made) -> None:
    data = replace(made("improved"), taken_back=True)
    assert verdict_sentence(data).startswith("Found, wrote and took back ")
    assert [command.split()[1] for _, command in next_steps(data)[:2]] == ["apply", "apply"]


def test_a_current_config_that_met_the_slos_at_no_load_is_named(made: Made) -> None:
    data = made("improved")
    assert data.current is not None
    current = replace(data.current, goodput_infer_per_s=None)
    sentence = verdict_sentence(replace(data, improvement=None, current=current))
    assert sentence.endswith("; the current config does not meet the SLOs.")


def test_infeasible_names_the_nearest_config_and_the_slo_it_misses(made: Made) -> None:
    sentence = verdict_sentence(made("infeasible", slo=("p99_latency <= 5ms",)))
    assert re.search(r"the nearest, .+, misses p99_latency <= 5ms, found [\d.]+ ms\.$", sentence)


@pytest.mark.parametrize(
    ("status", "start"),
    [
        ("kept", "Nothing better than the current config was found among "),
        ("unconfirmed", "Delay "),
        ("failed", "The run failed after 40 trials; nothing was written. Best so far"),
        ("interrupted", "The run was stopped after 40 trials; nothing was written."),
        ("killed", "The run was stopped after 40 trials; nothing was written."),
    ],
)
def test_every_status_has_its_sentence_and_next_step(made: Made, status: str, start: str) -> None:
    data = made(status)
    assert verdict_sentence(data).startswith(start)
    assert any(command.startswith("tune ") for _, command in next_steps(data))


def test_a_search_is_not_to_go_on_in_a_space_that_was_tried_completely(made: Made) -> None:
    data = made("kept")
    ((advice, _),) = next_steps(data)
    assert advice.startswith("search further")
    tried = len({t.candidate for t in data.trials})
    whole = replace(data, manifest=replace(data.manifest, space_size=tried))
    ((advice, _),) = next_steps(whole)
    assert advice.startswith("every config of the space was tried")


def test_a_minimised_metric_is_told_at_its_load(made: Made) -> None:
    data = made("improved", objective="minimize p99_latency at 100/s")
    assert re.search(r"p99_latency [\d.]+ ms at [\d.]+/s within", verdict_sentence(data))
    assert "times better than the current config" in verdict_sentence(data)


def test_what_was_written_is_to_be_checked_from_then_on(made: Made) -> None:
    commands = [command for _, command in next_steps(made("improved"))]
    assert "tune check search_spaces/toy.yaml --update-baseline" in commands


def test_an_interrupted_run_can_be_resumed_by_the_command_shown(made: Made) -> None:
    data = made("killed")
    assert next_steps(data) == [
        (
            "resume it where it stopped",
            f"tune run --resume {data.directory}",
        )
    ]


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
@pytest.mark.parametrize("status", ["unconfirmed", "failed", "kept"])
def test_what_to_do_next_follows_from_the_cause(
    made: Made, status: str, reason: str, remedy: str
) -> None:
    (first, _), (again, command) = next_steps(replace(made(status), reasons=(reason,)))
    assert remedy in first
    assert (again, command) == ("then run again", "tune run search_spaces/toy.yaml")
