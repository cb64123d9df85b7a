"""A live comparison as a Markdown table and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from live_state import Comparison, LiveSearch, Step
from recorded_curves import COLOURS, DASHES

from tuner.score.ratio import Ratio
from tuner.search.budget import StopReason

#: A search counts as being at the best winner once it holds this share of its goodput.
NEARLY = 0.99
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
    "the best over it (95 % interval)",
    "seconds until it held 99 % of the best",
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


def held_by(comparison: Comparison, search: LiveSearch) -> list[Held]:
    """What a search held over time."""
    held = ((step.seconds, search.held_after(step)) for step in search.steps)
    worth = ((s, comparison.goodput(best)) for s, best in held if best is not None)
    return [Held(seconds, goodput) for seconds, goodput in worth if goodput is not None]


def report(comparison: Comparison, results: Path) -> str:
    """Writes table and figure; returns the table."""
    text = table(comparison)
    results.mkdir(parents=True, exist_ok=True)
    (results / "live.md").write_text(text)
    if comparison.searches:
        _draw(comparison, results)
    return text


def table(comparison: Comparison) -> str:
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
    ]
    return "\n".join(lines) + "\n"


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
    again = {k: r.estimate for k in comparison.entrants() if (r := comparison.remeasured(k))}
    best = max(again, key=lambda key: again[key], default=None)
    rows = []
    if comparison.current is not None:
        rows.append(_row(comparison, [CURRENT, "1", "", "", ""], comparison.current, best, ""))
    for search in in_order(comparison):
        spent = f"{search.seconds / 60:.1f}", f"{search.choosing_s:.1f}"
        facts = [search.strategy, str(len(search.steps)), *spent, _end(search.ended)]
        reached = "" if best is None else _reached(comparison, search, NEARLY * again[best])
        rows.append(_row(comparison, facts, search.winner, best, reached))
    return rows


def _reached(comparison: Comparison, search: LiveSearch, goodput: float) -> str:
    """The second at which it first held this much."""
    held = held_by(comparison, search)
    return next((f"{h.seconds:.0f}" for h in held if h.goodput >= goodput), "never")


def _row(
    comparison: Comparison,
    facts: Sequence[str],
    winner: Step | None,
    best: str | None,
    reached: str,
) -> str:
    searched = again = stood = share = ahead = ""
    if winner is None or winner.goodput is None:
        searched = "no SLO met"
    else:
        searched, key = f"{winner.goodput:.0f}", winner.candidate.key
        measured = comparison.remeasured(key)
        ratio = None if best is None else comparison.ratio(best, key)
        if measured is not None and ratio is not None:
            again, least = _interval(measured, ".0f"), comparison.stood(key)
            stood = "missed an SLO" if least is None else f"{least:.0f}"
            share, ahead = f"{1.0 / ratio.estimate:.1%}", _interval(ratio, ".3f")
    return f"| {' | '.join((*facts, searched, again, stood, share, ahead, reached))} |"


def in_order(comparison: Comparison) -> list[LiveSearch]:
    """Drawn as in the figures of the replays."""
    return [comparison.searches[name] for name in COLOURS if name in comparison.searches]


def _end(ended: StopReason) -> str:
    return (
        "time" if ended is StopReason.TIME else f"itself ({ended.name.lower().replace('_', ' ')})"
    )


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
                linewidth=1.6,
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
    figure.savefig(results / "live.png", dpi=130)
    plt.close(figure)
