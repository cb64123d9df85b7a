"""What a run reports while it lasts: events for watchers, and as values for programs."""
