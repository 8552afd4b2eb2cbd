"""The documents as a reader finds them: pages, and the fenced blocks in them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"])
README = ROOT / "README.md"
"""Its Python blocks need names from around them: tests/test_readme.py runs those."""
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is to be saved as, its code and its first line."""

    language: str
    title: str | None
    code: str
    line: int


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split(maxsplit=1)
        title = re.search(r'title="([^"]+)"', match["info"])
        found.append(
            Block(
                words[0] if words else "",
                title[1] if title else None,
                match["code"],
                text[: match.start()].count("\n") + 2,
            )
        )
    return [b for b in found if language is None or b.language == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def imported_packages(code: str) -> set[str]:
    """Top-level packages a block imports."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found
