"""What is made ready before anything is measured: job, programs, first server, locks, manifest."""
