"""One harness for every measurement: jobs, what their results depend on, where they are kept."""

from toreqprop.evidence.job import Job as Job
from toreqprop.evidence.job import Record as Record
from toreqprop.evidence.job import Store as Store
from toreqprop.evidence.provenance import environment as environment
from toreqprop.evidence.provenance import provenance as provenance
from toreqprop.evidence.runner import Listener as Listener
from toreqprop.evidence.runner import Outcome as Outcome
from toreqprop.evidence.runner import run_jobs as run_jobs
from toreqprop.evidence.study import Measurement as Measurement
from toreqprop.evidence.study import run_study as run_study
