"""What several processes bring to one training, for the docs: `toreqprop scale` as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def scaling_lines(path: Path, load: Any) -> list[str]:
    """Two processes measured, more of them planned; or that nothing was measured."""
    if not path.exists():
        return ["Not measured yet: run `toreqprop scale` on an idle machine."]
    found = load(path.name)
    one, two = (next(t for t in found["trainings"] if t["processes"] == count) for count in (1, 2))
    step, reduce = found["step"], found["reduce"]
    lines = [
        f"`{found['command']}`: in two processes {found['speedup']:.2f} times as fast as in one "
        f"(best of {len(found['trainings']) // 2} each), test accuracy {two['accuracy']:.2%} "
        f"against {one['accuracy']:.2%}, training loss {two['loss']:.5f} against "
        f"{one['loss']:.5f}.",
        "",
        f"A step takes {1e3 * step['base']:.1f} ms and {1e3 * step['per_sample']:.2f} ms a sample, "
        f"with a spread of {1e3 * step['spread']:.1f} ms at {found['batch']} samples; an "
        f"all-reduce of the {found['gradient_bytes'] / 1e6:.2f} MB of gradients a latency of "
        f"{1e6 * reduce['latency']:.0f} µs and {reduce['bandwidth'] / 1e9:.2f} GB/s. Planned from "
        "these:",
        "",
        f"| workers | step with {found['batch']} samples each | speed-up "
        f"| step that shares {found['shared_batch']} samples | speed-up |",
        "|---|---|---|---|---|",
    ]
    for row in found["plan"]:
        lines.append(
            f"| {row['workers']} | {1e3 * row['weak_seconds']:.1f} ms | {row['weak_speedup']:.1f} "
            f"| {1e3 * row['strong_seconds']:.1f} ms | {row['strong_speedup']:.1f} |"
        )
    return lines
