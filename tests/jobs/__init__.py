"""Jobs as users run them: `kafka_job` writes, feeds and runs one, `victims` finds and strikes its processes."""
