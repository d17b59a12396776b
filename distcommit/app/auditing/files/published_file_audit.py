"""Reads a published file for the audit."""

from __future__ import annotations

from dataclasses import dataclass

from distcommit.app.auditing.files.content_sum_check import altered
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.provenance import Provenance
from distcommit.sinks.files.footer import Footer, read_footer, read_records
from distcommit.sinks.files.offset_sets import OffsetSets, parsed


@dataclass(frozen=True, slots=True)
class AuditedFile:
    """The content of a published file.

    Attributes:
        footer: the footer.
        offsets: offsets of the input records in the file, from the footer.
        holes: holes that the footer names: offsets without a record at the source.
        altered: how the records differ from the written ones; empty if they do not, or were not read.
    """

    footer: Footer
    offsets: OffsetSets
    holes: OffsetSets
    altered: str = ""


def audited_file(fs: FileSystem, path: str, provenance: Provenance | None, *, deep: bool) -> AuditedFile | str:
    """Return the content of a file, or the reason if it is damaged or foreign. With `deep`, all records are read."""
    reason = ""
    try:
        footer = read_footer(fs, path)
        if footer is None:
            return "the file has no footer of distcommit"
        sets, holes = map(parsed, (footer.offsets, footer.holes))
        for text in footer.filtered.values():
            parsed(text)
        if deep:
            table = read_records(fs, path)
            if table.num_rows != footer.records:
                return f"the file has {table.num_rows} records, but its footer has {footer.records}"
            if provenance is not None and not footer.stripped:
                offsets = OffsetSets()
                offsets.add(table, provenance)
                if offsets.difference(sets).count() or sets.difference(offsets).count():
                    return "the offsets of the records differ from those in the footer"
            reason = altered(footer, table)
    except (DistcommitError, OSError) as error:
        return str(error)
    return AuditedFile(footer, sets, holes, reason)
