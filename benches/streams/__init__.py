"""The parts of ``streams_bench.py``."""
