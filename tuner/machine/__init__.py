"""The machine beneath: child processes, free ports, private directories, facts about the host."""
