"""What a training step costs, in time and in memory."""

from __future__ import annotations

from .sources import Report, load

DEFAULT = "TorEqProp, default tolerance"


def _speed_rows(rows: list[Report]) -> list[str]:
    """Rows of `toreqprop speed`: what the method costs, with the same products on both sides;
    beside it what a step takes as it runs, and at the default tolerance."""
    ours, *names = dict.fromkeys(t["name"] for r in rows for t in r["timings"])
    names = [name for name in names if not name.startswith(ours)]
    size = names[0]
    lines = _heads([size, f"{size}, as it runs", f"{size}, tolerance 1e-3", *names[1:]])
    for row in rows:
        timed = {t["name"]: t for t in row["timings"]}
        ratios = [f"{timed[n]['cpu_ratio']:.2f}" if n in timed else "–" for n in names]
        runs, exact = timed[size]["as_it_runs"], timed.get(DEFAULT)
        finer = timed[size]["cpu_ratio"] / exact["cpu_ratio"] if exact else None
        ratios[1:1] = ["–" if each is None else f"{each:.2f}" for each in (runs, finer)]
        lines.append(_bought_with(row) + " | ".join(ratios) + " |")
    return lines


def _heads(figures: list[str]) -> list[str]:
    return [
        "| network | batch, inputs | feedback | norm | tolerance | steps | worst cosine | "
        + " | ".join(figures)
        + " |",
        "|---|---|---|---|---|---|---|" + "---|" * len(figures),
    ]


def _bought_with(row: Report) -> str:
    """The beginning of a row: in which regime its figures were measured."""
    network, steps = row["network"], " + ".join(f"{v:.1f}" for v in row["steps"].values())
    refused = row["certificates"] - row["passed"]
    said = f", {refused} of {row['certificates']} refused" if refused else ""
    return (
        f"| {row['label']} | {network['batch']}, {network['inputs']} | {network['feedback']:g} "
        f"| {row['norm']:.3f} | {network['tol']:g} | {steps} | {row['cosine']:.4f}{said} | "
    )


def _hardly_recurs(row: Report) -> bool:
    return row["network"]["norm"] is None


def speed_table() -> list[str]:
    """Time of a training step over that of others, of networks that hardly recur."""
    return _speed_rows([r for r in load("speed.json")["rows"] if _hardly_recurs(r)])


def _said(rows: list[Report]) -> str:
    ratios = [row["norm_ratio"] for row in rows]
    many = sum(row["certificates"] for row in rows)
    passed = sum(row["passed"] for row in rows)
    rounds = [row["rounds"] * row["turn"] for row in rows]
    return (
        "Median processor time over that of others, one thread, one seed, "
        f"{min(rounds)} to {max(rounds)} steps of each. *Norm*: of the largest coupling; weak "
        "feedback lets it be larger. *Tolerance*: the largest of a few at which gradients are "
        "certified; the default is 1e-3, and a column says what that costs. *Steps*: free + "
        f"nudged. Certificates are made between the rounds: {passed} of {many} pass, norms of "
        f"gradients are {min(ratios):.3f} to {max(ratios):.3f} of the exact ones at the worst. A "
        "twin of the same size that has the same depth too is listed once; that of a looped "
        "network has two hidden layers, the one of its depth has one. *Rearranged*: plain "
        "convolutions with channels next to each other in memory, and averages folded into their "
        "kernels, as ours are. All multiply with PyTorch's products; *as it runs* TorEqProp's "
        "compiled steps multiply twice as fast on this processor (AMD with AVX-512, where the "
        "library that PyTorch uses leaves half of the registers empty), which is no merit of the "
        "method."
    )


def speed_at_bounds_table() -> list[str]:
    """The same of networks whose couplings are at their bounds, and what it was bought with."""
    rows = [r for r in load("speed.json")["rows"] if not _hardly_recurs(r)]
    return [*_speed_rows(rows), "", _said(rows)]


def speed_overview_table() -> list[str]:
    """Every kind of network, as strongly recurrent as it is timed with; at the end one that hardly
    recurs, which costs least and says least."""
    rows, kinds = load("speed.json")["rows"], {}
    for row in rows:
        network = row["network"]
        if network["norm"] is None or (network["kind"] == "looped" and network["norm"] != 0.95):
            continue
        # Of networks that differ in feedback and norm alone, the one that feels itself most.
        size = (network["kind"], network["width"], network["layers"], network["pooling"])
        around = network["feedback"] * network["norm"] ** 2
        if size not in kinds or around > kinds[size][0] * (1 + 1e-9):
            kinds[size] = (around, row)
    weak = [r for r in rows if _hardly_recurs(r)][-1:]
    shown = [row for _, row in kinds.values()] + weak
    return [*_speed_rows(shown), "", _said(shown)]


def speed_training_table() -> list[str]:
    """Processor time of whole trainings, where it was measured."""
    found = load("speed.json").get("training")
    if found is None:
        return ["Not measured yet: `toreqprop speed --training`."]
    lines = [
        "| network | rate, decay | epochs, by seed | processor time | TorEqProp's over it | test |",
        "|---|---|---|---|---|---|",
    ]
    for arm, seconds in found["mean_seconds"].items():
        runs = [r for r in found["runs"] if r["arm"] == arm]
        there = [r for r in runs if r["reached"]]
        epochs = ", ".join(str(r["epochs"]) for r in there)
        test = f"{sum(r['test'] for r in there) / len(there):.2%}" if there else "–"
        spent = "not reached by every seed" if seconds is None else f"{seconds:.1f} s"
        share = "–" if found["ratio"][arm] is None else f"{found['ratio'][arm]:.2f}"
        chosen = f"{runs[0]['rate']:g}, {runs[0]['decay']:g}"
        lines.append(f"| {arm} | {chosen} | {epochs} | {spent} | {share} | {test} |")
    setup, ours = found["setup"], [r for r in found["runs"] if r["certificates"]]
    same, epochs = found.get("same_products"), found["epoch_seconds"]
    names = [arm for arm in epochs if arm.startswith("TorEqProp")]
    each = [f"{epochs[arm] / epochs['two hidden layers']:.2f}" for arm in names]
    same = (
        f" With PyTorch's products on both sides it takes {same:.2f} of two layers." if same else ""
    )
    same += f" An epoch takes {', '.join(each)} of theirs" + (
        " (as it runs, with PyTorch's products)." if len(each) > 1 else "."
    )
    proofs = [proof for r in ours for proof in r["certificates"]]
    near = [proof["backprop_cosine"] for proof in proofs]
    steps = " + ".join(f"{ours[-1]['steps'][phase]:.1f}" for phase in ("free", "nudged"))
    return [
        *lines, "",
        f"Until {setup['goal']:.0%} of {setup['held_out']:,} held-out training images are told "
        f"right: of each seed the shortest training that gets there, one thread. The network that "
        f"settles has two layers of {setup['width']} units as well, feedback "
        f"{setup['feedback']:g}, a true norm of {ours[-1]['norm']:.2f} at the end, {steps} "
        f"passes a phase at a tolerance of {setup['tol']:g}; {sum(p['ok'] for p in proofs)} of "
        f"{len(proofs)} certificates pass (smallest cosine "
        f"{min(p['cosine'] for p in proofs):.4f}). The cosine of its gradient with "
        "backpropagation's through the same layers is "
        f"{min(near):.3f} to {max(near):.3f}: weak feedback is near backpropagation. A looped "
        "network at norm 0.95 takes longer, and did not get there on every seed "
        f"(`results/speed_training_search.jsonl` has what was tried).{same}",
    ]  # fmt: skip


def speed_parallel_table() -> list[str]:
    """What two threads and two processes gain, where it was measured."""
    points = load("speed.json").get("parallel")
    if points is None:
        return ["Not measured yet: `toreqprop speed --parallel`."]
    lines = [
        "| network | width | samples | processes | threads each | step | speed-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for p in points:
        lines.append(
            f"| {p['arm']} | {p['width']} | {p['batch']} | {p['processes']} | {p['threads']} "
            f"| {p['milliseconds']:.2f} ms | {p['speed_up']:.2f} |"
        )
    return lines


def convolutional_table() -> list[str]:
    """Convolutional networks on all images, by both methods."""
    lines = [
        "| data | method | test accuracy | processor time | smallest cosine |",
        "|---|---|---|---|---|",
    ]
    for run in sorted(load("convolutional.json")["runs"], key=lambda r: (r["task"], r["method"])):
        proof = run["certificate"]
        cosine = "–" if proof is None else f"{proof['min_cosine']:.4f}"
        lines.append(
            f"| {run['task']} | {run['method']} | {run['accuracy']:.2%} | "
            f"{run['timing']['cpu_seconds']:.0f} s | {cosine} |"
        )
    return lines


def memory_table() -> list[str]:
    """Peak memory of a training step against relaxation steps."""
    found = load("memory.json")
    points = found["against_steps"]
    steps = sorted({p["steps"] for p in points})
    lines = [
        "| MB after | " + " | ".join(f"{s} steps" for s in steps) + " | growth |",
        "|---|" + "---|" * (len(steps) + 1),
    ]
    for method, growth in found["growth_from_fewest_to_most_steps"].items():
        peaks = {p["steps"]: p["peak_mb"] for p in points if p["method"] == method}
        cells = " | ".join(f"{peaks[s]:.1f}" for s in steps)
        lines.append(f"| {method} | {cells} | {growth:.2f}× |")
    return lines


def memory_rows_table() -> list[str]:
    """Peak memory of a training step of the networks that are timed, over that of others."""
    rows = load("memory.json")["rows"]
    ours, *names = dict.fromkeys(p["name"] for row in rows for p in row["peaks"])
    names = [name for name in names if name != DEFAULT]
    lines = _heads(["a step's MB", *names])
    for row in rows:
        peaks = {p["name"]: p["peak_mb"] for p in row["peaks"]}
        over = [f"{peaks[ours] / peaks[n]:.2f}" if n in peaks else "–" for n in names]
        lines.append(_bought_with(row) + " | ".join([f"{peaks[ours]:.1f}", *over]) + " |")
    return lines


BLOCKS = {
    "speed": speed_table,
    "speed-overview": speed_overview_table,
    "speed-at-bounds": speed_at_bounds_table,
    "speed-training": speed_training_table,
    "speed-parallel": speed_parallel_table,
    "memory": memory_table,
    "memory-rows": memory_rows_table,
}
