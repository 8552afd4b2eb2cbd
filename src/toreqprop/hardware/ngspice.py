"""ngspice as a subprocess: operating points of a whole sweep, and transients."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError, TorEqPropError
from toreqprop.hardware.circuit import Circuit, Noise
from toreqprop.hardware.circuit_solution import CircuitSolution, CircuitStatus
from toreqprop.hardware.faults import Faults
from toreqprop.hardware.raw_file import read_raw
from toreqprop.hardware.resistive import Conductances, ResistiveNetwork
from toreqprop.hardware.resistive_netlist import Inputs, resistive_netlist

VARIABLE = "TOREQPROP_NGSPICE"
"""Environment variable that may hold the program's path."""

LOCAL_PROGRAM = Path("ngspice", "usr", "bin", "ngspice")
"""Where ``scripts/install_ngspice.sh`` unpacks it inside a virtual environment."""


class SpiceError(TorEqPropError, RuntimeError):
    """ngspice is missing or refused a circuit; the message says what to do."""


@dataclass(frozen=True)
class Measured:
    """Voltages of one analysis.

    Attributes:
        voltages: (points, n) volts by the name of a circuit's probes.
        axis: (points,) the sweep's index, or seconds.
        status: ``CONVERGED``, or ``INCOMPLETE`` with NaN at the points that are missing.
        message: what ngspice said where it gave up, else empty.
    """

    voltages: Mapping[str, Tensor]
    axis: Tensor
    status: CircuitStatus
    message: str = ""

    @property
    def converged(self) -> bool:
        """True if every point was solved."""
        return self.status is CircuitStatus.CONVERGED


def find_program() -> str | None:
    """Path of ngspice: from ``TOREQPROP_NGSPICE``, the virtual environment, or the search path."""
    named = os.environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    local = Path(sys.prefix) / LOCAL_PROGRAM
    return str(local) if os.access(local, os.X_OK) else shutil.which("ngspice")


@dataclass(frozen=True)
class Ngspice:
    """The program and how long it may take.

    Attributes:
        program: its path; searched for where ``None``.
        timeout: seconds one run may take.
    """

    program: str | None = None
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InvalidInputError(f"timeout must be > 0 s, got {self.timeout}")

    def path(self) -> str:
        """The program's path; raises ``SpiceError`` where there is none."""
        found = find_program() if self.program is None else shutil.which(self.program)
        if found is None:
            looked = self.program or os.environ.get(VARIABLE) or "ngspice"
            raise SpiceError(
                f"the circuit simulator {looked} was not found: install it with `apt-get install "
                f"ngspice`, or set {VARIABLE} to the path of the program"
            )
        return found

    def version(self) -> str:
        """Such as ``ngspice-39``."""
        done = self._call(["--version"], Path.cwd())
        words = done.stdout.split()
        return next((w for w in words if w.startswith("ngspice-")), "ngspice")

    def operating_points(self, circuit: Circuit) -> Measured:
        """Voltages of every point, all of them as one sweep in one process."""
        vectors, message = self._run(circuit.operating_points())
        found = {
            name: _padded(_columns(vectors, nodes)[: circuit.points], circuit.points)
            for name, nodes in circuit.probes.items()
        }
        axis = torch.arange(circuit.points, dtype=torch.float64)
        complete = not any(bool(v.isnan().any()) for v in found.values())
        if complete:
            return Measured(found, axis, CircuitStatus.CONVERGED)
        return Measured(found, axis, CircuitStatus.INCOMPLETE, message)

    def transient(
        self,
        circuit: Circuit,
        step: float,
        stop: float,
        point: int = 0,
        noise: Noise | None = None,
    ) -> Measured:
        """Voltages over time from 0 V at every node; ``step`` and ``stop`` in seconds.

        The times are those ngspice chose, at most ``step`` apart.
        """
        vectors, message = self._run(circuit.transient(step, stop, point, noise))
        axis = torch.from_numpy(vectors["time"])
        found = {name: _columns(vectors, nodes) for name, nodes in circuit.probes.items()}
        if len(axis) and float(axis[-1]) >= stop * (1 - 1e-9):
            return Measured(found, axis, CircuitStatus.CONVERGED)
        return Measured(found, axis, CircuitStatus.INCOMPLETE, message)

    def solve(
        self,
        network: ResistiveNetwork,
        conductances: Conductances,
        x: Tensor,
        target: Tensor | None = None,
        beta: float | Tensor = 0.0,
        faults: Faults | None = None,
        inputs: Inputs = "norton",
    ) -> CircuitSolution:
        """Operating points of a resistive network as ``solve_circuit`` gives them, from SPICE."""
        circuit = resistive_netlist(network, conductances, x, target, beta, faults, inputs)
        measured = self.operating_points(circuit)
        layers = range(1, network.depth + 1)
        nodes = tuple(measured.voltages[f"nodes{layer}"].to(x) for layer in layers)
        rails = tuple(measured.voltages[f"rails{layer}"].to(x) for layer in layers[1:])
        error = torch.full((len(x),), math.nan, dtype=x.dtype)
        return CircuitSolution(nodes, (network.input_rails(x), *rails), 0, error, measured.status)

    def _run(self, netlist: str) -> tuple[dict, str]:
        """Vectors of one analysis, and ngspice's first complaint."""
        with tempfile.TemporaryDirectory(prefix="toreqprop-") as folder:
            place = Path(folder)
            (place / "circuit.cir").write_text(netlist)
            arguments = ["-n", "-b", "-r", "circuit.raw", "circuit.cir"]
            done = self._call(arguments, place)
            message = _complaint(done.stdout + "\n" + done.stderr)
            raw = place / "circuit.raw"
            try:
                return read_raw(raw.read_bytes()), message
            except (OSError, ValueError) as problem:
                raise SpiceError(
                    f"ngspice gave no result: {message or problem}; look at the netlist with "
                    "circuit.operating_points()"
                ) from None

    def _call(self, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        path = self.path()
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if Path(path).parts[-4:] == LOCAL_PROGRAM.parts:
            # Unpacked without root: the libraries it needs lie beside it.
            libraries = sorted((Path(path).parent.parent / "lib").glob("*-linux-gnu*"))
            searched = [str(p) for p in libraries] + [environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(p for p in searched if p)
        try:
            return subprocess.run(
                [path, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SpiceError(
                f"ngspice did not finish within {self.timeout:g} s: raise timeout, or simulate "
                "fewer points at a time"
            ) from None
        except OSError as problem:
            raise SpiceError(f"{path} could not be started: {problem.strerror}") from None


def _columns(vectors: Mapping, nodes: tuple[str, ...]) -> Tensor:
    missing = [node for node in nodes if f"v({node})" not in vectors]
    if missing:
        raise SpiceError(f"ngspice did not report the voltage of node {missing[0]}")
    return torch.stack([torch.from_numpy(vectors[f"v({node})"]) for node in nodes], 1)


def _padded(values: Tensor, rows: int) -> Tensor:
    missing = values.new_full((rows - len(values), values.shape[1]), math.nan)
    return torch.cat([values, missing]) if len(missing) else values


def _complaint(output: str) -> str:
    """The line that tells most about an error, or nothing."""
    lines = [" ".join(line.split()).rstrip(".!") for line in output.splitlines()]
    for mark in ("trouble with node", "error", "aborted"):
        for line in lines:
            if mark in line.lower():
                return line
    return ""
