"""A job as its file says it, and what a person can ask of it: run, status, audit, rebuild, release and the rest.

Puts the parts together; must not hold rules of the protocol. Start reading at `config`, then `job`.
"""
