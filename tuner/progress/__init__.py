"""Progress of a run: events for views, and the same events as values for programs."""
