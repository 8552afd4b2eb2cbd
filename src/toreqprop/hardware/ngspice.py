"""ngspice as a subprocess: operating points of a whole sweep, transients, and a model's solver."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import LinearNudge, Nudge
from toreqprop.energies.circuits import ConductanceNudge
from toreqprop.energies.system import PairSystem, System, layer_norms
from toreqprop.errors import TorEqPropError, UnsupportedModelError
from toreqprop.hardware.circuit import Circuit, Noise
from toreqprop.hardware.netlist import Push, field_netlist
from toreqprop.hardware.neuron_netlist import Neuron
from toreqprop.hardware.raw_file import read_raw
from toreqprop.hardware.resistive_netlist import Inputs
from toreqprop.solution import Solution, State, Status
from toreqprop.solvers import Solver, Trace
from toreqprop.solvers.base import Dynamics

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
        complete: whether every point was solved; voltages of the others are NaN.
        message: what ngspice said where it gave up, else empty.
    """

    voltages: Mapping[str, Tensor]
    axis: Tensor
    complete: bool
    message: str = ""


def find_program() -> str | None:
    """Path of ngspice: from ``TOREQPROP_NGSPICE``, the virtual environment, or the search path."""
    named = os.environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    local = Path(sys.prefix) / LOCAL_PROGRAM
    return str(local) if os.access(local, os.X_OK) else shutil.which("ngspice")


@dataclass(frozen=True)
class Ngspice(Solver):
    """The program, how long it may take, and, as a model's solver, which circuit it is given.

    As a solver it finds every equilibrium in SPICE, all samples and both nudged phases as one
    sweep, so that a model trains from simulated voltages alone. ``tol`` is then how far its
    voltages may be from solving the model's own equations, relative, as for every solver;
    ``max_steps`` means nothing here. Use a model in double precision.

    Attributes:
        program: its path; searched for where ``None``.
        timeout: seconds one run may take.
        neuron, inputs: see `netlist`.
    """

    program: str | None = None
    timeout: float = 600.0
    neuron: Neuron = "behavioural"
    inputs: Inputs = "norton"
    tol: float = field(default=1e-6, kw_only=True)
    max_steps: int = field(default=1, kw_only=True)
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("timeout", self.timeout, 0, above=True, typical="600 s")
        checks.instance("program", self.program, str, "leave it out to search", optional=True)
        checks.choice("neuron", self.neuron, get_args(Neuron))
        checks.choice("inputs", self.inputs, get_args(Inputs))

    def solve(
        self,
        system: Dynamics,
        start: State,
        *,
        trace: Trace | None = None,
        remember: bool = False,
    ) -> Solution:
        """Operating points of one phase, or of two as ``(*centers, *shifts)``."""
        if not isinstance(system, System | PairSystem):
            raise UnsupportedModelError(
                "ngspice solves circuits, no adjoints: use ImplicitGradient(Anderson(tol=1e-9))."
            )
        free = system.system if isinstance(system, PairSystem) else system
        if start[0].is_complex():
            raise UnsupportedModelError(
                "A circuit has no complex voltages: use gradient=CenteredEP()."
            )
        nudges: tuple[Nudge | None, ...]
        if isinstance(system, PairSystem):
            if system.nudge.asymmetry is not None:
                raise UnsupportedModelError(
                    "A circuit has no corrected phases: use gradient=CenteredEP()."
                )
            nudges = (system.nudge.up, system.nudge.down)
        else:
            nudges = (system.nudge,)
        # The phases of a sample follow each other: in a sweep, each starts from the other.
        x = free.x.repeat_interleave(len(nudges), 0)
        push = _push(nudges, start[: free.layers(start) // len(nudges)])
        circuit = field_netlist(free.field, x, free.params, push, self.neuron, self.inputs)
        found = self._states(circuit)
        state = found
        if len(nudges) == 2:
            up, down = [v[0::2] for v in found], [v[1::2] for v in found]
            both = list(zip(up, down, strict=True))
            state = (*(0.5 * (a + b) for a, b in both), *(0.5 * (a - b) for a, b in both))
        state = tuple(v.to(start[0]) for v in state)
        image = system.map(state)
        gap = layer_norms(tuple(a - b for a, b in zip(image, state, strict=True)))
        scale, _ = system.sizes(image)
        residual = (gap / scale).amax(1)
        if trace is not None:
            trace.record(system, state, image, residual)
        done = bool((residual <= self.tol).all())
        return Solution(state, 1, residual, Status.CONVERGED if done else Status.MAX_STEPS)

    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        return image, None

    def _states(self, circuit: Circuit) -> tuple[Tensor, ...]:
        """Voltages of every layer at every point."""
        measured = self.operating_points(circuit)
        if not measured.complete:
            reason = f" ({measured.message})" if measured.message else ""
            raise SpiceError(
                f"ngspice gave up at a point of the sweep{reason}: lower beta, or raise the "
                "saturation current of the diode"
            )
        names = [n for n in circuit.probes if n.startswith(("nodes", "s"))]
        return tuple(measured.voltages[name] for name in names)

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
        return Measured(found, axis, complete, "" if complete else message)

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
        complete = len(axis) > 0 and float(axis[-1]) >= stop * (1 - 1e-9)
        return Measured(found, axis, complete, "" if complete else message)

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


def _push(nudges: tuple[Nudge | None, ...], like: State) -> Push:
    """What the nudges of one phase, or of two in turn, put into the circuit."""
    kinds = {type(nudge) for nudge in nudges if nudge is not None}
    if not kinds:
        return Push()
    if kinds == {ConductanceNudge}:
        pulls = [nudge for nudge in nudges if isinstance(nudge, ConductanceNudge)]
        targets = pulls[0].target
        strengths = [nudge.beta if isinstance(nudge, ConductanceNudge) else 0.0 for nudge in nudges]
        beta = torch.tensor(strengths, dtype=torch.float64).repeat(len(targets))
        return Push((), targets.repeat_interleave(len(nudges), 0), beta)
    if kinds != {LinearNudge}:
        raise UnsupportedModelError(
            "ngspice nudges by constant currents, or by a conductance (ConductanceNudge): use "
            "loss.backward() with CenteredEP() or OneSidedEP()."
        )
    forces = [
        nudge.force(like) if nudge is not None else tuple(torch.zeros_like(s) for s in like)
        for nudge in nudges
    ]
    layers = zip(*forces, strict=True)
    return Push(tuple(torch.stack(both, 1).flatten(0, 1).double() for both in layers))


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
