"""Changes the source here and there, and tells which changes no test notices; see
docs/internals/testing.md.

usage: python tests/mutation [--sample N] [--seed S] [--room ROOM ...] [PATH ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutants import Mutant, places, sample
from noticing import Outcome, Reach, preload, reach, tried

HERE = Path(__file__).parent
NOTICED = (Outcome.KILLED, Outcome.TIMEOUT)


def main() -> int:
    options = _options()
    config = tomllib.loads((HERE / "mutation.toml").read_text())
    known = _known()
    begin = time.monotonic()
    every = [
        place
        for room, paths in config["rooms"].items()
        if not options.room or room in options.room
        for place in places(room, paths, config["operators"]["core"])
        if not options.path or str(place.path) in options.path
    ]
    chosen = sample(every, options.sample or len(every), options.seed)
    print(f"{len(chosen)} of {len(every)} mutants, seed {options.seed}", flush=True)
    preload()
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        kept = options.reach or Path(scratch) / "reach.json"
        lines = Reach.read(kept) if kept.exists() else reach(**config["tests"], kept=kept)
    print(f"{len(lines.seconds)} tests followed, {time.monotonic() - begin:.0f} s", flush=True)
    outcomes: list[tuple[Mutant, Outcome]] = []
    for mutant in filter(None, (place.mutant() for place in chosen)):
        outcome = tried(mutant, lines)
        outcomes.append((mutant, outcome))
        if outcome not in NOTICED:
            _tell(mutant, outcome, known.get(_name(mutant)))
    _table(outcomes, known)
    print(f"{time.monotonic() - begin:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutation")
    parser.add_argument("--sample", type=int, help="how many mutants; all of them without")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--room", action="append", help="one of mutation.toml; again for more")
    parser.add_argument("--reach", type=Path, help="keep there which test runs which line, or read")
    parser.add_argument("path", nargs="*", help="modules of the rooms; all of them without")
    return parser.parse_args()


def _known() -> dict[str, str]:
    """Survivors that are looked at already: the change, and the reason why no test can notice."""
    survivors = tomllib.loads((HERE / "survivors.toml").read_text())
    return {
        f"{path}\n{change.strip()}": reason
        for path, changes in survivors.items()
        for reason, listed in changes.items()
        for change in listed
    }


def _name(mutant: Mutant) -> str:
    """Says which change it is whatever line it has moved to."""
    lines = (f"{line[0]} {line[1:].strip()}" for line in mutant.diff.splitlines())
    return f"{mutant.path}\n" + "\n".join(lines)


def _tell(mutant: Mutant, outcome: Outcome, reason: str | None) -> None:
    why = f" (listed: {reason})" if reason else ""
    print(f"\n{mutant.path}:{mutant.line}: {mutant.operator}: {outcome.value}{why}")
    print(mutant.diff, flush=True)


def _table(outcomes: Sequence[tuple[Mutant, Outcome]], known: dict[str, str]) -> None:
    rooms = list(dict.fromkeys(m.room for m, _ in outcomes))
    print(f"\n{'room':12}{'mutants':>9}{'killed':>9}{'survived':>10}{'listed':>8}{'share':>8}")
    for room in [*rooms, "all"]:
        here = [(m, o) for m, o in outcomes if room in (m.room, "all")]
        counts = Counter(o in NOTICED for _, o in here)
        listed = sum(o not in NOTICED and _name(m) in known for m, o in here)
        share = counts[True] / len(here) if here else 1.0
        print(f"{room:12}{len(here):9}{counts[True]:9}{counts[False]:10}{listed:8}{share:8.1%}")


if __name__ == "__main__":
    sys.exit(main())
