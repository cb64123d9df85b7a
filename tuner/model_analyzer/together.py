"""Models that Model Analyzer profiles at the same time, as the streams of one spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.model_analyzer.carry import carried
from tuner.model_analyzer.yaml_file import Profile
from tuner.space.draft_slos import on_a_latency
from tuner.space.draft_space import DraftedModel, answer_many_times, are_for_sequences
from tuner.space.draft_streams import DraftedStream
from tuner.spec.metrics import Until
from tuner.spec.slo import Slo


def streams_of(
    profiles: Sequence[Profile],
    models: Sequence[Mapping[str, DraftedModel]],
    directory: Path,
    slos: tuple[str, ...],
) -> dict[str, DraftedStream]:
    """A stream for each profile, with what can be taken over.

    Args:
        models: Of each profile, the model by its name, then those that are served with it.
        directory: Of the spec.
        slos: The user's own, which replace those of the file on their metrics. One on a latency
            is of the streams whose requests have such a latency.

    Raises:
        SpecError: As `carried`.
    """
    sequences = any(map(are_for_sequences, models))
    both = len({answer_many_times(parts) for parts in models}) > 1
    streams = dict[str, DraftedStream]()
    for profile, parts in zip(profiles, models, strict=True):
        wanted = _without_latencies(slos, many=not answer_many_times(parts)) if both else slos
        given = carried(profile, parts, directory, wanted, sequences=sequences, together=True)
        rates = given.arrivals.get("rate", [None])
        streams[profile.model] = DraftedStream(parts, given, rates[0])
    if None in (stream.rate for stream in streams.values()):
        for profile in profiles:
            stream = streams[profile.model]
            if stream.rate is not None:
                profile.leave(("request_rate",), "not every model has one; shares are guessed")
                given = replace(stream.given, left=profile.left)
                streams[profile.model] = replace(stream, given=given)
    return streams


def _without_latencies(slos: tuple[str, ...], *, many: bool) -> tuple[str, ...]:
    """Without the latencies of requests that are, or are not, answered many times."""
    latencies = {text: Slo.parse(text).metric.until for text in on_a_latency(slos)}
    others = [s for s, until in latencies.items() if (until is not Until.ANSWER) is many]
    return tuple(text for text in slos if text not in others)
