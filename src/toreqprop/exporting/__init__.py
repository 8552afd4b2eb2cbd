"""Networks for other programs: the free phase as a torch program, as ONNX, as NIR."""

from __future__ import annotations

from toreqprop.exporting.free_phase import FreePhase
from toreqprop.exporting.nir_graph import to_nir
from toreqprop.exporting.onnx_graph import to_onnx
from toreqprop.exporting.program import to_program

__all__ = ["FreePhase", "to_nir", "to_onnx", "to_program"]
