"""The free phase as ONNX: a Loop whose condition is the residual.

Its three parts are exported one by one by torch; the Loop around the step, which refers to the
drive outside of it, is put together here.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.exporting.free_phase import FreePhase
from toreqprop.solution import State

if TYPE_CHECKING:
    import onnx

NEEDED = ("onnx", "onnxscript")


@torch.no_grad()
def to_onnx(phase: FreePhase) -> onnx.ModelProto:
    """A free phase as an ONNX model with input "x" and output "output", for any batch size.

    With ``tol=0`` it takes ``max_steps`` steps, whatever the input. Keep the result with
    ``onnx.save``.
    """
    checks.instance("phase", phase, FreePhase, "use FreePhase(model, example)")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f'ONNX needs {" and ".join(missing)}: run `pip install "toreqprop[export]"`.'
        )
    drive, state = phase.start(phase.example)
    return _joined(phase, *_parts(phase, phase.example, drive, state))


class _Everything(nn.Module):
    """Start, step and readout side by side, so that torch exports them in one go."""

    def __init__(self, phase: FreePhase) -> None:
        super().__init__()
        self.phase = phase

    def forward(self, x: Tensor, drive: State, state: State) -> tuple[Tensor, ...]:
        first_drive, first_state = self.phase.start(x)
        following, residual = self.phase.step(drive, state)
        return (*first_drive, *first_state, residual, *following, self.phase.read(state))


Part = tuple["onnx.ModelProto", list[str], list[str]]
"""A model, and the names of its inputs and outputs."""


def _parts(phase: FreePhase, x: Tensor, drive: State, state: State) -> list[Part]:
    """Start, step and readout as ONNX, cut out of one export, every name of each with a prefix."""
    from onnx import compose, inliner, utils

    batch = {0: torch.export.Dim("batch", min=2)}
    shapes: Any = (batch, tuple(batch for _ in drive), tuple(batch for _ in state))
    with _quiet():
        program = torch.export.export(
            _Everything(phase), (x, drive, state), dynamic_shapes=shapes, strict=False
        )
        found = torch.onnx.export(program, dynamo=True, verbose=False)
    assert found is not None
    whole = inliner.inline_local_functions(found.model_proto)
    inputs = [i.name for i in whole.graph.input]
    outputs = [o.name for o in whole.graph.output]
    begun = len(drive) + len(state)
    cuts = (
        ("begin", inputs[:1], outputs[:begun]),
        ("step", inputs[1:], outputs[begun:-1]),
        ("read", inputs[1 + len(drive) :], outputs[-1:]),
    )
    parts: list[Part] = []
    for prefix, given, wanted in cuts:
        part = utils.Extractor(whole).extract_model(given, wanted)
        named = [[f"{prefix}/{name}" for name in names] for names in (given, wanted)]
        parts.append((compose.add_prefix(part, f"{prefix}/"), *named))
    return parts


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter speaks of its own progress and of packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _joined(phase: FreePhase, begin: Part, step: Part, read: Part) -> onnx.ModelProto:
    """The three parts as one graph with a Loop."""
    from onnx import TensorProto, checker, helper

    drives = len(phase.moving)
    (start, _, first), (body_of, given, made), (end, settled, _) = begin, step, read
    kind = next(o for o in body_of.graph.output if o.name == made[0]).type.tensor_type.elem_type
    values = {v.name: v for v in (*body_of.graph.input, *body_of.graph.output)}

    # Inside the Loop the drive is what it is outside.
    _rename(body_of.graph, dict(zip(given[:drives], first[:drives], strict=True)))
    body = helper.make_graph(
        [
            *body_of.graph.node,
            helper.make_node("Greater", [made[0], "tolerance"], ["unsettled"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
            helper.make_tensor_value_info("before", TensorProto.BOOL, []),
            *(values[name] for name in given[drives:]),
        ],
        [
            helper.make_tensor_value_info("unsettled", TensorProto.BOOL, []),
            *(values[name] for name in made[1:]),
        ],
        list(body_of.graph.initializer),
    )
    graph = helper.make_graph(
        [
            *start.graph.node,
            helper.make_node("Loop", ["steps", "go", *first[drives:]], settled, body=body),
            *end.graph.node,
        ],
        "free phase",
        list(start.graph.input),
        list(end.graph.output),
        [
            *start.graph.initializer,
            *end.graph.initializer,
            helper.make_tensor("steps", TensorProto.INT64, [], [phase.max_steps]),
            helper.make_tensor("go", TensorProto.BOOL, [], [True]),
            # A fixed number of steps: no residual is at most −1.
            helper.make_tensor("tolerance", kind, [], [phase.tol or -1.0]),
        ],
    )
    _rename(graph, {graph.input[0].name: "x", graph.output[0].name: "output"})
    versions = {o.domain: o.version for m in (start, body_of, end) for o in m.opset_import}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="toreqprop")
    model.ir_version = start.ir_version
    checker.check_model(model)
    return model


def _rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Other names for values, in this graph and in those inside its nodes."""
    for node in graph.node:
        for part in (node.input, node.output):
            for k, name in enumerate(part):
                part[k] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, names)
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
