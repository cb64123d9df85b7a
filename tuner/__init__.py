"""tune: finds, proves and writes the Triton config that meets your latency SLOs."""

__version__ = "0.1.0"
