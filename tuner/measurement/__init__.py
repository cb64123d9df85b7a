"""One measurement: its window, and the figures it gives. Data only."""
