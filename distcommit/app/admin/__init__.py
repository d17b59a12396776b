"""Operator actions on a job: releases, watermarks, repair, rebuild, reprocessing, expiry. Must not change a
store beside an unfenced run. Start reading at `rebuild_job`.
"""
