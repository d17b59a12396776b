"""Casts for the interleaver: a store is rebuilt beside runs, zombies, people and another rebuild."""

from __future__ import annotations

from distcommit.testing.cast_parts import Cast

REBUILD: tuple[Cast, ...] = ()
