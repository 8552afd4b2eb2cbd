"""Does the harness see a fault when there is one? Every sabotage of every track, applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toreqprop.verify.records import Job, Record, verdict_of, without_sabotage
from toreqprop.verify.verdict import Status, Verdict


@dataclass(frozen=True)
class Detection:
    """A track with a fault in it; ``seen`` if its bounds, and not a crash, made it fail."""

    track: int
    title: str
    sabotage: str
    does: str
    honest: Status
    verdict: Verdict
    broken: tuple[str, ...]
    seen: bool

    @property
    def available(self) -> bool:
        """False where the data is not available: neither the track nor its sabotage ran."""
        return self.verdict.status is not Status.NOT_RUN


def sabotage_jobs(jobs: Sequence[Job]) -> list[Job]:
    """Every job again with each of its track's sabotages."""
    return [
        Job(job.track, job.level, job.seeds, sabotage.name)
        for job in jobs
        for sabotage in job.track.sabotages
    ]


def detections(records: dict[Job, Record]) -> list[Detection]:
    """What the rule made of each sabotage; ``records`` hold the honest jobs too.

    A track that fails anyway shows nothing, so its sabotages do not count as seen.
    """
    found = []
    for job, record in records.items():
        if job.sabotage is None:
            continue
        verdict = verdict_of(job.track, record)
        honest = verdict_of(job.track, records[without_sabotage(job)]).status
        broken = tuple(c.bound.says for c in verdict.checks if c.bound.required and not c.holds)
        does = next(s.does for s in job.track.sabotages if s.name == job.sabotage)
        found.append(
            Detection(
                track=job.track.number,
                title=job.track.title,
                sabotage=job.sabotage,
                does=does,
                honest=honest,
                verdict=verdict,
                broken=broken,
                seen=verdict.status is Status.FAIL
                and bool(broken)
                and honest in (Status.PASS, Status.PARTIAL),
            )
        )
    return found
