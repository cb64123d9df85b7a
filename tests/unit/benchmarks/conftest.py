"""Benchmarks are scripts: each imports others from its own directory."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("searches", "claims", "real"):
    sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / folder))
