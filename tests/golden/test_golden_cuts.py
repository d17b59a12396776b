"""Cuts as version 1 wrote them: they are read, written the same, and refused where they are of another version."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from distcommit.model.cuts import SeenBucket, SeenDataset
from distcommit.model.errors import CorruptError, UnknownVersionError
from distcommit.stores.cut_pieces import Piece, total_of
from distcommit.stores.cuts import BucketInCut, CutRoot
from distcommit.stores.documents import decode_document, encode_document
from tests.golden.cuts import PIECE, ROOT
from tests.golden.make import GOLDEN_CUTS, make_cuts

PAGE = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "kind", "sample"), [("root", CutRoot, ROOT), ("piece", Piece, PIECE)])
def test_a_cut_is_read_and_written_as_it_was(name: str, kind: type[msgspec.Struct], sample: msgspec.Struct) -> None:
    data = (GOLDEN_CUTS / f"{name}.json").read_bytes()
    assert decode_document(data, kind, 1, name, name) == sample
    assert encode_document(sample) == data
    with pytest.raises(UnknownVersionError):
        decode_document(encode_document(msgspec.structs.replace(sample, version=2)), kind, 1, name, name)
    with pytest.raises(CorruptError):
        decode_document(data[:-9], kind, 1, name, name)


def test_what_is_made_now_is_what_was_made(tmp_path: Path) -> None:
    make_cuts(tmp_path / "cuts")
    made = {path.name: path.read_bytes() for path in (tmp_path / "cuts").iterdir()}
    assert made == {path.name: path.read_bytes() for path in GOLDEN_CUTS.iterdir()}


def test_the_total_of_datasets_is_what_it_was_whatever_their_order() -> None:
    assert total_of(PIECE.datasets) == "003e179a6be4b232"
    assert total_of(dict(reversed(PIECE.datasets.items()))) == "003e179a6be4b232"


@pytest.mark.parametrize("kind", [CutRoot, BucketInCut, SeenBucket, Piece, SeenDataset])
def test_the_page_names_all_fields(kind: type[msgspec.Struct]) -> None:
    assert f"| {kind.__name__} | {', '.join(kind.__struct_fields__)} |" in PAGE
