"""From the JSON of the benchmarks to what people read."""
