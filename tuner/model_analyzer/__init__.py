"""Everything that knows NVIDIA's Model Analyzer: its searches, and its YAML."""
