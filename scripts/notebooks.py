"""Run the notebooks of docs/notebooks in order and write what their cells print and draw.

    python scripts/notebooks.py            # run all and write them
    python scripts/notebooks.py --check    # run all and write nothing

Cells run in one namespace of this process, as in a kernel; the last one has to leave a picture.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def code_of(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def run(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with fresh outputs.

    Raises:
        AssertionError: its last cell draws nothing.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [dict(cell) for cell in notebook["cells"]]
    drawn: Figure | None = None
    for number, cell in enumerate(c for c in cells if c["cell_type"] == "code"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code_of(cell), f"{name}, cell {number + 1}", "exec"), namespace)
        cell["execution_count"] = number + 1
        cell["outputs"] = []
        if said.getvalue():
            lines = said.getvalue().splitlines(keepends=True)
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": lines})
        drawn = namespace.pop("figure", None)
        if drawn is not None:
            cell["outputs"].append(_picture(drawn))
    assert drawn is not None, f"{name}: the last cell draws nothing; name its picture `figure`"
    return {**notebook, "cells": cells}


def _picture(figure: Any) -> dict[str, Any]:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=80)
    image = base64.b64encode(content.getvalue()).decode()
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {"image/png": image, "text/plain": ["a picture"]},
    }


def page(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page of the site, with what it printed and drew."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(code_of(cell))
            continue
        parts.append(f"```python\n{code_of(cell)}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append("```text\n" + "".join(output["text"]).rstrip() + "\n```")
            else:
                image = output["data"]["image/png"].replace("\n", "")
                parts.append(f'<img alt="What the cell draws" src="data:image/png;base64,{image}">')
    parts.append(f"*The notebook: `docs/notebooks/{name}`.*")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    for path in sorted(FOLDER.glob("*.ipynb")):
        fresh = run(json.loads(path.read_text()), path.name)
        if "--check" not in sys.argv:
            path.write_text(json.dumps(fresh, indent=1, ensure_ascii=False) + "\n")
        print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
