"""A tritonserver: where its program is, and what can be asked of one that runs."""
