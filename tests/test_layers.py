"""Imports point one way: a package may use only what stands to its right in the architecture."""

from __future__ import annotations

import ast
from pathlib import Path

import toreqprop

ROOT = Path(toreqprop.__file__).parent

# Leftmost first, as in docs/architecture.md; packages in one row are independent of each other.
LAYERS: list[set[str]] = [
    {"cli"},
    {"play", "verify"},
    {"bench"},
    {"evidence", "zoo"},
    {"exporting", "hardware", "plots", "sklearn", "tasks"},
    {"checkpoint"},
    {"certificate", "training"},
    {"data_parallel", "trainer_state"},
    {"models"},
    {"equilibrium"},
    {"gradients"},
    {"solvers"},
    {"energies"},
    {"kernels"},
    {"solution"},
    {"frugal", "sealed"},
    {"private_generator", "processes", "reading"},
    {"checks", "executors"},
    {"atomic", "errors", "tracing", "progress_bars", "table_defaults", "templates"},
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}


def owner(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """First-level packages of toreqprop that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            # `from toreqprop import x` names the package in the alias
            modules = (
                [f"{module}.{alias.name}" for alias in node.names]
                if module == "toreqprop"
                else [module]
            )
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"{path}: relative import; write it absolute")
        else:
            continue
        for module in modules:
            parts = module.split(".")
            if parts[0] == "toreqprop" and len(parts) > 1:
                found.add(parts[1])
    return found


def violations(importer: str, targets: set[str]) -> set[str]:
    """Targets that stand left of, or beside, the importer."""
    return {t for t in targets if t in RANK and t != importer and RANK[t] <= RANK[importer]}


def test_every_module_has_a_layer() -> None:
    known = set(RANK) | {"__init__", "__main__", "py.typed"}
    present = {owner(p) for p in ROOT.rglob("*.py")}
    assert present <= known, f"give these a layer: {present - known}"


def test_imports_point_right() -> None:
    wrong = []
    for path in ROOT.rglob("*.py"):
        layer = owner(path)
        if layer in RANK:
            wrong += [f"{path.name}: {layer} -> {t}" for t in violations(layer, imported(path))]
    assert not wrong, "\n".join(wrong)


def test_the_check_can_fail() -> None:
    assert violations("energies", {"models", "errors"}) == {"models"}
    assert violations("bench", {"verify"}) == {"verify"}
    assert violations("tasks", {"sklearn"}) == {"sklearn"}
    assert violations("training", {"checkpoint"}) == {"checkpoint"}


def test_the_reference_kernel_needs_numpy_alone() -> None:
    path = ROOT / "kernels" / "reference.py"
    tops = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            tops |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            tops.add((node.module or "").split(".")[0])
    assert tops <= {
        "numpy",
        "__future__",
        "dataclasses",
        "typing",
        "collections",
        "functools",
        "math",
    }
