"""Pictures of what a network does: each function takes a model or plain data, returns a Figure.

Colours are told apart without red-green vision (Okabe and Ito 2008) and by line style or marker.
Matplotlib is imported when a figure is drawn, not before.
"""

from __future__ import annotations

from toreqprop.plots.alignment import alignment, alignment_data, alignment_figure, angle
from toreqprop.plots.phases import PhaseTrace, trace_phases
from toreqprop.plots.relaxation import relaxation, relaxation_data, relaxation_figure
from toreqprop.plots.spectrum import SpectrumRecorder, coupling_matrix, spectrum
from toreqprop.plots.style import plain_style, save, svg
from toreqprop.plots.training import training, training_data, training_figure
from toreqprop.plots.trajectories import trajectories, trajectory_data, trajectory_figure

__all__ = [
    "PhaseTrace",
    "SpectrumRecorder",
    "alignment",
    "alignment_data",
    "alignment_figure",
    "angle",
    "coupling_matrix",
    "plain_style",
    "relaxation",
    "relaxation_data",
    "relaxation_figure",
    "save",
    "spectrum",
    "svg",
    "trace_phases",
    "training",
    "training_data",
    "training_figure",
    "trajectories",
    "trajectory_data",
    "trajectory_figure",
]
