"""One harness for every measurement: jobs, what their results depend on, where they are kept."""

from toreqprop.evidence.job import Job, Record, Store
from toreqprop.evidence.provenance import environment, provenance
from toreqprop.evidence.runner import Listener, Outcome, run_jobs

__all__ = [
    "Job",
    "Listener",
    "Outcome",
    "Record",
    "Store",
    "environment",
    "provenance",
    "run_jobs",
]
