"""What files of earlier versions held: reasons as sentences only, and workers beside a run.

Nothing else reads sentences.

A sentence is shown as it was; its kind follows from its words, so that next steps and the table of
trust stay what they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.facts import adapter
from tuner.reason import Reason, ReasonKind

#: Of the reasons of a result: those of a config begin with its name.
_OF_CONFIG = {
    r"Answers (match|to) .*": ReasonKind.ANSWERS_SAME,
    r"Answers were .*": ReasonKind.ANSWERS_NOT_COMPARED,
    r"It changes answers.*": ReasonKind.ANSWERS_CHANGED,
}
_LEFT_OUT = re.compile(r"Left out for lack of time: (.*?)\.?$")
#: What an earlier version's words mean; a group is the fact of that name.
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
        ReasonKind.SOAK_NOT_HELD
    ),
    r"what lasts is no gain": ReasonKind.NO_LASTING_GAIN,
    r"\(server\.load_timeout\)": ReasonKind.LOAD_TIMEOUT,
    r"time (of the )?budget": ReasonKind.OUT_OF_TIME,
}


def reason_of_sentence(sentence: str) -> Reason:
    """The sentence as it was, with what it is known to mean as its causes."""
    for words, kind in _OF_CONFIG.items():
        if found := re.fullmatch(rf"(?:(.*?): )?({words})", sentence, re.DOTALL):
            return Reason(kind, found[1] or "", {"sentence": found[2]})
    if found := _LEFT_OUT.search(sentence):
        return Reason(ReasonKind.LEFT_OUT, facts={"sentence": sentence, "what": found[1]})
    meant = []
    for words, kind in _MEANINGS.items():
        if found := re.search(words, sentence):
            facts = {name: text for name, text in found.groupdict().items() if text is not None}
            meant.append(Reason(kind, facts=facts))
    facts = {"sentence": sentence, "words": sentence}
    return Reason(ReasonKind.TEXT, facts=facts, causes=tuple(meant))


def trial_of_earlier(trial: Mapping[str, Any]) -> dict[str, Any]:
    """A line of `trials.jsonl` as it is written now: of `tune worker` the bench is left."""
    kept = {key: trial.get(key) for key in ("reason", "limit")}
    made = {k: _json(v) for k, v in kept.items() if isinstance(v, str)}
    if worker := trial.get("worker"):
        made["bench"] = worker
    return {**{k: v for k, v in trial.items() if k != "worker"}, **made}


def with_why(result: Any) -> Any:
    """A `result.json` with `why`, the reasons as data; what is none comes back as it is."""
    if not isinstance(result, Mapping) or "why" in result:
        return result
    reasons = result.get("reasons")
    kept = reasons if isinstance(reasons, (list, tuple)) else ()
    return {**result, "why": [_json(text) for text in kept if isinstance(text, str)]}


def _json(sentence: str) -> Any:
    return adapter(Reason).dump_python(reason_of_sentence(sentence), mode="json")
