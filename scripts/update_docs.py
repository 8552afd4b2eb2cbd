"""Write the marked blocks of README.md and docs/ from results/*.json; --check only says if stale.

A block stands between ``<!-- result NAME: begin -->`` and ``<!-- result NAME: end -->``; NAME is
one of `result_tables.BLOCKS`.
"""

from __future__ import annotations

import re
import sys

from result_tables import BLOCKS
from result_tables.sources import ROOT

MARKED = re.compile(
    r"(<!-- result (?P<name>[\w-]+): begin -->\n).*?(<!-- result (?P=name): end -->)", re.DOTALL
)


def render(page: str) -> str:
    """The page with every marked block up to date."""

    def fill(match: re.Match[str]) -> str:
        lines = BLOCKS[match["name"]]()
        return match[1] + "\n".join(["", *lines, "", ""]) + match[3]

    return MARKED.sub(fill, page)


def main() -> int:
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        page = path.read_text()
        fresh = render(page)
        if fresh != page:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(fresh)
    for path in stale:
        print(f"{path} {'is stale: run scripts/update_docs.py' if '--check' in sys.argv else ''}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
