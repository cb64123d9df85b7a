"""`tune run`: `run.py` lists its steps; the other modules are parts of them."""
