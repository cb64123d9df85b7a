"""Steps before the first measurement: job, programs, first server, locks, manifest."""
