"""A tritonserver: how its program is found, and how a running one is queried."""
