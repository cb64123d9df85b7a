"""Models that Model Analyzer profiles at the same time, as the streams of one spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.model_analyzer.carry import carried
from tuner.model_analyzer.yaml_file import Profile
from tuner.space.draft_slos import joined, on_a_latency
from tuner.space.draft_space import DraftedModel
from tuner.space.draft_streams import DraftedStream


def streams_of(
    profiles: Sequence[Profile],
    models: Sequence[Mapping[str, DraftedModel]],
    directory: Path,
    slos: tuple[str, ...],
    slo: str,
) -> dict[str, DraftedStream]:
    """A stream for each profile, with what can be taken over.

    Args:
        models: Of each profile, the model by its name, then those that are served with it.
        directory: Of the spec.
        slos: The user's own, which replace those of the file on their metrics.
        slo: Used where no latency is bounded.

    Raises:
        SpecError: As `carried`.
    """
    latency = next(iter(on_a_latency(slos)), slo)
    streams = dict[str, DraftedStream]()
    for profile, parts in zip(profiles, models, strict=True):
        given = carried(profile, parts[profile.model].config, directory, latency, together=True)
        rates = given.arrivals.get("rate", [None])
        given = replace(given, slos=joined(slos, given.slos))
        streams[profile.model] = DraftedStream(parts, given, rates[0])
    if None in (stream.rate for stream in streams.values()):
        for profile in profiles:
            stream = streams[profile.model]
            if stream.rate is not None:
                profile.leave(("request_rate",), "not every model has one; shares are guessed")
                given = replace(stream.given, left=profile.left)
                streams[profile.model] = replace(stream, given=given)
    return streams
