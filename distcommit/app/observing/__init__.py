"""What a run tells of itself to systems that watch: metrics, traces, lineage, logs. Each is an `Observer`, fed by the
run's typed events, and an extra that is off unless the job file (or `serve --metrics`) asks for it.

It must not have a say in a run: what fails is a warning. Start reading at `attach`.
"""
