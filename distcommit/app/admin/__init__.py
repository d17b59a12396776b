"""Operator actions on a job: releases, watermarks, repair, rebuild, reprocessing, expiry. An action that changes the
store must first fence running runs. Start reading at `rebuild`.
"""
