"""Why something ended as it did, as data: decisions and files use it; words come from elsewhere.

`tuner.sentences` alone turns a reason into a sentence, `tuner.record.remedies` alone into what to
do next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

#: A number with its unit in the name of the fact, or a text.
Fact = str | int | float | bool


class ReasonKind(Enum):
    """What happened; the facts of each kind are those that its sentence shows."""

    TEXT = "text"  # a sentence that nothing is decided on

    # A search and its trials.
    OUT_OF_TIME = "out_of_time"
    CURRENT_CONFIG_OUT_OF_TIME = "current_config_out_of_time"
    CURRENT_CONFIG_FAILS = "current_config_fails"
    TOO_MANY_FAILED = "too_many_failed"
    NO_ROOM = "no_room"
    SENDABLE_LIMIT = "sendable_limit"
    LONE_REQUEST_MISSES = "lone_request_misses"
    LONE_REQUEST_ALWAYS_MISSES = "lone_request_always_misses"
    LOW_LOAD_MISSES = "low_load_misses"
    MODEL_NOT_LOADED = "model_not_loaded"
    RANDOM_INPUTS = "random_inputs"

    # A load.
    CLIENT_BEHIND = "client_behind"
    GENERATOR_FAILED = "generator_failed"
    GENERATOR_LATE = "generator_late"
    TOO_MANY_CLIENTS = "too_many_clients"
    MODEL_FAILS = "model_fails"
    MODEL_FAILED_REQUESTS = "model_failed_requests"
    MODEL_ANSWERED_ERRORS = "model_answered_errors"
    NO_FIRST_ANSWER = "no_first_answer"
    SERVER_STOPPED_ANSWERING = "server_stopped_answering"

    # What disturbed a measurement.
    QUOTA_USED_UP = "quota_used_up"
    MACHINE_PAUSED = "machine_paused"
    OTHER_PROCESSES = "other_processes"

    # What to know of a measurement.
    SENT_LATE = "sent_late"
    SENT_TOO_LITTLE = "sent_too_little"
    NOT_AS_RECORDED = "not_as_recorded"
    CLIENT_IN_LATENCY = "client_in_latency"
    CLIENT_BUSY = "client_busy"
    CLIENT_COSTLY = "client_costly"
    ENDED_EARLY = "ended_early"
    GPU_THROTTLED = "gpu_throttled"
    SAMPLE_SMALL = "sample_small"
    UNANSWERED = "unanswered"
    NOT_STEADY = "not_steady"
    SOME_FAILED = "some_failed"
    CLOSED_LOOP_MODES = "closed_loop_modes"
    UNIQUE_INPUTS_TOO_LARGE = "unique_inputs_too_large"
    UNIQUE_INPUTS_TOO_FEW = "unique_inputs_too_few"
    INPUTS_REPEATED = "inputs_repeated"
    NO_FINAL_RESPONSE = "no_final_response"
    MORE_AFTER_FINAL = "more_after_final"
    SEQUENCES_UNENDED = "sequences_unended"

    # What to know of the first calls.
    SLOW_FIRST_CALLS = "slow_first_calls"
    SIZES_NOT_WARM = "sizes_not_warm"
    UNLIKE_CONFIG = "unlike_config"

    # Why a load does not last.
    ANSWERS_BEHIND = "answers_behind"
    LATENCY_GROWS_IN_WINDOW = "latency_grows_in_window"

    # Why a measurement does not count.
    LOAD_NOT_SENT = "load_not_sent"
    DISTURBED = "disturbed"
    ONLY_GAPS_MISS = "only_gaps_miss"
    WINDOW_TOO_SHORT = "window_too_short"
    TRIAL_LOST = "trial_lost"
    PROOF_INTERRUPTED = "proof_interrupted"

    # Why a config was not overloaded.
    CLOSED_LOOP_NOT_OVERLOADED = "closed_loop_not_overloaded"
    LISTED_NOT_OVERLOADED = "listed_not_overloaded"
    NO_TAIL_SLO = "no_tail_slo"
    NO_LOAD_TO_EXCEED = "no_load_to_exceed"
    WINNER_SUSTAINED_OVERLOAD = "winner_sustained_overload"

    # A server.
    SERVER_SAYS = "server_says"
    SERVER_GONE = "server_gone"
    NO_ANSWER = "no_answer"
    ENDED_WHILE_STARTING = "ended_while_starting"
    NOT_READY = "not_ready"
    ENGINE_REFUSES = "engine_refuses"
    LOAD_TIMEOUT = "load_timeout"
    DIED_LOADING = "died_loading"
    BESIDE_OLD_COPY = "beside_old_copy"
    NOT_SERVED = "not_served"

    # What a search leaves to a proof.
    ABOUT = "about"  # another subject's reason, of this one
    NO_MEASUREMENT = "no_measurement"
    NEAREST_MISS = "nearest_miss"
    MAY_MEET = "may_meet"
    OTHERS_FAILED = "others_failed"
    ALL_OTHERS_FAILED = "all_others_failed"
    NOT_TO_CAPACITY = "not_to_capacity"

    # The rounds of a proof.
    NO_OTHER_MEETS = "no_other_meets"
    BEST_OTHER_FALLS_SHORT = "best_other_falls_short"
    NOT_COMPARED = "not_compared"
    MISSED_AGAIN = "missed_again"
    TOO_FEW_AGAIN = "too_few_again"
    SMALLER_GAIN = "smaller_gain"
    BEATEN = "beaten"
    ONLY_IT_MEETS = "only_it_meets"
    MEETS_BY_CHANCE = "meets_by_chance"
    NOTHING_COMPARABLE = "nothing_comparable"
    BETTER = "better"
    BETTER_THAN_CAN_BE_SENT = "better_than_can_be_sent"
    GAIN_TOO_SMALL = "gain_too_small"
    GAIN_OPEN = "gain_open"

    # The tests of a winner.
    LEFT_OUT = "left_out"
    SIMPLER_FAILS = "simpler_fails"
    ANSWERS_SAME = "answers_same"
    ANSWERS_CHANGED = "answers_changed"
    ANSWERS_VARY = "answers_vary"
    ANSWERS_NOT_COMPARED = "answers_not_compared"
    FEWER_CPUS = "fewer_cpus"  # in search and rounds than in production
    SOAKED = "soaked"
    SOAK_NOT_SUSTAINED = "soak_not_held"
    SOAK_LOWERED = "soak_lowered"
    LATENCY_GROWS = "latency_grows"
    MEMORY_GROWS = "memory_grows"
    SOAK_UNKNOWN = "soak_unknown"
    CURRENT_SOAK_UNKNOWN = "current_soak_unknown"
    TOO_FEW = "too_few"
    DISTURBED_MISS = "disturbed_miss"
    NO_LASTING_GAIN = "no_lasting_gain"
    GAIN_UNSURE = "gain_unsure"

    # A check.
    NO_SOAK = "no_soak"
    CREDIT_LOST = "credit_lost"
    CREDIT_NOT_JUDGED = "credit_not_judged"
    CREDIT_HOLDS = "credit_holds"
    SLOS_MISSED = "slos_missed"
    SLOS_AT_EDGE = "slos_at_edge"
    TOO_FEW_TO_JUDGE = "too_few_to_judge"
    SLOS_MET = "slos_met"
    SENDING_LIMITED = "sending_limited"
    LIMIT_HIDES_LOSS = "limit_hides_loss"
    NO_ACCEPTED_RESULT = "no_accepted_result"
    ACCEPTED_ELSEWHERE = "accepted_elsewhere"
    ACCEPTED_OTHERWISE = "accepted_otherwise"
    ACCEPTED_AT_OTHER_LOAD = "accepted_at_other_load"
    OTHER_GENERATOR = "other_generator"
    COMPARED_ELSEWHERE = "compared_elsewhere"
    LOSS_RULED_OUT = "loss_ruled_out"
    LOSS_SMALL = "loss_small"
    LOSS_CERTAIN = "loss_certain"
    LOSS_OPEN = "loss_open"
    LOSS_FINDABLE = "loss_findable"
    CONFIG_REFUSED = "config_refused"
    CONFIG_UNMEASURED = "config_unmeasured"
    DISTURBED_CHECK = "disturbed_check"


@dataclass(frozen=True)
class Reason:
    """Why a run, a trial or a measurement ended as it did.

    Attributes:
        subject: A config by its changes, a trial or a model; empty for the entire run.
        facts: Facts by name. ``words`` are those of a server, a model or another program, whose
            meaning `tuner.server.log` knows. ``sentence`` is shown unchanged, instead of the
            sentence of the kind.
        causes: The reasons that led to this one.
    """

    kind: ReasonKind
    subject: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict, hash=False)
    causes: tuple[Reason, ...] = ()

    @classmethod
    def of_text(cls, sentence: str, **facts: Fact) -> Reason:
        """A sentence that nothing is decided on, unless it quotes ``words``."""
        return cls(ReasonKind.TEXT, facts={"sentence": sentence, **facts})

    def of(self, subject: str) -> Reason:
        """The same, of this subject."""
        if self.subject:
            return Reason(ReasonKind.ABOUT, subject, causes=(self,))
        return replace(self, subject=subject)

    def chain(self) -> Iterator[Reason]:
        """The reason, its causes, and theirs."""
        yield self
        for cause in self.causes:
            yield from cause.chain()

    def quotes(self) -> Iterator[str]:
        """The words of others in it, and in its causes."""
        for reason in self.chain():
            if words := reason.facts.get("words"):
                yield str(words)
