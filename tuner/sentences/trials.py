"""Sentences about trials, servers and proofs."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.reason import Reason, ReasonKind
from tuner.sentences.parts import Facts, Sentences, cause, cause_clauses, causes, count, number
from tuner.spec.units import bytes_text, count_text, digits

UNSOAKED = "sustained load not verified"
#: Of more failed soaks than this, the first and the last are shown.
_FEW_SOAKS = 3


def _current_config_fails(reason: Reason, facts: Facts) -> str:
    why, *more = causes(reason)
    behind = "".join(f" ({text})" for text in more)
    return f"the current config of {facts['name']} cannot be measured: {why}{behind}"


def _no_room(_: Reason, facts: Facts) -> str:
    needed, limit = (bytes_text(count(facts, name)) for name in ("needed_bytes", "limit_bytes"))
    memory, why = facts["memory"], facts["why"]
    return f"not loaded: it needs about {needed} of {limit} free {memory} ({why})"


def _lone_request(_: Reason, facts: Facts) -> str:
    took = f"{digits(number(facts, 'took_ms'), 4)} ms"
    if "queue_delay_ms" in facts:
        took += f", of which {digits(number(facts, 'queue_delay_ms'))} ms are queue delay"
    return f"one request at a time takes {took}: misses {facts['slo']}"


def _lone_request_always(_: Reason, facts: Facts) -> str:
    return (
        f"one request at a time takes {digits(number(facts, 'took_ms'))} ms: more than "
        f"{facts['slo']} allows, under any load and with any config of the space"
    )


def _generator_failed(_: Reason, facts: Facts) -> str:
    why = f" ({facts['why']})" if "why" in facts else ""
    return f"{facts['generator']} failed{why}: {facts['words']}"


def _too_many_clients(reason: Reason, facts: Facts) -> str:
    clients, rate_per_s = count(facts, "clients"), number(facts, "answered_per_s")
    return (
        f"{clients:,} clients are too many for a window of {digits(number(facts, 'window_s'))} s: "
        f"the server answered {digits(rate_per_s, 2)}/s, so each would wait about "
        f"{digits(clients / rate_per_s, 2)} s for an answer ({cause(reason)})"
    )


def _model_failed_requests(_: Reason, facts: Facts) -> str:
    requests = count_text(count(facts, "request_count"), "request")
    words = facts["words"] or "it gave no reason"
    return f"the model failed {count(facts, 'failed_count'):,} of {requests}: {words}"


def _model_answered_errors(_: Reason, facts: Facts) -> str:
    least = "at least " if facts["at_least"] else ""
    requests = count_text(count(facts, "request_count"), "request")
    failed_of = f"{least}{count(facts, 'failed_count'):,} of {requests}"
    return f"the model answered {failed_of} with an error: {facts['words']}"


def _load_timeout(reason: Reason, facts: Facts) -> str:
    words = f"; {facts['words']}" if "words" in facts else ""
    return f"{cause(reason)} (server.load_timeout){words}"


def _not_served(reason: Reason, facts: Facts) -> str:
    name = facts["name"]
    return f"the server does not load {name} as it is in the repository: {cause(reason)}"


def _nearest_miss(_: Reason, facts: Facts) -> str:
    start = (
        f"No config measured meets every SLO. The nearest was trial {facts['trial']}, which misses "
        f"{facts['misses']}"
    )
    if "lowest_rate_per_s" not in facts:
        return f"{start}."
    lowest = digits(number(facts, "lowest_rate_per_s"))
    return (
        f"{start} at {lowest}/s. At lower rates max_window is too short for a verdict: raise it, "
        "or bound a lower percentile."
    )


def _may_meet(_: Reason, facts: Facts) -> str:
    known = f"{facts['lacking']} for a verdict at {facts['load']}"
    cure = "raise workload.max_window, or bound a lower percentile"
    return f"Trial {facts['trial']} may meet every SLO: {known}; {cure}."


def _others_failed(reason: Reason, facts: Facts) -> str:
    number, others = (count(facts, name) for name in ("failed_count", "other_count"))
    every = f"Every other config tried failed ({number})"
    how = every if number == others else f"{number} of {others} other configs tried failed"
    return f"{how}, the last one: {cause(reason)}"


def _best_other_falls_short(reason: Reason, facts: Facts) -> str:
    best, current = (
        digits(number(facts, name)) for name in ("best_at_most_per_s", "current_per_s")
    )
    return (
        f"{reason.subject}, the best other config, does not sustain {best}/s; the current one "
        f"sustained {current}/s in the search"
    )


def _only_it_meets(_: Reason, facts: Facts) -> str:
    how = "met them at no load"
    if "current_at_most_per_s" in facts:
        how = f"did not sustain {digits(number(facts, 'current_at_most_per_s'))}/s"
    when = "when measured again" if facts["current_measured_again"] else "in the search"
    return f"it met every SLO when measured again; the current config {how} {when}"


def _times(facts: Facts) -> str:
    estimate, low = (digits(number(facts, name)) for name in ("ratio", "ratio_low"))
    above = f" to {digits(number(facts, 'ratio_high'))}" if "ratio_high" in facts else " and above"
    return (
        f"in {count_text(count(facts, 'rounds'), 'round')} it is {estimate} times the current "
        f"config ({number(facts, 'confidence_share'):.0%} interval {low}{above})"
    )


def _better(_: Reason, facts: Facts) -> str:
    met, rounds = (count(facts, name) for name in ("rounds_met", "rounds"))
    return f"{_times(facts)}, and met every SLO in {'each' if met == rounds else f'{met} of them'}"


def _gain_too_small(_: Reason, facts: Facts) -> str:
    return f"{_times(facts)}: less than the {facts['least_gain']} that a change must be worth"


def _answers_same(reason: Reason, facts: Facts) -> str:
    request_count, tolerance = count(facts, "request_count"), number(facts, "tolerance")
    every = f"all {request_count} sample requests" if request_count > 1 else "the sample request"
    within = f"floats within {tolerance:g}" if tolerance else "exactly"
    apart = facts.get("largest_differences")
    within += f"; largest difference: {apart}" if apart else ""
    same = f"Answers match the current config's on {every} ({within})."
    return " ".join([same, *cause_clauses(reason)])


def _answers_changed(_: Reason, facts: Facts) -> str:
    others = count(facts, "other_differences")
    more = f", and {others} more" if others else ""
    return f"It changes answers: {facts['difference']}{more}."


def _answers_not_compared(reason: Reason, facts: Facts) -> str:
    if reason.causes:
        return " ".join(cause_clauses(reason))
    to = f" to {facts['stream']}" if "stream" in facts else ""
    return f"Answers{to} were not compared: {facts['why']}."


def _soaked(_: Reason, facts: Facts) -> str:
    return f"{facts['load']} for {digits(number(facts, 'duration_s'))} s: {facts['shown']}"


def _not_sustained(texts: Sequence[str]) -> str:
    if len(texts) > _FEW_SOAKS:
        texts = [texts[0], f"{len(texts) - 2} lower loads", texts[-1]]
    return f"the load from the rounds was not sustained in the soak: {'; '.join(texts)}"


def _soak_lowered(reason: Reason, _: Facts) -> str:
    *lost, sustained = causes(reason)
    return f"{_not_sustained(lost)}; then sustained {sustained}"


def _latency_grows(_: Reason, facts: Facts) -> str:
    grown, error = (digits(number(facts, f"{name}_percent"), 2) for name in ("growth", "error"))
    over = digits(number(facts, "duration_s"))
    return f"latency grew by {grown}% of its mean (standard error {error}%) in a soak of {over} s"


def _memory_grows(_: Reason, facts: Facts) -> str:
    over_s, grown = number(facts, "duration_s"), number(facts, "growth_bytes")
    ends = number(facts, "used_bytes") + grown / 2.0
    sizes = (grown, number(facts, "error_bytes"), ends, 3600.0 * grown / over_s)
    by, error, to, per_hour = (bytes_text(round(size)) for size in sizes)
    return (
        f"memory of {facts['whose']} grew by {by} (standard error {error}) to {to} in a soak of "
        f"{digits(over_s)} s, and still did at its end: {per_hour} an hour"
    )


def _no_lasting_gain(reason: Reason, _: Facts) -> str:
    return f"no gain was sustained: the current config sustained {cause(reason)}"


SENTENCES: Sentences = {
    ReasonKind.OUT_OF_TIME: "the time budget is used up",
    ReasonKind.CURRENT_CONFIG_OUT_OF_TIME: "the time budget was used up before the current config "
    "gave a result",
    ReasonKind.CURRENT_CONFIG_FAILS: _current_config_fails,
    ReasonKind.TOO_MANY_FAILED: lambda r, f: (
        f"{f['failed_count']} of "
        f"{count_text(count(f, 'trial_count'), 'trial')} failed; the last one said: {cause(r)}"
    ),
    ReasonKind.NO_ROOM: _no_room,
    ReasonKind.SENDABLE_LIMIT: lambda _, f: (
        "it sustains all that the load generator can send, "
        f"{digits(number(f, 'sendable_level'), 4)}/s"
    ),
    ReasonKind.LONE_REQUEST_MISSES: _lone_request,
    ReasonKind.LONE_REQUEST_ALWAYS_MISSES: _lone_request_always,
    ReasonKind.LOW_LOAD_MISSES: lambda _, f: (
        f"at {digits(number(f, 'rate_per_s'))}/s, a tenth of its load, it misses {f['slo']}"
    ),
    ReasonKind.MODEL_NOT_LOADED: lambda _, f: f"{f['model']} is in the repository, but not loaded",
    ReasonKind.RANDOM_INPUTS: "its inputs were random values",
    ReasonKind.GENERATOR_FAILED: _generator_failed,
    ReasonKind.GENERATOR_LATE: _generator_failed,
    ReasonKind.TOO_MANY_CLIENTS: _too_many_clients,
    ReasonKind.MODEL_FAILS: lambda _, f: f"the model fails: {f['words']}",
    ReasonKind.MODEL_FAILED_REQUESTS: _model_failed_requests,
    ReasonKind.MODEL_ANSWERED_ERRORS: _model_answered_errors,
    ReasonKind.NO_FIRST_ANSWER: lambda _, f: (
        f"{f['model']} gave no answer within {f['patience_s']:g} s (server.load_timeout)"
    ),
    ReasonKind.SERVER_STOPPED_ANSWERING: lambda _, f: (
        f"the server stopped answering; {f['generator']}: {f['words']}"
    ),
    ReasonKind.SERVER_SAYS: lambda _, f: str(f["words"]),
    ReasonKind.SERVER_GONE: lambda _, f: f"{f['doing']}: the server is gone ({f['words']})",
    ReasonKind.NO_ANSWER: lambda _, f: f"{f['doing']}: no answer within {f['deadline_s']:g} s",
    ReasonKind.ENDED_WHILE_STARTING: lambda _, f: (
        f"tritonserver ended while starting: {f['words'] or 'it left no message'}"
    ),
    ReasonKind.NOT_READY: lambda _, f: (
        f"tritonserver was not ready within {f['timeout_s']:g} s: {f['words']}"
    ),
    ReasonKind.ENGINE_REFUSES: lambda _, f: f"the engine cannot start the container: {f['words']}",
    ReasonKind.LOAD_TIMEOUT: _load_timeout,
    ReasonKind.DIED_LOADING: lambda r, f: f"{cause(r)}; the log ends with: {f['words']}",
    ReasonKind.BESIDE_OLD_COPY: lambda r, _: (
        f"{cause(r)}, beside its old copy or without it (server.unload_first)"
    ),
    ReasonKind.NOT_SERVED: _not_served,
    ReasonKind.ABOUT: lambda r, _: cause(r),
    ReasonKind.NO_MEASUREMENT: "No trial gave a measurement.",
    ReasonKind.NEAREST_MISS: _nearest_miss,
    ReasonKind.MAY_MEET: _may_meet,
    ReasonKind.OTHERS_FAILED: _others_failed,
    ReasonKind.ALL_OTHERS_FAILED: lambda r, _: (
        f"nothing could be compared with the current config. {cause(r)}"
    ),
    ReasonKind.NOT_TO_CAPACITY: lambda r, _: (
        f"Not every config was measured to its capacity: {cause(r)}"
    ),
    ReasonKind.NO_OTHER_MEETS: "No other config measured meets every SLO.",
    ReasonKind.BEST_OTHER_FALLS_SHORT: _best_other_falls_short,
    ReasonKind.NOT_COMPARED: lambda r, _: (
        f"the current config could not be compared with: {cause(r)}"
    ),
    ReasonKind.MISSED_AGAIN: "it missed an SLO when measured again on a fresh server",
    ReasonKind.TOO_FEW_AGAIN: lambda _, f: (
        f"{f['lacking']} for a verdict at {f['load']}, when measured again"
    ),
    ReasonKind.SMALLER_GAIN: lambda _, f: f"{digits(number(f, 'ratio'))} times the current config",
    ReasonKind.BEATEN: "another finalist sustains more when measured again",
    ReasonKind.ONLY_IT_MEETS: _only_it_meets,
    ReasonKind.MEETS_BY_CHANCE: lambda _, f: (
        f"it met every SLO in {f['rounds_met']} of {f['rounds']} rounds, the current config in "
        f"{f['current_met']}: that may be chance"
    ),
    ReasonKind.NOTHING_COMPARABLE: "in every round, other programs used more of the machine while "
    "one of the two configs was measured, so the two cannot be compared",
    ReasonKind.BETTER: _better,
    ReasonKind.BETTER_THAN_CAN_BE_SENT: lambda _, f: (
        f"{_times(f)}; it sustains all that the load generator can send"
    ),
    ReasonKind.GAIN_TOO_SMALL: _gain_too_small,
    ReasonKind.GAIN_OPEN: lambda _, f: f"{_times(f)}, which includes no gain",
    ReasonKind.LEFT_OUT: lambda _, f: f"Left out for lack of time: {f['what']}.",
    ReasonKind.SIMPLER_FAILS: "all of its changes stay, since the simpler config failed",
    ReasonKind.ANSWERS_SAME: _answers_same,
    ReasonKind.ANSWERS_CHANGED: _answers_changed,
    ReasonKind.ANSWERS_VARY: lambda _, f: (
        "Answers were not compared: the current config's own "
        f"differ from run to run ({f['difference']})."
    ),
    ReasonKind.ANSWERS_NOT_COMPARED: _answers_not_compared,
    ReasonKind.FEWER_CPUS: lambda _, f: (
        f"In the search and the rounds the server had {f['server_cpus']} of {f['machine_cpus']} "
        "CPUs, all of them in the soak; default thread counts follow the number of CPUs."
    ),
    ReasonKind.SOAKED: _soaked,
    ReasonKind.SOAK_NOT_SUSTAINED: lambda r, _: _not_sustained(causes(r)),
    ReasonKind.SOAK_LOWERED: _soak_lowered,
    ReasonKind.LATENCY_GROWS: _latency_grows,
    ReasonKind.MEMORY_GROWS: _memory_grows,
    ReasonKind.SOAK_UNKNOWN: lambda r, _: f"{UNSOAKED}: {cause(r)}",
    ReasonKind.CURRENT_SOAK_UNKNOWN: lambda r, _: f"{UNSOAKED} for the current config: {cause(r)}",
    ReasonKind.TOO_FEW: lambda _, f: f"{f['lacking']} for a verdict",
    ReasonKind.DISTURBED_MISS: lambda r, _: (
        f"it missed an SLO on a disturbed machine: {cause(r).rstrip('.')}"
    ),
    ReasonKind.NO_LASTING_GAIN: _no_lasting_gain,
    ReasonKind.GAIN_UNSURE: lambda _, f: (
        f"only {digits(number(f, 'ratio'))} times what the current config may sustain is certain"
    ),
}
