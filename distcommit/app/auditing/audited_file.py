"""A published file as the audit reads it."""

from __future__ import annotations

from dataclasses import dataclass

from distcommit.app.auditing.sequence_content import altered
from distcommit.core.errors import DistcommitError
from distcommit.core.ports import FileSystem
from distcommit.core.provenance import Provenance
from distcommit.sinks.files.footer import Footer, read_footer, read_records
from distcommit.sinks.files.offsets import OffsetSets, parsed


@dataclass(frozen=True, slots=True)
class AuditedFile:
    """One file."""

    footer: Footer
    offsets: OffsetSets
    holes: OffsetSets
    altered: str = ""
    """How its records differ from those that were written, if they were read."""


def audited_file(fs: FileSystem, path: str, provenance: Provenance | None, *, deep: bool) -> AuditedFile | str:
    """Read a file, with all of its records if `deep`. Return a text if it is damaged, or not a file of this product."""
    reason = ""
    try:
        footer = read_footer(fs, path)
        if footer is None:
            return "it has no footer of this product"
        sets, holes = map(parsed, (footer.offsets, footer.holes))
        for text in footer.filtered.values():
            parsed(text)
        if deep:
            table = read_records(fs, path)
            if table.num_rows != footer.records:
                return f"{table.num_rows} records, its footer says {footer.records}"
            if provenance is not None and not footer.stripped:
                offsets = OffsetSets()
                offsets.add(table, provenance)
                if offsets.difference(sets).count() or sets.difference(offsets).count():
                    return "its records are not those that its footer names"
            reason = altered(footer, table)
    except (DistcommitError, OSError) as error:
        return str(error)
    return AuditedFile(footer, sets, holes, reason)
