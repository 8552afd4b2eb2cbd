"""Experiments that can be run with a planted fault, by the name of their sabotage."""

from __future__ import annotations

from functools import wraps

from toreqprop.verify.measurements import Measurements
from toreqprop.verify.track import Context, Experiment


def plantable(run: Experiment) -> Experiment:
    """The experiment, run inside a mutation where the context's sabotage is called like one."""

    @wraps(run)
    def planted(context: Context) -> Measurements:
        from toreqprop.verify.mutations.catalogue import mutations

        fault = mutations().get(context.sabotage or "")
        if fault is None:
            return run(context)
        with fault.plant():
            return run(context)

    return planted
