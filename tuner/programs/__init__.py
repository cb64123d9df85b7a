"""Each command that measures or plans, as a list of steps."""
