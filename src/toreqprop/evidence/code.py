"""Which source a function runs: the modules it imports, and theirs, and the data files they name.

The import graph is read from the source (`ast`), imports inside functions included, within this
library and the package the function belongs to. A module's packages count, as importing it runs
their ``__init__``. A JSON file beside a module that the module names in a string counts too:
settings decide results like code does. What is imported by a computed name is not seen, and what
other packages do is left to their versions.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def code_digest(module: str) -> str:
    """SHA-256 of every source of this library, and of its own package, that ``module`` runs."""
    digest = hashlib.sha256()
    for path in sources(module):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def sources(module: str) -> list[Path]:
    """The files behind that digest, in the order of their modules' names."""
    seen: dict[str, tuple[Path, ...]] = {}
    followed = {"toreqprop", module.partition(".")[0]}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen[name], imported = _read(name)
        waiting += [found for found in imported if found.partition(".")[0] in followed]
        waiting += _packages(name) if seen[name] else []
    return list(dict.fromkeys(path for name in sorted(seen) for path in seen[name]))


def _read(name: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """A module's file with the data files it names, and what it imports.

    Nothing for a function or class of the module that was named before the last dot.
    """
    path = _file(name)
    if path is None:
        return (), ()
    imported, texts = _named(path.read_bytes())
    beside = (path.with_name(text) for text in texts)
    return (path, *(found for found in beside if found.is_file())), imported


@cache
def _named(source: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a source imports, and the JSON files it names; parsed once, as many jobs share it."""
    tree = ast.parse(source)
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    files = sorted(text for text in texts if text.endswith(".json") and "/" not in text)
    return tuple(dict.fromkeys(_imports(tree))), tuple(files)


def _imports(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _file(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
