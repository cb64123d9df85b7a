"""Sentences about loads and measurements: what disturbed one, and what to know of it."""

from __future__ import annotations

from tuner.reason import Reason, ReasonKind
from tuner.sentences.parts import Facts, Sentences, cause, causes, count, number
from tuner.spec.units import count_text, digits, digits_beside

_BEHIND = "The load generator could not keep up"
_UNENDED = (
    "could not be ended after the load: their slots stay occupied for "
    "max_sequence_idle_microseconds."
)


def _client_behind(reason: Reason, facts: Facts) -> str:
    parts = [f"the load generator could not keep up with {facts['load']}"]
    if "sent_per_s" in facts:
        parts.append(f"it sent {digits(number(facts, 'sent_per_s'), 4)}/s")
    parts.extend(_late(cause.facts) for cause in reason.causes)
    return "; ".join(parts)


def _late(facts: Facts) -> str:
    late = f"{number(facts, 'late_share'):.0%} of the requests were sent more than 1 ms late"
    if "lag_p99_us" not in facts:
        return late
    return f"{late}, 1% by {digits(number(facts, 'lag_p99_us') / 1e3)} ms or more"


def _sent_too_little(_: Reason, facts: Facts) -> str:
    sent, due = (digits(number(facts, name), 4) for name in ("sent_per_s", "due_per_s"))
    return f"{_BEHIND}: it sent {sent} of {due} requests per second."


def _gpu_throttled(_: Reason, facts: Facts) -> str:
    clock = f", down to {number(facts, 'clock_mhz'):.0f} MHz" if "clock_mhz" in facts else ""
    return f"Limits of heat or power lowered a GPU's clocks during the measurement{clock}."


def _client_costly(_: Reason, facts: Facts) -> str:
    parts = {"slo_share": "the tightest latency SLO"}
    if "core_count" in facts:
        parts["core_share"] = count_text(count(facts, "core_count"), "core")
    shares = [f"{number(facts, n):.0%} of {what}" for n, what in parts.items() if n in facts]
    return (
        f"The load generator itself took {digits(number(facts, 'request_ms'), 2)} ms of CPU for a "
        f"request: {' and '.join(shares)}."
    )


def _sample_small(_: Reason, facts: Facts) -> str:
    answered = count_text(count(facts, "completed_count"), "request")
    return (
        f"Only {answered}: too few to prove a p{100.0 * number(facts, 'quantile'):g} "
        f"({count(facts, 'needed_count'):,} needed at least)."
    )


def _unanswered(_: Reason, facts: Facts) -> str:
    return (
        f"{count_text(count(facts, 'unanswered_count'), 'request')} without an answer when the "
        "load ended count as slower than all others: percentiles that include them are lower "
        "bounds."
    )


def _not_steady(_: Reason, facts: Facts) -> str:
    by_rate, expected = (digits(number(facts, n)) for n in ("by_rate", "in_flight"))
    return (
        f"Little's law does not hold: rate times latency gives {by_rate} requests in "
        f"flight, there were {expected}; the system was not in a steady state."
    )


def _some_failed(_: Reason, facts: Facts) -> str:
    requests = count_text(count(facts, "request_count"), "request")
    of = f"{count(facts, 'failed_count'):,} of {requests}"
    start = f"The model answered {of} with an error"
    if facts["in_sequences"]:
        start = f"{of} failed, those included that follow a failed one in its sequence"
    return f"{start}: {facts['words']}"


def _modes(_: Reason, facts: Facts) -> str:
    low, high = (digits(number(facts, f"{end}_infer_per_s"), 4) for end in ("lowest", "highest"))
    span = f"{low} to {high} infer/s over {count(facts, 'start_count')} starts"
    return f"The closed loop settles in different modes: {span}."


def _inputs_repeated(_: Reason, facts: Facts) -> str:
    times = f"{number(facts, 'times'):.1f} times"
    start = f"The list of {count(facts, 'sampled_count')} sampled inputs was used {times} over"
    return f"{start}: inputs repeated more often than the spec asks for."


def _of_requests(facts: Facts) -> str:
    requests = count_text(count(facts, "request_count"), "request")
    return f"{count(facts, 'broken_count'):,} of {requests}"


def _quota(_: Reason, facts: Facts) -> str:
    limit = number(facts, "limit_percent")
    used = digits_beside(number(facts, "throttled_percent"), limit)
    return (
        f"The CPU quota of {digits(number(facts, 'quota_cpus'), 3)} CPUs was used up in {used}% of "
        f"its periods (limit {digits(limit)}%), which throttled CPUs for "
        f"{digits(number(facts, 'throttled_s'), 2)} s: raise the quota, or start fewer threads."
    )


def _paused(_: Reason, facts: Facts) -> str:
    limit = number(facts, "limit_percent")
    return (
        f"The machine paused for {digits_beside(number(facts, 'stalled_percent'), limit)}% of the "
        f"time (limit {digits(limit)}%), for {digits(number(facts, 'shortest_ms'), 2)} ms and more "
        "at a time."
    )


def _other_processes(_: Reason, facts: Facts) -> str:
    limit = number(facts, "limit_percent")
    return (
        f"Other processes took {digits_beside(number(facts, 'other_cpu_percent'), limit)}% of the "
        f"machine's CPU meanwhile (limit {digits(limit)}%)."
    )


def _short(_: Reason, facts: Facts) -> str:
    answers = count_text(count(facts, "answer_count"), "answer")
    return f"{answers} in {digits(number(facts, 'duration_s'), 3)} s, too few for a verdict"


SENTENCES: Sentences = {
    # What disturbed a measurement.
    ReasonKind.QUOTA_USED_UP: _quota,
    ReasonKind.MACHINE_PAUSED: _paused,
    ReasonKind.OTHER_PROCESSES: _other_processes,
    # What to know of one.
    ReasonKind.CLIENT_BEHIND: _client_behind,
    ReasonKind.SENT_LATE: lambda _, f: f"{_BEHIND}: {_late(f)}.",
    ReasonKind.SENT_TOO_LITTLE: _sent_too_little,
    ReasonKind.NOT_AS_RECORDED: lambda _, f: (
        f"{digits(number(f, 'late_percent'), 2)}% of the recorded requests were sent over 1 ms "
        "late."
    ),
    ReasonKind.CLIENT_IN_LATENCY: lambda _, f: (
        f"The load generator itself takes {number(f, 'latency_share'):.0%} of the latency."
    ),
    ReasonKind.CLIENT_BUSY: lambda _, f: (
        f"The load generator was busy for {number(f, 'busy_share'):.0%} of the time: latencies "
        "include the time that answers waited for it."
    ),
    ReasonKind.CLIENT_COSTLY: _client_costly,
    ReasonKind.ENDED_EARLY: lambda _, f: (
        f"Stopped after {digits(number(f, 'duration_s'), 2)} s: the SLO was already missed."
    ),
    ReasonKind.GPU_THROTTLED: _gpu_throttled,
    ReasonKind.SAMPLE_SMALL: _sample_small,
    ReasonKind.UNANSWERED: _unanswered,
    ReasonKind.NOT_STEADY: _not_steady,
    ReasonKind.SOME_FAILED: _some_failed,
    ReasonKind.CLOSED_LOOP_MODES: _modes,
    ReasonKind.UNIQUE_INPUTS_TOO_LARGE: lambda _, f: (
        f"Only {f['used_count']} of {f['wanted_count']} unique inputs are used: more would take "
        f"over {f['limit_mib']} MiB."
    ),
    ReasonKind.UNIQUE_INPUTS_TOO_FEW: lambda _, f: (
        f"Only {f['used_count']} of {f['wanted_count']} unique inputs exist within int_range."
    ),
    ReasonKind.INPUTS_REPEATED: _inputs_repeated,
    ReasonKind.NO_FINAL_RESPONSE: lambda _, f: (
        f"{_of_requests(f)} got no final response, TRITONSERVER_RESPONSE_COMPLETE_FINAL."
    ),
    ReasonKind.MORE_AFTER_FINAL: lambda _, f: (
        f"{_of_requests(f)} got responses after the final one, or with an unknown id."
    ),
    ReasonKind.SEQUENCES_UNENDED: lambda _, f: (
        f"{count_text(count(f, 'sequence_count'), 'sequence')} {_UNENDED}"
    ),
    # What to know of the first calls.
    ReasonKind.SLOW_FIRST_CALLS: lambda _, f: (
        f"The first calls of {f['sizes']} took up to {digits(number(f, 'longest_s'), 2)} s: after "
        "each load of the model, users wait that long. A model_warmup for each size avoids it; "
        "preferred sizes make them fewer."
    ),
    ReasonKind.SIZES_NOT_WARM: lambda _, f: (
        f"{f['model']} is not warmed up with {f['sizes']} before the load: they take too long, or "
        "are too large"
    ),
    ReasonKind.UNLIKE_CONFIG: lambda _, f: (
        f"{f['model']} does not return what its config says: {f['differences']}. Triton does not "
        "check that, but clients that rely on the config fail."
    ),
    # Why a load does not last.
    ReasonKind.ANSWERS_BEHIND: lambda _, f: (
        f"answered {digits(number(f, 'answered_percent'), 3)}% of the requests due"
    ),
    ReasonKind.LATENCY_GROWS_IN_WINDOW: lambda _, f: (
        f"latency grows by {digits(number(f, 'growth_percent'), 2)}% of its mean within the window"
    ),
    # Why a measurement does not count.
    ReasonKind.LOAD_NOT_SENT: "the load generator could not keep up",
    ReasonKind.DISTURBED: lambda r, _: " ".join(causes(r)),
    ReasonKind.ONLY_GAPS_MISS: "only a few gaps without any answer missed an SLO",
    ReasonKind.WINDOW_TOO_SHORT: _short,
    ReasonKind.TRIAL_LOST: lambda r, _: f"its trial ended without a result: {cause(r)}",
    ReasonKind.PROOF_INTERRUPTED: "the confirmation it belongs to was interrupted",
    # Why a config was not overloaded.
    ReasonKind.CLOSED_LOOP_NOT_OVERLOADED: "A closed loop cannot be overloaded: its clients wait "
    "for their answers.",
    ReasonKind.LISTED_NOT_OVERLOADED: "The loads are fixed by the spec: no capacity was searched, "
    "so none is exceeded.",
    ReasonKind.NO_TAIL_SLO: "No SLO bounds a high percentile of the latency: the recovery cannot "
    "be judged.",
    ReasonKind.NO_LOAD_TO_EXCEED: "not overloaded, since it met the SLOs at no load",
    ReasonKind.WINNER_SUSTAINED_OVERLOAD: "not overloaded, since the winner sustained that load "
    "in every round",
}
