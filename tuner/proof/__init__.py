"""Whether a config of a search is better than the current one, and which load it sustains."""
