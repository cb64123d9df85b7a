"""One measurement: what is asked for, and what it gives. Data only."""
