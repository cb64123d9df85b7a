"""Sentences about what `tune check` compared."""

from __future__ import annotations

from tuner.reason import Reason, ReasonKind
from tuner.sentences.parts import Facts, Sentences, cause, causes, count, number
from tuner.spec.units import count_text, digits

_CREDITED = "The load that the config is credited with"


def _where(facts: Facts) -> str:
    return f"at {facts['load']}" if "load" in facts else "at any load tried"


def _missed(facts: Facts) -> str:
    """`p99_latency <= 40ms was missed`."""
    return f"{facts['slos']} {'was' if count(facts, 'slo_count') == 1 else 'were'} missed"


def _at_edge(_: Reason, facts: Facts) -> str:
    rounds = f"{facts['missed_count']} of {count_text(count(facts, 'rounds'), 'round')}"
    return f"{_missed(facts)} {_where(facts)} in {rounds}: too close to the bound to decide."


def _slos_met(_: Reason, facts: Facts) -> str:
    met = f"Every SLO was met in {count_text(count(facts, 'rounds'), 'round')}"
    if "loads" not in facts:
        return f"{met}."
    missed, tried = (count(facts, name) for name in ("loads_missed", "loads_tried"))
    were = "was" if missed == 1 else "were"
    return (
        f"{met}, at {facts['loads']}; {missed} of {tried} loads tried {were} higher and missed one."
    )


def _compared(facts: Facts, meaning: str) -> str:
    nights = count(facts, "nights")
    ratio, low, high = (f"{number(facts, n):.3f}" for n in ("ratio", "ratio_low", "ratio_high"))
    interval = f"{number(facts, 'confidence_share'):.0%} interval {low} to {high}"
    details = f"{interval}, from {nights} night{'s' * (nights > 1)}"
    times = f"{str(facts['compared']).capitalize()} is {ratio} times the accepted result's"
    return f"{times} ({details}): {meaning}."


def _other_machine(_: Reason, facts: Facts) -> str:
    return (
        f"The accepted result of {facts['accepted_on']} is from another {facts['what']} "
        f"({facts['machine']}), so it is not compared. --any-machine compares anyway, "
        "--update-baseline accepts a result of this one."
    )


def _disturbed(reason: Reason, _: Facts) -> str:
    """The first in full."""
    more = len(reason.causes) - 1
    others = f" And {count_text(more, 'other disturbance')}." if more > 0 else ""
    return f"Disturbed: {cause(reason)}{others}"


SENTENCES: Sentences = {
    ReasonKind.NO_SOAK: lambda r, _: "; ".join(causes(r)),
    ReasonKind.CREDIT_LOST: lambda r, _: (
        f"{_CREDITED} is no longer sustained: {'; '.join(causes(r))}."
    ),
    ReasonKind.CREDIT_NOT_JUDGED: lambda r, _: (
        f"{_CREDITED} could not be judged, which does not change the result: {cause(r)}."
    ),
    ReasonKind.CREDIT_HOLDS: lambda r, _: f"{_CREDITED} is still sustained: {cause(r)}.",
    ReasonKind.SLOS_MISSED: lambda _, f: f"{_missed(f)} {_where(f)}, every time.",
    ReasonKind.SLOS_AT_EDGE: _at_edge,
    ReasonKind.TOO_FEW_TO_JUDGE: lambda _, f: (
        f"Too few requests were answered {_where(f)} to judge a percentile: raise "
        "workload.max_window."
    ),
    ReasonKind.SLOS_MET: _slos_met,
    ReasonKind.SENDING_LIMITED: lambda _, f: (
        "The load generator was the limit, not the model: it sends "
        f"{digits(number(f, 'sendable_level'), 4)}/s at most."
    ),
    ReasonKind.LIMIT_HIDES_LOSS: "The capacity of the config was not reached, so a loss is neither "
    "shown nor ruled out.",
    ReasonKind.NO_ACCEPTED_RESULT: "There is no accepted result yet: `tune check "
    "--update-baseline` makes one.",
    ReasonKind.ACCEPTED_ELSEWHERE: _other_machine,
    ReasonKind.ACCEPTED_OTHERWISE: lambda _, f: (
        f"The accepted result of {f['accepted_on']} was measured with a different {f['changed']}, "
        "so it is not compared. --update-baseline accepts a result of this spec."
    ),
    ReasonKind.ACCEPTED_AT_OTHER_LOAD: "The accepted result was measured at another load: not "
    "compared.",
    ReasonKind.OTHER_GENERATOR: lambda _, f: (
        f"The accepted result's latencies were not measured by {f['generator']}, as they are now: "
        "the two cannot be compared. Accept a new one with --update-baseline."
    ),
    ReasonKind.COMPARED_ELSEWHERE: lambda _, f: (
        f"Compared with a result of another machine ({f['machine']})."
    ),
    ReasonKind.LOSS_RULED_OUT: lambda _, f: _compared(f, f"a loss of {f['fail']} is ruled out"),
    ReasonKind.LOSS_SMALL: lambda _, f: _compared(
        f, f"a loss above {f['warn']}, but below the {f['fail']} that fail the check"
    ),
    ReasonKind.LOSS_CERTAIN: lambda _, f: _compared(
        f, f"a loss above {f['warn']} is certain, and the estimated loss is at least {f['fail']}"
    ),
    ReasonKind.LOSS_OPEN: lambda _, f: _compared(
        f, f"a loss of {f['fail']} and one below {f['warn']} are both possible"
    ),
    ReasonKind.LOSS_FINDABLE: lambda _, f: (
        f"On this machine, a check detects a loss of {number(f, 'loss_share'):.0%} in four nights "
        "of five."
    ),
    ReasonKind.CONFIG_REFUSED: lambda r, _: (
        f"Triton refuses the config in the repository: {cause(r)}"
    ),
    ReasonKind.CONFIG_UNMEASURED: lambda r, _: (
        f"The config in the repository could not be measured: {cause(r)}"
    ),
    ReasonKind.DISTURBED_CHECK: _disturbed,
}
