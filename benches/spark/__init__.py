"""What ``spark_bench.py`` is made of."""
