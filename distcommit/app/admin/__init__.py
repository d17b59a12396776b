"""Operator actions on a job: releases, watermarks, repair, rebuild, reprocessing, expiry. Must not run beside an
unfenced run. Start reading at `rebuild`."""
