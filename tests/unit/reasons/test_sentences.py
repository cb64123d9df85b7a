"""Reasons as data: each has words, comes back from JSON, and decides the same in other words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders.messages_proofs import TWO, Late, Robbed
from builders.pages import text_of, with_result
from builders.proof_cases import CASES
from builders.proving import prove, spec_of
from builders.runs import Toy, make_run

from tuner.errors import LoadFailedError
from tuner.facts import adapter
from tuner.reason import Fact, Reason, ReasonKind
from tuner.record.earlier import reason_of_sentence
from tuner.record.remedies import REMEDIES, remedies
from tuner.record.result_schema import RunDecision
from tuner.report.data import ReportData, load
from tuner.report.sentence import next_steps
from tuner.report.trust import trust
from tuner.sentences import SENTENCES, failed, sentence
from tuner.space.words import changes_text


def test_every_kind_has_a_sentence() -> None:
    assert SENTENCES.keys() == {*ReasonKind} - {ReasonKind.TEXT}


def test_a_reason_comes_back_from_json_with_numbers_and_causes() -> None:
    cause = Reason(ReasonKind.MODEL_FAILS, "tokenizer", {"words": "no weights"})
    facts = {"failed_count": 1, "share": 0.5, "at_least": True, "load": "3/s"}
    reason = Reason(ReasonKind.TOO_MANY_FAILED, "instances 2", facts, (cause,))
    known = adapter(Reason)
    assert known.validate_json(known.dump_json(reason), strict=True) == reason
    assert [*reason.quotes()] == ["no weights"]


def test_reasons_of_another_subject_keep_both_names() -> None:
    reason = Reason(ReasonKind.SERVER_SAYS, "tokenizer", {"words": "no GPU"})
    assert sentence(reason.of("instances 2")) == "instances 2: tokenizer: no GPU"


def test_words_of_others_in_an_error_are_shortened() -> None:
    error = failed(LoadFailedError, Reason(ReasonKind.MODEL_FAILS, facts={"words": "x" * 9000}))
    assert len(error.message) < 2100
    assert len(str(error.reason.facts["words"])) < 2100


def decided(decision: RunDecision) -> object:
    return decision.status, [r.kind for r in decision.why], remedies(decision.why)


def answers(data: ReportData) -> object:
    """All that a reader acts on."""
    table = trust(data)
    assert table is not None
    checks = [(row[0], row[1]) for row in table.rows]
    return data.status, next_steps(data), table.caption, table.tones, checks


def reword(patch: pytest.MonkeyPatch, *kinds: ReasonKind) -> None:
    """Gives these kinds other sentences, which are alike."""
    for kind in kinds:
        patch.setitem(SENTENCES, kind, "in other words")


def test_a_proof_decides_the_same_in_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def proofs() -> list[RunDecision]:
        slow = [prove(bench(spec_of(), TWO)) for bench in (Late, Robbed)]
        return [*(case.proved()[1] for case in CASES.values()), *slow]

    before = proofs()
    assert any(map(remedies, (decision.why for decision in before)))
    reword(monkeypatch, *SENTENCES)
    assert list(map(decided, proofs())) == list(map(decided, before))


REASONS = (
    Reason(ReasonKind.ANSWERS_CHANGED, facts={"difference": "out 3", "other_differences": 0}),
    Reason(ReasonKind.ANSWERS_SAME, facts={"request_count": 2, "tolerance": 0.0}),
    Reason(ReasonKind.LEFT_OUT, facts={"what": "undoing changes"}),
    Reason(ReasonKind.NO_ANSWER, facts={"doing": "loading m", "deadline_s": 9.0}),
    *(Reason(kind, facts={"model": "m", "patience_s": 9.0, "took_ms": 3.0, "slo": "p99"})
      for kind in (ReasonKind.MODEL_NOT_LOADED, ReasonKind.NO_FIRST_ANSWER,
                   ReasonKind.RANDOM_INPUTS, ReasonKind.LONE_REQUEST_MISSES)),
)  # fmt: skip


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.kind.value)
@pytest.mark.parametrize("status", ["improved", "kept", "not known"])
def test_a_report_differs_in_its_texts_alone_where_a_sentence_is_reworded(
    reason: Reason, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load(make_run(tmp_path, Toy(trials=6), status))
    assert data.reported_config is not None
    name = changes_text(data.reported_config.candidate, data.manifest.current)
    data = with_result(data, why=(reason.of(name),))
    before, text = answers(data), text_of(data)
    reword(monkeypatch, reason.kind)
    assert answers(data) == before
    assert text_of(data) != text
    assert "in other words" in text_of(data)


@pytest.mark.parametrize("kind", [kind for kind in REMEDIES if kind in SENTENCES])
def test_next_steps_depend_on_the_kind_of_a_reason_alone(kind: ReasonKind) -> None:
    """Whatever the sentence is."""
    known: dict[str, Fact] = {
        "model": "tokenizer",
        "fitting_clients": 9,
        "sentence": "it is as it is",
    }
    assert remedies([Reason(kind, facts=known)])
    nested = Reason(ReasonKind.NOT_TO_CAPACITY, causes=(Reason(kind, facts=known),))
    assert remedies([nested]) == remedies([Reason(kind, facts=known)])


def test_lower_loads_are_no_remedy_where_the_load_generator_was_behind() -> None:
    behind = Reason(ReasonKind.CLIENT_BEHIND, facts={"load": "9/s"})
    alone = Reason(ReasonKind.SOAK_NOT_SUSTAINED)
    assert "lower loads" in remedies([alone])[0]
    assert ["lower loads" in text for text in remedies([replace(alone, causes=(behind,))])] == [
        False
    ]


@pytest.mark.parametrize(
    ("text", "kind", "subject"),
    [
        ("instances 4: Answers match the current config's on it (exactly).",
         ReasonKind.ANSWERS_SAME, "instances 4"),
        ("m: cache on: It changes answers: out 3.", ReasonKind.ANSWERS_CHANGED, "m: cache on"),
        ("Answers were not compared: no.", ReasonKind.ANSWERS_NOT_COMPARED, ""),
        ("Left out for lack of time: undoing changes.", ReasonKind.LEFT_OUT, ""),
        ("nothing is known of this one", ReasonKind.TEXT, ""),
    ],
)  # fmt: skip
def test_sentence_of_an_earlier_version_stays_as_it_was(
    text: str, kind: ReasonKind, subject: str
) -> None:
    reason = reason_of_sentence(text)
    assert (reason.kind, reason.subject, sentence(reason)) == (kind, subject, text)
