"""The proof: whether a config of a search is better than the current one, and its load."""
