"""The machine beneath: child processes, free ports, private directories, facts of the host."""
