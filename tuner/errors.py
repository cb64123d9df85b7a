"""Every way a run can end, and the exit code each one carries.

One small tree: a `TunerError` says what happened, where, and what to do next. Subclasses
differ in their exit code and in nothing else, so that a pipeline can tell a broken spec from
a missed SLO. A `TrialError` is an expected outcome of one trial: the search records it and
goes on; it never ends a run by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tuner.reason import Reason, ReasonKind

#: Exit codes of runs and checks that ended without an error.
ENDINGS = {
    0: "success: a better config was found, or the current one is confirmed as good enough",
    10: "no config that loaded meets the SLOs, or a check missed one",
    11: "not known: a gain, or a regression, was neither confirmed nor ruled out",
    12: "regression",
}


class TunerError(Exception):
    """Base of all errors a user may see.

    Args:
        message: What happened, and where.
        hint: What to do next, one sentence; may be empty.
        reason: What happened, as data; the message where nothing is decided on it.
    """

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "a defect of the tuner"
    kind: ClassVar[ReasonKind] = ReasonKind.TEXT

    def __init__(self, message: str, hint: str = "", *, reason: Reason | None = None) -> None:
        message = "\n".join(map(shortened, message.split("\n")))
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason or Reason(self.kind, facts={"sentence": message})

    def __reduce__(self) -> tuple[Callable[..., TunerError], tuple[Any, ...], dict[str, Any]]:
        """Keeps it as it is, whatever a subclass is made from: it may come from another process."""
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(kind: type[TunerError], args: tuple[Any, ...]) -> TunerError:
    error = kind.__new__(kind)
    error.args = args
    return error


def reason_from(error: Exception) -> Reason:
    """The reason of an error; one that users should not see is a defect."""
    if isinstance(error, TunerError):
        return error.reason
    return Reason.of_text(f"a defect of tune: {error!r}")


def shortened(words: str, most: int = 2000) -> str:
    """What a server, a file or a user said, without the middle where that is long."""
    half = most // 2
    return words if len(words) <= most else f"{words[:half]} [...] {words[-half:]}"


class SpecError(TunerError):
    """The spec or the command line is wrong; `message` lists every mistake as file:line:column."""

    exit_code = 2
    meaning = "spec or usage error"


class NothingToSearchError(TunerError):
    """The space holds one candidate or none."""

    exit_code = 3
    meaning = "nothing to search"


class EnvironmentNotReadyError(TunerError):
    """A binary, port, permission, server or model is missing or unusable."""

    exit_code = 4
    meaning = (
        "environment not ready: a required or configured program or file is missing or unusable"
    )


class TooManyFailedTrialsError(TunerError):
    """More trials failed than the budget allows; the search shows nothing about the model."""

    exit_code = 5
    meaning = "the current config cannot be measured, or too many trials failed"


class StalePlanError(TunerError):
    """The file to be replaced is not the one the run read."""

    exit_code = 13
    meaning = "a config changed since the run read it: nothing was written"


class InterruptedRunError(TunerError):
    """Stopped by the user; `hint` holds the command that resumes."""

    exit_code = 130
    meaning = "interrupted, can be resumed"


class TrialError(TunerError):
    """One trial failed, for a reason worth recording; the search goes on.

    Most messages quote a server, so the message is `shortened`.
    """

    def __init__(self, message: str, hint: str = "", *, reason: Reason | None = None) -> None:
        super().__init__(shortened(message), hint, reason=reason)


class DeployRefusedError(TrialError):
    """Triton refused the config; `message` is the server's own reason."""

    def __init__(self, message: str, hint: str = "", *, reason: Reason | None = None) -> None:
        said = Reason(ReasonKind.SERVER_SAYS, facts={"words": shortened(message)})
        super().__init__(message, hint, reason=reason or said)


class ServerGoneError(TrialError):
    """The server crashed, hangs or cannot be reached; it must be restarted."""


class ServerHangsError(ServerGoneError):
    """The server did not answer in time; it may be alive."""


class LoadFailedError(TrialError):
    """The load generator gave no usable result; `message` says why."""


class ModelFailsError(LoadFailedError):
    """The model itself answers requests with errors; `message` has its own words."""


class UndecidedError(LoadFailedError):
    """A load was ended early for an SLO that was not certainly missed; it must be repeated."""


class ClientLimitError(TrialError):
    """The load generator could not send the requested load: no verdict on the config.

    Args:
        message: The requested load.
        hint: What to do next.
        sent_per_s: Requests per second that it did send; None when not known.
    """

    kind = ReasonKind.CLIENT_BEHIND

    def __init__(
        self,
        message: str,
        hint: str = "",
        sent_per_s: float | None = None,
        *,
        reason: Reason | None = None,
    ) -> None:
        super().__init__(message, hint, reason=reason)
        self.sent_per_s = sent_per_s


class OutOfTimeError(TrialError):
    """The time budget is used up: no further measurement is begun."""

    kind = ReasonKind.OUT_OF_TIME
