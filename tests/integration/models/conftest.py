"""The benchmarks of real networks are scripts, whose layout the tests of this directory use."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "real"))
