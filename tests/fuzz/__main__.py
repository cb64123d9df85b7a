"""Fuzzes a target for a while: `PYTHONPATH=tests python -m fuzz --minutes 10 spec`.

Ends with exit code 1 at the first input that gives a traceback, takes seconds, or writes outside
its directory; the smallest such input is kept in a file whose name is printed. When the defect is
mended, that file goes to tests/fuzz/seeds/TARGET, and is tried by the unit tests from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

from fuzz.engine import last_tried, run_for
from fuzz.targets import TARGETS
from fuzz.writes import done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--minutes", type=float, default=10.0, help="for each target")
    parser.add_argument("--seed", type=int, help="of the first batch; default: from the clock")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="for what fails")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    failed = False
    for name in TARGETS if options.target == "all" else [options.target]:
        print(f"{name}: {options.minutes:g} minutes, seed {seed}", flush=True)
        try:
            count = run_for(name, options.minutes * 60, seed)
            print(f"{name}: {count} inputs, nothing found")
            if name == "write":
                print(f"{name}: exact and taken back: {dict(done)}")
        except Exception as error:  # whatever an input brought about
            failed = True
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            print(f"{name}: kept as {_kept(options.keep / name, name)}", file=sys.stderr)
            if options.target != "all":
                raise
    return 1 if failed else 0


def _kept(directory: Path, name: str) -> Path:
    tried = last_tried[name]
    if isinstance(tried, tuple):
        directory, tried = directory / tried[0], tried[1]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / hashlib.sha256(tried).hexdigest()[:12]
    path.write_bytes(tried)
    return path


if __name__ == "__main__":
    sys.exit(main())
