"""`tune check`: `check.py` lists its steps; the other modules are used by `tune check` only."""
