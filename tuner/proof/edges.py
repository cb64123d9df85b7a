"""Whether a winner is at an edge of the space, so that a wider space may contain a better one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.meter.session import Session
from tuner.record.result_schema import Edge, RunDecision
from tuner.score.judge import tightest_latency
from tuner.score.trial import Trial
from tuner.search.fits import cannot_fit
from tuner.space.candidate import CACHE, Candidate
from tuner.space.parameters import Parameter, RangeParameter, text
from tuner.spec.paths import DELAY, DIRECT_DELAY, OLDEST_DELAY

#: A list of values continues with the ratio of its last two, if that is whole and at most this.
_MOST_TIMES = 4


def with_edges(session: Session, trials: Sequence[Trial], verdict: RunDecision) -> RunDecision:
    """The verdict with each field of the winner whose value is the largest or smallest allowed."""
    if verdict.winner is None:
        return verdict
    edges = tuple(_edges(session, trials, verdict.winner.candidate))
    return verdict.model_copy(update={"edges": edges})


def _edges(session: Session, trials: Sequence[Trial], winner: Candidate) -> Iterator[Edge]:
    space, slos = session.job.space, session.spec.slos
    bound = tightest_latency(slos)
    for parameter in space.parameters:
        knob = parameter.knob
        value, allowed = winner.values.get(knob), numbers(parameter)
        if knob == CACHE or type(value) is not int or len(allowed) < 2:
            continue
        if value == space.current.values.get(knob):
            continue  # the value is not a change of the winner
        if (beyond := next_beyond(parameter, value)) is None:
            continue
        late = bound is not None and beyond >= bound.bound
        wider = Candidate({**winner.values, knob: beyond})
        if late and knob.path in (DELAY, DIRECT_DELAY, OLDEST_DELAY):
            continue
        if space.violations(wider) or cannot_fit(wider, trials, slos):
            continue
        yield Edge(
            model=knob.owner,
            field=knob.path,
            value=value,
            largest=value == allowed[-1],
            allowed=_allowed_text(parameter),
            wider=_spec_text(parameter, beyond),
        )


def numbers(parameter: Parameter) -> list[int]:
    """The whole numbers that a parameter lists, ascending: of a range, its ends and `or` values."""
    if isinstance(parameter, RangeParameter):
        listed: Sequence[object] = (parameter.low, parameter.high, *parameter.special)
    else:
        listed = parameter.values
    return sorted({value for value in listed if type(value) is int})


def next_beyond(parameter: Parameter, value: int) -> int | None:
    """The next value beyond the allowed ones, for an outermost ``value``.

    None where ``value`` is not outermost, or the next value would be below 1.
    """
    *_, second, last = allowed = numbers(parameter)
    step = parameter.step if isinstance(parameter, RangeParameter) else 0
    if value == last:
        if step:
            return value + max(value // step, 1) * step
        times, rest = divmod(value, max(second, 1))
        return value * times if rest == 0 and times <= _MOST_TIMES else 2 * value - second
    if value != allowed[0]:
        return None
    lower = value - step if step > 1 else value // 2
    return lower if lower >= 1 else None


def _allowed_text(parameter: Parameter) -> str:
    if not isinstance(parameter, RangeParameter):
        return f"[{', '.join(map(text, parameter.values))}]"
    other = "".join(f", or {text(value)}" for value in parameter.special)
    return f"{parameter.low} to {parameter.high}{other}"


def _spec_text(parameter: Parameter, beyond: int) -> str:
    """The field's entry in a spec, extended by the value ``beyond``."""
    if not isinstance(parameter, RangeParameter):
        values = [*parameter.values, beyond]
        if beyond < min(numbers(parameter)):
            values = [beyond, *parameter.values]
        return f"{{choice: [{', '.join(map(_yaml, values))}]}}"
    low, high = min(parameter.low, beyond), max(parameter.high, beyond)
    options = [f"int: [{low}, {high}]"]
    options += ["log: true"] * parameter.log
    options += [f"step: {parameter.step}"] * (parameter.step > 1)
    options += [f"or: {_yaml(value)}" for value in parameter.special]
    return f"{{{', '.join(options)}}}"


def _yaml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    if value is None:
        return "unset"
    return text(value)  # type: ignore[arg-type]
