"""The commands that measure or plan, each as a list of steps; none imports another."""
