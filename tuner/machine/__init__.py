"""The machine: child processes, free ports, private directories, facts about the host."""
