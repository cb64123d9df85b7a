"""Reads files of earlier versions, which stored reasons as sentences, and `tune worker`'s names.

No other module reads sentences. A sentence is shown as it was stored; its words give its kind, so
that next steps and the table of trust stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.facts import adapter
from tuner.reason import Reason, ReasonKind

#: Reasons about a config; these sentences start with its name.
_OF_CONFIG = {
    r"Answers (match|to) .*": ReasonKind.ANSWERS_SAME,
    r"Answers were .*": ReasonKind.ANSWERS_NOT_COMPARED,
    r"It changes answers.*": ReasonKind.ANSWERS_CHANGED,
}
_LEFT_OUT = re.compile(r"Left out for lack of time: (.*?)\.?$")
#: What sentences of earlier versions mean; a group is the fact of that name.
_MEANINGS = {
    r"load generator (could not keep up|can send)": ReasonKind.CLIENT_BEHIND,
    r"(?P<model>[^\s(]+) lies in the repository": ReasonKind.MODEL_NOT_LOADED,
    r"input was made up of": ReasonKind.RANDOM_INPUTS,
    r"one request at a time takes .* (?P<queue_delay_ms>[\d.,]+) ms queue delay: misses": (
        ReasonKind.LONE_REQUEST_MISSES
    ),
    r"one request at a time takes [^,]*(: misses|: more than)": ReasonKind.LONE_REQUEST_MISSES,
    r"missed an SLO on a disturbed machine": ReasonKind.DISTURBED_MISS,
    r"(does not last|not sustained in the soak): (?!.*(what lasts|could not keep up))": (
        ReasonKind.SOAK_NOT_SUSTAINED
    ),
    r"what lasts is no gain": ReasonKind.NO_LASTING_GAIN,
    r"\(server\.load_timeout\)": ReasonKind.LOAD_TIMEOUT,
    r"time (of the )?budget": ReasonKind.OUT_OF_TIME,
}


def reason_of_sentence(sentence: str) -> Reason:
    """The stored sentence, with the kinds that its words mean as causes."""
    for words, kind in _OF_CONFIG.items():
        if match := re.fullmatch(rf"(?:(.*?): )?({words})", sentence, re.DOTALL):
            return Reason(kind, match[1] or "", {"sentence": match[2]})
    if match := _LEFT_OUT.search(sentence):
        return Reason(ReasonKind.LEFT_OUT, facts={"sentence": sentence, "what": match[1]})
    meant = []
    for words, kind in _MEANINGS.items():
        if match := re.search(words, sentence):
            facts = {name: text for name, text in match.groupdict().items() if text is not None}
            meant.append(Reason(kind, facts=facts))
    facts = {"sentence": sentence, "words": sentence}
    return Reason(ReasonKind.TEXT, facts=facts, causes=tuple(meant))


def trial_of_earlier(trial: Mapping[str, Any]) -> dict[str, Any]:
    """A line of `trials.jsonl` with today's keys: a worker's name is the bench."""
    made = {k: v for k, v in trial.items() if k != "worker"}
    if worker := trial.get("worker"):
        made["bench"] = worker
    return reasons_of_earlier(made, "reason", "limit")


def reasons_of_earlier(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The row with reasons in place of the sentences under these keys."""
    made = {k: _json(row[k]) for k in keys if isinstance(row.get(k), str)}
    return {**row, **made}


#: Sentences without data: their key, another key of the same object, and their kind.
_ALONE = (
    ("warnings", "seed", ReasonKind.TEXT),
    ("disturbances", "seed", ReasonKind.TEXT),
    ("limited", "tried", ReasonKind.CLIENT_BEHIND),
    ("reason", "tried", ReasonKind.TEXT),
    ("reason", "verdict", ReasonKind.TEXT),
    ("excuse", "measurement", ReasonKind.TEXT),
    ("reasons", "current", ReasonKind.TEXT),
)


#: Keys of a measurement that streams and shapes once had too, without content.
_OF_TOTALS = {
    *("host", "wall_s", "models", "command", "client_cores", "streams"),
    *("disturbances", "disturbances_data"),
}


def _only_figures(parts: Any) -> Any:
    """The streams or shapes of a measurement, without keys that only the measurement has."""
    if not isinstance(parts, Mapping):
        return with_data(parts)
    return {
        name: with_data(
            {k: v for k, v in part.items() if k not in _OF_TOTALS}
            if isinstance(part, Mapping) and "seed" in part
            else part
        )
        for name, part in parts.items()
    }


def with_data(value: Any) -> Any:
    """The JSON with data for each reason that it has as a sentence only."""
    if isinstance(value, (list, tuple)):
        return [with_data(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("kind") == ReasonKind.DISTURBED_MISS.value:
        return _with_cause(value)
    made = {
        key: _only_figures(item) if key in ("streams", "shapes") else with_data(item)
        for key, item in value.items()
    }
    for key, beside, kind in _ALONE:
        if beside not in value or f"{key}_data" in value:
            continue
        stored = value.get(key)
        if isinstance(stored, str):
            made[f"{key}_data"] = _as_it_was(stored, kind) if stored else None
        elif isinstance(stored, (list, tuple)) and all(isinstance(text, str) for text in stored):
            made[f"{key}_data"] = [_as_it_was(text, kind) for text in stored]
    return made


def _with_cause(reason: Mapping[str, Any]) -> Any:
    """A disturbed miss with its disturbances as a cause; they were a fact in text once."""
    facts = dict(reason.get("facts", {}))
    text = facts.pop("disturbances", None)
    causes = reason.get("causes", []) if text is None else [_as_it_was(text, ReasonKind.TEXT)]
    return {**reason, "facts": facts, "causes": causes}


def _as_it_was(sentence: str, kind: ReasonKind) -> Any:
    return adapter(Reason).dump_python(Reason(kind, facts={"sentence": sentence}), mode="json")


def result_of_earlier(result: Any) -> Any:
    """A `result.json` with its reasons as data; any other value is returned unchanged."""
    return with_data(_with_why(result))


def _with_why(result: Any) -> Any:
    if not isinstance(result, Mapping) or "why" in result:
        return result
    reasons = result.get("reasons")
    kept = reasons if isinstance(reasons, (list, tuple)) else ()
    return {**result, "why": [_json(text) for text in kept if isinstance(text, str)]}


def _json(sentence: str) -> Any:
    return adapter(Reason).dump_python(reason_of_sentence(sentence), mode="json")
