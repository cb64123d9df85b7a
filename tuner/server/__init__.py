"""A tritonserver: finds its program, and queries a running server."""
