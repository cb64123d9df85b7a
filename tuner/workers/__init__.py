"""`tune worker`, and the steps that only it takes: `worker.py` lists them."""
