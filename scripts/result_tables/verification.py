"""What the verification, its planted faults and the tests of robustness found."""

from __future__ import annotations

from collections.abc import Callable

from toreqprop.verify import claims

from .sources import RESULTS, Report, load


def transformer_track() -> tuple[Report, str]:
    """Track 14 of the verification with the most seeds that has it, and the command behind it."""
    for level in ("full", "intermediate", "quick"):
        path = f"verification/{level}/verification.json"
        report = load(path) if (RESULTS / path).exists() else {"tracks": []}
        for track in report["tracks"]:
            if track["number"] == 14:
                return track, report["command"]
    raise FileNotFoundError("no verification under results/ has track 14")


def mutation_table() -> list[str]:
    """Planted faults by area, and how many their tracks saw."""
    path = "verification/mutations.json"
    if not (RESULTS / path).exists():
        return ["Not recorded yet: `toreqprop verify --mutations`."]
    found = load(path)
    lines = ["| area | planted | seen | tracks |", "|---|---|---|---|"]
    for area in dict.fromkeys(m["area"] for m in found["mutations"]):
        mine = [m for m in found["mutations"] if m["area"] == area]
        tracks = ", ".join(str(t) for t in sorted({m["track"] for m in mine}))
        lines.append(f"| {area} | {len(mine)} | {sum(m['seen'] for m in mine)} | {tracks} |")
    missed = [m["name"] for m in found["mutations"] if not m["seen"]]
    return [
        *lines, "",
        f"{found['seen']} of {found['planted']} faults seen, {found['score']:.1f} %, by "
        f"`{found['command']}` at commit `{found['commit']}`."
        + (f" Not seen: {', '.join(missed)}." if missed else ""),
    ]  # fmt: skip


def self_test_sentence(level: str = "full") -> list[str]:
    """What a verification found, and how many sabotages were seen."""
    found = load(f"verification/{level}/verification.json")
    counts = ", ".join(f"{n} {status}" for status, n in found["overall"]["counts"].items() if n)
    seen = found["self_test"]
    tried = [d for d in seen or [] if d["available"]]
    sabotages = (
        f"{sum(d['seen'] for d in tried)} of {len(tried)} sabotages seen"
        if seen is not None
        else "no self-test"
    )
    where = "" if found.get("commit") is None else f" at commit `{found['commit']}`"
    return [f"`{found['command']}`{where}: {counts}; {sabotages}."]


def transformer_table() -> list[str]:
    """What the transformers of Track 14 learned, every seed by itself."""
    track, _ = transformer_track()
    trained, clock = track["tables"][:2]
    lines = [
        f"{trained['title']}:",
        "",
        "| task | length | variant | seed | token accuracy, % | did not converge | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row, times in zip(trained["rows"], clock["rows"], strict=True):
        task, length, variant, seed, percent, *_, unconverged = row
        lines.append(
            f"| {task} | {length} | {variant} | {seed} | {percent:.3f} | {unconverged} "
            f"| {times[-1]:.0f} |"
        )
    return lines


def bias_table() -> list[str]:
    """Relative error of the gradient at a few β, and the smallest error of each estimator."""
    found = load("beta_sweep.json")
    names = list(dict.fromkeys(p["estimator"] for p in found["points"]))
    shown = (0.001, 0.01, 0.1, 1.0)
    heads = " | ".join(f"β = {b:g}" for b in shown)
    lines = [
        f"| float32 | {heads} | smallest, at β | float64: smallest |",
        "|---|" + "---|" * (len(shown) + 2),
    ]
    for name in names:
        points = [p for p in found["points"] if (p["estimator"], p["dtype"]) == (name, "float32")]
        near = [min(points, key=lambda p, b=b: abs(p["beta"] / b - 1)) for b in shown]
        cells = " | ".join(f"{p['error']:.0e}" for p in near)
        single, double = (found["floors"][f"{name}, {d}"] for d in ("float32", "float64"))
        lines.append(
            f"| {name} | {cells} | {single['error']:.0e}, {single['beta']:.0e} "
            f"| {double['error']:.0e} |"
        )
    return lines


def tried(name: str, rendered: Callable[[Report], list[str]]) -> list[str]:
    """What a script of robustness left, or that it left nothing."""
    if not (RESULTS / "robustness" / f"{name}.json").exists():
        return [f"Not recorded yet: `python scripts/{name}.py --record`."]
    return rendered(load(f"robustness/{name}.json"))


def made_by(found: Report) -> str:
    """The command behind a table, and the commit it ran at."""
    altered = ", with changes" if found["altered"] else ""
    return f"`{found['command']}` at commit `{found['commit'][:12]}`{altered}"


def kills_table(found: Report) -> list[str]:
    """What became of commands that were killed, with the command that killed them."""
    rows = found["commands"]
    lines = [
        "| command | kills | a worker first | left to finish | different results | orphans |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['words']}` | {row['kills']} | {row['of_workers']} | {row['rounds']} "
        f"| {row['different']} | {row['orphans']} |"
        for row in rows
    ]
    total = sum(row["kills"] for row in rows)
    asked = int(found["command"].partition("--kills ")[2].split()[0])
    stopped = f", stopped before the {asked} it was asked for" if total < asked else ""
    return [*lines, "", f"{total} kills, by {made_by(found)}{stopped}."]


def fuzz_table(found: Report) -> list[str]:
    """How many files of each kind were damaged."""
    lines = ["| file | cases | wrong |", "|---|---|---|"]
    for row in found["tests"]:
        name = row["test"].removeprefix("test_").replace("_", " ")
        lines.append(f"| {name} | {row['passing'] + row['failing']} | {row['failing']} |")
    return [*lines, "", f"{found['cases']:,} cases, seed {found['seed']}, by {made_by(found)}."]


def soak_sentence(found: Report) -> list[str]:
    """How memory went over very many steps."""
    part = 1 - found["beginning"]
    return [
        f"Over the last {part:.0%} of {found['steps']:,} training steps of {len(found['models'])}",
        f"models in turn, resident memory rose by {found['rise']:.2f} MB along a fitted line",
        f"(allowed {found['allowed']:g} MB), by {made_by(found)}.",
    ]


BLOCKS = {
    "claims": claims.table,
    "claims-own": claims.own,
    "bias": bias_table,
    "mutations": mutation_table,
    "self-test": self_test_sentence,
    "self-test-some": lambda: self_test_sentence("quick-partial"),
    "kills": lambda: tried("kill", kills_table),
    "fuzz": lambda: tried("fuzz", fuzz_table),
    "soak": lambda: tried("soak", soak_sentence),
}
