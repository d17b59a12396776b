"""Rules for all modules of the product: which module may do what, and names that must exist elsewhere."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import distcommit
from distcommit.core.error_catalogue import ERRORS

ROOT = Path(distcommit.__file__).parent


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def paths_with(pattern: str) -> set[str]:
    return {path for path, source in modules() if re.search(pattern, source)}


def test_product_decodes_only_through_the_decoding_module() -> None:
    direct_decoding = r"\bdecode\((?:[^()]|\([^()]*\))*\btype=|msgspec\.convert\(|\.Decoder\("
    assert paths_with(direct_decoding) == {"core/support/decoding.py"}


def test_bucket_of_a_dataset_is_computed_in_one_place() -> None:
    assert not paths_with(r"import .*\bbucket_of\b"), "other modules must use CommitGroups"


def test_each_catalogued_error_is_raised_somewhere_or_is_the_default_of_a_class() -> None:
    sources = [source for path, source in modules() if not path.startswith("core/error_catalogue/")]
    named = {word for source in sources for word in re.findall('"([A-Z]+(?:_[A-Z]+)+)"', source)}
    assert sorted(ERRORS.keys() - named) == []


def test_every_extra_in_an_install_command_exists() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].keys()
    for path, source in modules():
        for arguments in re.findall(r"install_command\(([^)]*)\)", source):
            assert set(re.findall(r"""['"]([\w-]+)['"]""", arguments)) <= extras, path


def test_no_message_names_a_package_index() -> None:
    assert not paths_with(r"""pip install ['"]?distcommit""")


def test_example_sink_of_the_guide_has_at_most_fifty_statements() -> None:
    """Docstrings and imports do not count."""
    tree = ast.parse((ROOT / "testing" / "fakes" / "notes_sink.py").read_text(encoding="utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    docs = [n for n in statements if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(statements) - len(docs) - len(imports) <= 50
