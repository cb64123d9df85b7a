"""A live comparison as a Markdown table, with its verdicts on the targets, and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from live_state import Comparison, LiveSearch, Step
from recorded_curves import COLOURS, DASHES

from tuner.score.ratio import Ratio
from tuner.search.budget import StopReason

OURS = "twin"
#: A strategy counts as being at the best of the others once it holds this share of its goodput ...
NEARLY = 0.99
#: ... and ours should get there in this share of the time that the other took.
TIME_GOAL = 0.2
CURRENT = "current config"
_HEADS = (
    "strategy",
    "configs tried",
    "minutes",
    "seconds spent choosing",
    "ended by",
    "searched goodput",
    "re-measured goodput (95 % interval)",
    "sustained in every round",
    "share of the best",
    f"{OURS}'s over it (95 % interval)",
    "seconds until it held 99 % of the best other",
)
_LEGEND = (
    "Goodput is in inferences per second within every SLO. Searched: of the config that the search "
    "held at its end, by its own measurements. Re-measured: the load at which that config begins "
    "to miss an SLO, in {rounds} rounds of all winners in turn, each time on a fresh server, with "
    "other arrivals in each round; geometric mean. Sustained: the highest load it sustained in the "
    "worst of the rounds. The last column counts from the search's beginning; the config held at a "
    "time counts with its re-measured goodput, or with its searched one if it was not re-measured. "
    "A search that ended by itself keeps its winner."
)


@dataclass(frozen=True)
class Held:
    """From this second on the search held a config that sustains this goodput."""

    seconds: float
    goodput: float


def held_by(comparison: Comparison, search: LiveSearch, *, searched: bool = False) -> list[Held]:
    """What a search held over time; ``searched``: by its own measurements only."""
    found: list[Held] = []
    for step in search.steps:
        best = search.held_after(step)
        worth = None if best is None else _worth(comparison, best, searched)
        if worth is not None:
            found.append(Held(step.seconds, worth))
    return found


def _worth(comparison: Comparison, step: Step, searched: bool) -> float | None:
    return step.goodput if searched else comparison.goodput(step)


def seconds_until(held: Sequence[Held], goodput: float) -> float | None:
    """When it first held this much; None when it never did."""
    return next((h.seconds for h in held if h.goodput >= goodput), None)


def best_other(comparison: Comparison) -> LiveSearch | None:
    """Of the strategies that are not ours, the one whose winner sustains most."""
    others = [s for s in comparison.searches.values() if s.strategy != OURS and s.winner]
    return max(others, key=lambda s: _final(comparison, s), default=None)


def _final(comparison: Comparison, search: LiveSearch) -> float:
    return (comparison.goodput(search.winner) or 0.0) if search.winner else 0.0


def report(comparison: Comparison, results: Path) -> str:
    """Writes table and figure; returns the table."""
    text = table(comparison)
    results.mkdir(parents=True, exist_ok=True)
    (results / "live.md").write_text(text)
    if comparison.searches:
        _draw(comparison, results)
    return text


def table(comparison: Comparison) -> str:
    """The table, and a sentence for each target."""
    lines = [
        f"# Search strategies on one real server: {comparison.settings.model}",
        "",
        _facts(comparison),
        "",
        f"| {' | '.join(_HEADS)} |",
        "|---" * len(_HEADS) + "|",
        *_rows(comparison),
        "",
        _LEGEND.format(rounds=len(comparison.rounds)),
        "",
        *(f"- {said}" for said in (*_goodput_said(comparison), *_time_said(comparison))),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _facts(comparison: Comparison) -> str:
    settings, machine = comparison.settings, comparison.machine
    steps = [s for search in comparison.searches.values() for s in search.steps]
    measured, disturbed = (sum(getattr(s, n) for s in steps) for n in ("measurements", "disturbed"))
    said = (
        f"Each search had {settings.minutes:g} minutes of wall time, Poisson arrivals, windows of "
        f"at least {settings.window_s:g} s and seed {settings.seed}; {disturbed} of {measured} "
        "measurements were made while something else used the machine."
    )
    if not machine:
        return said
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['configs']} configs, {', '.join(machine['slo'])}. {said} "
        f"{machine['cores']} cores of {machine['cpu']}; {versions}."
    )


def _rows(comparison: Comparison) -> list[str]:
    best = max(
        (r.estimate for k in comparison.entrants() if (r := comparison.remeasured(k))), default=None
    )
    rows = []
    if comparison.current is not None:
        rows.append(_row(comparison, CURRENT, ["1", "", "", ""], comparison.current, best, ""))
    other = best_other(comparison)
    target = None if other is None else NEARLY * _final(comparison, other)
    for search in in_order(comparison):
        spent = f"{search.seconds / 60:.1f}", f"{search.choosing_s:.1f}"
        facts = [str(len(search.steps)), *spent, _end(search.ended)]
        reached = (
            "" if target is None else _seconds(seconds_until(held_by(comparison, search), target))
        )
        rows.append(_row(comparison, search.strategy, facts, search.winner, best, reached))
    return rows


def _row(
    comparison: Comparison,
    name: str,
    facts: Sequence[str],
    winner: Step | None,
    best: float | None,
    reached: str,
) -> str:
    searched = again = stood = share = ahead = ""
    if winner is None or winner.goodput is None:
        searched = "no SLO met"
    else:
        searched = f"{winner.goodput:.0f}"
        key = winner.candidate.key
        measured = comparison.remeasured(key)
        if measured is not None and best is not None:
            again, least = _interval(measured, ".0f"), comparison.stood(key)
            stood = "missed an SLO" if least is None else f"{least:.0f}"
            share = f"{measured.estimate / best:.1%}"
        ours = comparison.searches.get(OURS)
        if name != OURS and ours and ours.winner:
            ratio = comparison.ratio(ours.winner.candidate.key, key)
            ahead = "" if ratio is None else _interval(ratio, ".3f")
    return f"| {' | '.join((name, *facts, searched, again, stood, share, ahead, reached))} |"


def _goodput_said(comparison: Comparison) -> list[str]:
    """Whether our winner sustains as much as that of each other strategy."""
    ours = comparison.searches.get(OURS)
    if ours is None or ours.winner is None:
        return []
    ratios = {
        s.strategy: r
        for s in comparison.searches.values()
        if s is not ours
        and s.winner
        and (r := comparison.ratio(ours.winner.candidate.key, s.winner.candidate.key))
    }
    if not ratios:
        return []
    below = [name for name, r in ratios.items() if r.high < 1.0]
    open_ = [name for name, r in ratios.items() if r.estimate < 1.0 <= r.high]
    if below:
        said = f"missed: less than {', '.join(below)}"
    elif open_:
        higher = ", ".join(open_)
        said = f"left open: these rounds cannot separate it from {higher}, measured higher"
    else:
        said = "met"
    return [f"Re-measured goodput of {OURS} at least that of each other at equal time: {said}."]


def _time_said(comparison: Comparison) -> list[str]:
    """How long ours took to get as far as the best of the others, by both measures."""
    ours, other = comparison.searches.get(OURS), best_other(comparison)
    if ours is None or other is None or other.winner is None:
        return []
    said = []
    for name, searched in (("re-measured if available", False), ("as searched", True)):
        final = _worth(comparison, other.winner, searched)
        assert final is not None  # a winner was scored
        mine, theirs = (
            seconds_until(held_by(comparison, s, searched=searched), NEARLY * final)
            for s in (ours, other)
        )
        assert theirs is not None  # it holds its winner
        which = f"99 % of the {final:.0f}/s of the best other, {other.strategy} ({name})"
        if mine is None:
            said.append(f"{OURS} did not hold {which}, which took {theirs:.0f} s: missed.")
        else:
            verdict = "met" if mine <= TIME_GOAL * theirs else "missed"
            said.append(
                f"{OURS} held {which}, after {mine:.0f} s, that search after {theirs:.0f} s: "
                f"{mine / theirs:.2f} of its time; at most {TIME_GOAL:g}: {verdict}. These include "
                f"first trials of {ours.steps[0].seconds:.0f} s and "
                f"{other.steps[0].seconds:.0f} s."
            )
    return said


def in_order(comparison: Comparison) -> list[LiveSearch]:
    """Drawn as in the figures of the replays."""
    return [comparison.searches[name] for name in COLOURS if name in comparison.searches]


def _end(ended: StopReason) -> str:
    return (
        "time" if ended is StopReason.TIME else f"itself ({ended.name.lower().replace('_', ' ')})"
    )


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f}"


def _interval(value: Ratio, form: str) -> str:
    if value.low == value.high:
        return f"{value.estimate:{form}}"
    return f"{value.estimate:{form}} ({value.low:{form}} to {value.high:{form}})"


def _draw(comparison: Comparison, results: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    limit_s = comparison.settings.minutes * 60.0
    figure, (over_time, again) = plt.subplots(
        1, 2, figsize=(12, 4.6), sharey=True, layout="constrained", width_ratios=(3, 1)
    )
    searches = in_order(comparison)
    for place, search in enumerate(searches):
        colour, held = COLOURS[search.strategy], held_by(comparison, search)
        if held:
            end_s = max(search.seconds, held[-1].seconds)
            over_time.plot(
                [*(h.seconds for h in held), min(end_s, limit_s)],
                [*(h.goodput for h in held), held[-1].goodput],
                color=colour,
                linestyle=DASHES.get(search.strategy, "solid"),
                drawstyle="steps-post",
                linewidth=2.6 if search.strategy == OURS else 1.6,
                label=search.strategy,
            )
            if search.ended is not StopReason.TIME:
                over_time.plot([end_s], [held[-1].goodput], "o", color=colour)
        winner = search.winner
        measured = None if winner is None else comparison.remeasured(winner.candidate.key)
        if measured is not None:
            middle, low, high = measured.estimate, measured.low, measured.high
            error = [[middle - low], [high - middle]]
            again.errorbar([place], [middle], yerr=error, fmt="o", color=colour, capsize=4)
    over_time.set_xlim(0.0, limit_s)
    over_time.set_ylim(bottom=0.0)
    over_time.set_xlabel("seconds of search (a dot: it ended by itself)")
    over_time.set_ylabel("goodput of the config it holds (inferences/s)")
    over_time.set_title("re-measured where it was, else as searched")
    again.set_title("winners re-measured")
    again.set_xlim(-0.6, len(searches) - 0.4)
    again.tick_params(bottom=False, labelbottom=False)
    for panel in (over_time, again):
        panel.grid(alpha=0.25)
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.suptitle(f"{comparison.settings.model}: search strategies on one real server")
    for suffix, facts in (("png", None), ("svg", {"Date": None})):
        figure.savefig(results / f"live.{suffix}", dpi=130, metadata=facts)
    plt.close(figure)
