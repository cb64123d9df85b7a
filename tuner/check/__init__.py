"""`tune check`, and the steps that only it takes: `check.py` lists them."""
