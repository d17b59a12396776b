"""Reports made from the JSON of the benchmarks."""
