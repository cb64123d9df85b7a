"""`tune run`, and the steps that only it takes: `run.py` lists them."""
