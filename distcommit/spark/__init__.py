"""Spark as what runs the engine's functions on executors, opens its sessions, and hands over streams' micro-batches.

All that knows Spark is here. It must not decide anything about datasets. Start reading at `launch`.
"""
