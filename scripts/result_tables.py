"""Tables and sentences of the documents, each figure read from results/*.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import front_page
from scaling_table import scaling_lines

from toreqprop.bench import completion_report, maze_credit, maze_nudges, maze_study
from toreqprop.bench.cifar import report as cifar_report
from toreqprop.bench.hardware import report as device_report
from toreqprop.bench.language import report as language_report
from toreqprop.bench.reward import report as reward_report
from toreqprop.bench.rows import ROWS
from toreqprop.hardware import PRESETS, PulsedDevice
from toreqprop.verify import claims

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NETWORKS = ROOT / "src" / "toreqprop" / "play" / "networks"

Report = dict[str, Any]


def load(name: str) -> Report:
    """One file of results."""
    return json.loads((RESULTS / name).read_text())


def play_records() -> dict[str, Report]:
    """The records in the checkpoints of `toreqprop play`."""
    return {
        name: json.loads((NETWORKS / name / "checkpoint.json").read_text())["about"]["play"]
        for name in ("digits", "hidden", "maze")
    }


def _speed_rows(rows: list[Report]) -> list[str]:
    """Rows of `toreqprop speed`."""
    names = list(dict.fromkeys(t["name"] for r in rows for t in r["timings"]))[1:]
    lines = [
        "| network | batch, inputs | feedback | norm | steps | worst cosine | "
        + " | ".join(names)
        + " |",
        "|---|---|---|---|---|---|" + "---|" * len(names),
    ]
    for row in rows:
        network = row["network"]
        ratios = {t["name"]: f"{t['cpu_ratio']:.2f}" for t in row["timings"]}
        steps = " + ".join(f"{v:.1f}" for v in row["steps"].values())
        lines.append(
            f"| {row['label']} | {network['batch']}, {network['inputs']} "
            f"| {network['feedback']:g} | {row['norm']:.3f} | {steps} | {row['cosine']:.4f}"
            f"{'' if row['certified'] else ', refused'} | "
            + " | ".join(ratios.get(name, "–") for name in names)
            + " |"
        )
    return lines


def _hardly_recurs(row: Report) -> bool:
    return row["network"]["norm"] is None


def speed_table() -> list[str]:
    """Time of a training step over that of others, of networks that hardly recur."""
    return _speed_rows([r for r in load("speed.json")["rows"] if _hardly_recurs(r)])


_SPEED_SAID = (
    "Median processor time over that of others, one thread. *Norm*: of the largest coupling; "
    "weak feedback lets it be larger. *Steps*: free + nudged. A twin of the same size that has "
    "the same depth too is listed once; that of a looped network has two hidden layers, the one of "
    "its depth has one. *Refused*: by the certificate at these weights."
)


def speed_at_bounds_table() -> list[str]:
    """The same of networks whose couplings are at their bounds, and what it was bought with."""
    rows = [r for r in load("speed.json")["rows"] if not _hardly_recurs(r)]
    return [*_speed_rows(rows), "", _SPEED_SAID]


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
    return [*_speed_rows([row for _, row in kinds.values()] + weak), "", _SPEED_SAID]


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
    proofs = [proof for r in ours for proof in r["certificates"]]
    steps = " + ".join(f"{ours[-1]['steps'][phase]:.1f}" for phase in ("free", "nudged"))
    return [
        *lines, "",
        f"Until {setup['goal']:.0%} of {setup['held_out']:,} held-out training images are told "
        f"right: of each seed the shortest training that gets there, one thread. The network that "
        f"settles has one layer of {setup['width']} units, a true norm of {ours[-1]['norm']:.2f} "
        f"at the end, {steps} steps a phase; {sum(p['ok'] for p in proofs)} of {len(proofs)} "
        f"certificates pass (smallest cosine {min(p['cosine'] for p in proofs):.4f}).",
    ]  # fmt: skip


def speed_parallel_table() -> list[str]:
    """What two threads and two processes gain, where it was measured."""
    points = load("speed.json").get("parallel")
    if points is None:
        return ["Not measured yet: `toreqprop speed --parallel`."]
    lines = [
        "| network | width | processes | threads each | step | speed-up |",
        "|---|---|---|---|---|---|",
    ]
    for p in points:
        lines.append(
            f"| {p['arm']} | {p['width']} | {p['processes']} | {p['threads']} "
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


def sklearn_table() -> list[str]:
    """The estimators next to scikit-learn's networks, cross-validated."""
    lines = ["| data | features | score | EqProp | MLP | gap |", "|---|---|---|---|---|---|"]
    for c in load("sklearn.json")["comparisons"]:
        means = f"{c['our_mean']:.4f} | {c['their_mean']:.4f} | {c['gap']:+.4f}"
        lines.append(f"| {c['data']} | {c['features']} | {c['score']} | {means} |")
    return lines


def tables_table() -> list[str]:
    """Small public tables: the shared defaults next to scikit-learn's network."""
    found = load("tables.json")
    lines = [
        "| table | of | rows | classes | chance | EqProp | MLPClassifier |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["comparisons"]:
        figures = " | ".join(
            f"{100 * row[key]:.1f}" for key in ("chance", "our_mean", "their_mean")
        )
        sizes = f"{row['rows']} | {row['classes']}"
        lines.append(f"| {row['table']} | {row['source']} | {sizes} | {figures} |")
    total = found["summary"]
    return [
        *lines, "",
        f"Test accuracy in percent, mean of {len(found['seeds'])} seeds. Mean rank "
        f"{total['our_mean_rank']:.2f} to {total['their_mean_rank']:.2f} over {total['tables']} "
        f"tables: {total['won']} won, {total['drawn']} drawn, {total['lost']} lost; mean "
        f"difference {100 * total['mean_difference']:+.2f} ± "
        f"{100 * total['standard_error']:.2f} points (standard error over tables).",
    ]  # fmt: skip


def zoo_table() -> list[str]:
    """Networks that ship, from their own records."""
    from toreqprop.zoo import RECIPES, record
    from toreqprop.zoo.shipped import FOLDER

    lines = [
        "| name | what it is | test accuracy | chance | smallest cosine | kB | command |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in RECIPES:
        about = record(name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir()) / 1000
        lines.append(
            f"| `{name}` | {about['title']} | {about['test_accuracy']:.2%} "
            f"| {about['chance']:.1%} | {about['certificate']['min_cosine']:.4f} | {size:.0f} "
            f"| `{about['command']}` |"
        )
    return lines


def tables_search() -> list[str]:
    """Every candidate for the shared defaults, by its mean rank on the validation folds."""
    found = load("tables.json")
    names = list(found["grid"])
    lines = [
        "| " + " | ".join(f"`{name}`" for name in names) + " | mean rank | mean accuracy, % |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for t in sorted(found["tried"], key=lambda t: t["mean_rank"]):
        values = " | ".join(str(t["settings"][name]) for name in names)
        mean = sum(t["accuracy"].values()) / len(t["accuracy"])
        lines.append(f"| {values} | {t['mean_rank']:.2f} | {100 * mean:.2f} |")
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


BENCHMARK = next(
    name
    for level in ("full", "quick")
    if (RESULTS / (name := f"benchmark/{level}/benchmark.json")).exists()
)
"""The report that pages are written from: the full one, or the quick one until there is one."""

VERDICTS = {
    "EQUIVALENT": "equivalent within ±{margin:g}",
    "WORSE": "worse",
    "BETTER": "better",
    "NOT SHOWN": "not shown (±{margin:g})",
}


def verdict(row: Report) -> str:
    """The verdict on a row, with its margin, and a real difference where there is one."""
    text = VERDICTS[row["verdict"]].format(margin=row["margin"])
    real = row["verdict"] == "EQUIVALENT" and row["difference_p"] < 0.05
    return f"{text}, but not equal" if real else text


def accuracy_table() -> list[str]:
    """EP next to the stronger baseline, with what it took."""
    lines = [
        "| Task | Seeds | Stronger baseline | EP | Gap, points | Verdict | Time, EP / baseline |",
        "|---|---|---|---|---|---|---|",
    ]
    found = load(BENCHMARK)
    for row in found["rows"]:
        scores = [percent(row["arms"][arm]["accuracy"]) for arm in (row["against"], "ep")]
        gap = row["comparison"]["gap"]["mean"]
        lines.append(
            f"| {row['title']} | {len(row['seeds'])} | {scores[0]} | {scores[1]} | {gap:+.2f} "
            f"| {verdict(row)} | {row['ratio']:.1f}× |"
        )
    for row in found["not_run"]:
        lines.append(f"| {row['title']} | | not run | not run | | | |")
    return lines


def percent(summary: Report) -> str:
    """``97.04 ± 0.35 %``."""
    spread = "" if summary["sd"] is None else f" ± {summary['sd']:.2f}"
    return f"{summary['mean']:.2f}{spread} %"


def bounds_table() -> list[str]:
    """What every row of the benchmark must reach."""
    lines = [
        "| row | network | seeds (full) | accuracy (%) | margin (points) | return of the clone |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        reach = "" if row.policy_return is None else f"{row.policy_return:g}"
        if row.below_expert is not None:
            reach = f"the expert's less {row.below_expert:g}"
        lines.append(
            f"| {row.title} (`{row.name}`) | {row.network}, {row.hidden} | {row.seeds} "
            f"| {row.accuracy:.1f} | ±{row.margin:g} | {reach} |"
        )
    return lines


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


def self_test_sentence() -> list[str]:
    """What the verification with five seeds found, and how many sabotages were seen."""
    found = load("verification/full/verification.json")
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


def no_nudge_sentence() -> list[str]:
    """How far random features get: the reason why small tasks prove little."""
    report = load(BENCHMARK)
    control = next(c for c in report["controls"] if c["name"] == "no-nudge")
    row = next(r for r in report["rows"] if r["title"] == control["title"])
    random, trained = control["accuracy"]["ep"]["mean"], row["arms"]["ep"]["accuracy"]["mean"]
    return [
        f"On {row['title']} a network whose hidden weights never change, with only the readout "
        f"trained, reaches {random:.2f} %; the trained one {trained:.2f} %."
    ]


def insights() -> list[str]:
    """What the benchmark's figures say, the unwelcome first."""
    found = load(BENCHMARK)
    return [f"{n}. {line}" for n, line in enumerate(filter(None, found["insights"]), 1)]


def benchmark_source() -> list[str]:
    """Where the benchmark's figures come from."""
    found = load(BENCHMARK)
    return [
        f"By `{found['command']}` at commit `{found['commit']}`, "
        f"{found['timing']['started'][:10]}; test sets that no seed trains on, and the stronger of "
        "two feed-forward baselines."
    ]


def conditions() -> list[str]:
    """What all of this was measured on."""
    found = load(BENCHMARK)["environment"]
    torch = found["packages"]["torch"]
    return [
        f"Measured with torch {torch} and Python {found['python']} on {found['cores']} cores of "
        f"{found['cpu']} ({found['system']}), one thread per run. No GPU was used."
    ]


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


def circuits_table() -> list[str]:
    """What resistive networks reached, each figure with the command that measured it."""
    mnist, digits = load("circuits/mnist.json"), load("circuits/digits.json")
    circuits, place = load("circuits/random.json"), load("circuits/in_situ.json")
    hidden = "-".join(map(str, mnist["recipe"]["hidden"]))
    strong = place["summary"]
    again = "toreqprop circuit study"

    def share(figures: Report) -> str:
        return f"{100 * figures['mean']:.1f} ± {100 * figures['std']:.1f} %"

    return [
        "| measured | figure | again by |",
        "|---|---|---|",
        f"| 784-{hidden}-10 on all of MNIST, test | {100 * mnist['test_accuracy']:.2f} % in "
        f"{mnist['cpu_seconds'] / 60:.1f} CPU minutes | `{again} mnist` |",
        f"| digits, {len(digits['runs'])} seeds, in PyTorch and with the same weights in ngspice | "
        f"{share(digits['summary']['pytorch'])} and {share(digits['summary']['ngspice'])} | "
        f"`{again} digits` |",
        f"| {circuits['circuits']} random circuits, free and nudged, PyTorch against ngspice | "
        f"worst {circuits['worst_volts']:.1e} V | `{again} random` |",
        f"| strong mismatch, trained as drawn and deployed | {share(strong['deployed'])} | "
        f"`{again} in-situ` |",
        f"| the same circuits, trained in place | {share(strong['in_place'])} | |",
        f"| in place, first crossbar frozen | {share(strong['frozen'])} | |",
    ]


def presets_table() -> list[str]:
    """What the presets hold, by the names that aihwkit's users know."""
    kinds = {name: preset() for name, preset in PRESETS.items()}
    lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    responses = [type(device.response).__name__ for device in kinds.values()]
    lines.append("| `response` | " + " | ".join(f"`{name}`" for name in responses) + " |")
    names = [f.name for f in fields(PulsedDevice) if f.name not in ("response", "seed")]
    for name in names:
        cells = [_plain(getattr(device, name)) for device in kinds.values()]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def _plain(value: float | bool) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"


def of_devices(
    name: str, command: str, lines: Callable[[Report], list[str]], figure: str | None = None
) -> list[str]:
    """Lines of a report on chips, with its figure; the command where there is none yet."""
    if not (RESULTS / "hardware" / f"{name}.json").exists():
        return [f"Not measured yet: `toreqprop hardware {command}`."]
    drawn = [] if figure is None else ["", f"![{figure}](figures/{DEVICE_FIGURES[name]}.svg)"]
    return [*lines(load(f"hardware/{name}.json")), *drawn]


DEVICE_FIGURES = {"digits": "devices", "mnist": "devices-mnist", "digits-map": "devices-map"}
"""By report, the figure that `make_doc_figures.py` draws of it."""


def devices_table(task: str) -> list[str]:
    """Accuracies under every fault, and how they were measured."""

    def lines(found: Report) -> list[str]:
        return [*device_report.table_lines(found), "", device_report.sentence(found)]

    return of_devices(task, f"sweep --task {task}", lines, f"Accuracy under faults, {task}")


def devices_claims(task: str) -> list[str]:
    """What is claimed of learning in place, with intervals and verdicts."""
    return of_devices(task, f"sweep --task {task}", device_report.claim_lines)


def devices_settings(task: str) -> list[str]:
    """What the search chose for every method, and what learning in place took."""
    return of_devices(task, f"sweep --task {task}", device_report.settings_lines)


def devices_second(task: str) -> list[str]:
    """What the second search tried under faults whose claims were open, and what it gained."""
    return of_devices(task, f"sweep --task {task}", device_report.second_lines)


def devices_map() -> list[str]:
    """Accuracy in place against noise and resolution."""
    return of_devices(
        "digits-map", "sweep --map", device_report.map_lines, "Noise against resolution"
    )


def mazes_table() -> list[str]:
    """Exact test mazes of every size: the map by each method, and the controls."""
    return maze_study.render_markdown(maze_study.load(RESULTS / "mazes.json")).splitlines()


def mazes_sentences() -> list[str]:
    """What of the claims holds on every seed of EP, and what it took."""
    return maze_study.sentences(maze_study.load(RESULTS / "mazes.json"))


def mazes_nudges_table() -> list[str]:
    """Estimators against the exact gradient along a training that collapses."""
    if not (RESULTS / "maze_nudges.json").exists():
        return ["Not measured yet: `toreqprop mazes --nudges results/maze_nudges.json`."]
    return maze_nudges.render_markdown(load("maze_nudges.json")).splitlines()


def mazes_credit_table() -> list[str]:
    """How far a nudge is felt, and trainings with a part of the targets."""
    if not (RESULTS / "maze_credit.json").exists():
        return ["Not measured yet: `toreqprop mazes --credit results/maze_credit.json`."]
    return maze_credit.render_markdown(load("maze_credit.json")).splitlines()


def completion_block(lines: Callable[[Report], list[str]]) -> Callable[[], list[str]]:
    """A block of the page on half-hidden digits, which says so where it was not measured yet."""

    def block() -> list[str]:
        report = load("completion.json") if (RESULTS / "completion.json").exists() else {}
        found = lines(report) if report else []
        return found or ["Not measured yet: `toreqprop completion`."]

    return block


def mazes_gain_table() -> list[str]:
    """Trainings with other nudges and limits, on validation mazes."""
    lines = (RESULTS / "mazes_search.jsonl").read_text().splitlines()
    return maze_study.render_trials([json.loads(line) for line in lines])


def _of_rewards(
    lines: Callable[[Report], list[str]], name: str = "reward.json"
) -> Callable[[], list[str]]:
    """A block of the page on rewards, which says so where nothing was measured yet."""

    def block() -> list[str]:
        if not (RESULTS / name).exists():
            return ["Not measured yet: `toreqprop reward`."]
        return lines(load(name))

    return block


def _of_cifar(
    lines: Callable[[Report], list[str]], network: str = "pure"
) -> Callable[[], list[str]]:
    """A block of the page on CIFAR-10, which says so where nothing was measured yet."""
    hybrid = network == "hybrid"
    name = "cifar10_hybrid.json" if hybrid else "cifar10.json"

    def block() -> list[str]:
        if not (RESULTS / name).exists():
            command = "toreqprop cifar" + " --network hybrid" * hybrid
            return [f"Not measured yet: `{command}`."]
        return lines(load(name))

    return block


def _cifar_lines(found: Report) -> list[str]:
    """Test accuracy of both methods, and the learning curves."""
    picture = f"![Loss and accuracy in training by EP and by backprop](figures/{found['stem']}.svg)"
    return [*cifar_report.table_lines(found), "", picture]


def cifar_search() -> list[str]:
    """Every trial on held-out training images."""
    lines = (RESULTS / "cifar10_search.jsonl").read_text().splitlines()
    return cifar_report.search_lines([json.loads(line) for line in lines])


def _reward_lines(found: Report) -> list[str]:
    """Policies learnt from reward: what they reach, and the learning curves."""
    picture = "![Learning curves of policies by EP and by backprop](figures/reward.svg)"
    return [*reward_report.table_lines(found), "", picture]


def _of_language(lines: Callable[[Report], list[str]]) -> Callable[[], list[str]]:
    """A block of the page on language, which says so where nothing was measured yet."""

    def block() -> list[str]:
        if not (RESULTS / "language.json").exists():
            return ["Not measured yet: `toreqprop language`."]
        return lines(load("language.json"))

    return block


def _language_lines(found: Report) -> list[str]:
    """Bits of every predictor, and the learning curves."""
    picture = "![Bits per character by EP, implicit gradient and backprop](figures/language.svg)"
    return [*language_report.table_lines(found), "", picture]


def language_search() -> list[str]:
    """Every trial on validation text."""
    path = RESULTS / "language_search.jsonl"
    if not path.exists():
        return ["Not measured yet: `toreqprop language --search`."]
    return language_report.search_lines([json.loads(x) for x in path.read_text().splitlines()])


BLOCKS = {
    "claims": claims.table,
    "claims-own": claims.own,
    "front-tasks": lambda: front_page.tasks_table(load, BENCHMARK),
    "play": lambda: front_page.play_table(play_records()),
    "front-circuits": lambda: front_page.circuits_picture(load),
    "scaling": lambda: scaling_lines(RESULTS / "scaling.json", load),
    "tables": tables_table,
    "zoo": zoo_table,
    "tables-search": tables_search,
    "mazes": mazes_table,
    "mazes-claims": mazes_sentences,
    "mazes-trials": mazes_gain_table,
    "mazes-nudges": mazes_nudges_table,
    "mazes-credit": mazes_credit_table,
    "completion-psnr": completion_block(lambda report: completion_report.table(report, "psnr")),
    "completion-class": completion_block(
        lambda report: completion_report.table(report, "accuracy")
    ),
    "completion-networks": completion_block(completion_report.networks),
    "completion-claims": completion_block(completion_report.sentences),
    "completion-points": completion_block(completion_report.points),
    "completion-distances": completion_block(completion_report.distances),
    "reward": _of_rewards(_reward_lines),
    "reward-gaps": _of_rewards(reward_report.gap_lines),
    "reward-relaxations": _of_rewards(reward_report.relaxation_lines),
    "reward-checks": _of_rewards(reward_report.check_lines),
    "reward-search": _of_rewards(reward_report.search_lines, "reward_search.json"),
    "cifar10": _of_cifar(_cifar_lines),
    "cifar10-checks": _of_cifar(cifar_report.check_lines),
    "cifar10-certificates": _of_cifar(cifar_report.certificate_lines),
    "cifar10-epochs": _of_cifar(cifar_report.epoch_lines),
    "cifar10-plan": _of_cifar(cifar_report.plan_lines),
    "cifar10-search": cifar_search,
    "cifar10-hybrid": _of_cifar(_cifar_lines, "hybrid"),
    "cifar10-hybrid-checks": _of_cifar(cifar_report.check_lines, "hybrid"),
    "cifar10-hybrid-shares": _of_cifar(cifar_report.share_lines, "hybrid"),
    "cifar10-hybrid-certificates": _of_cifar(cifar_report.certificate_lines, "hybrid"),
    "language": _of_language(_language_lines),
    "language-gaps": _of_language(language_report.gap_lines),
    "language-checks": _of_language(language_report.check_lines),
    "language-certificates": _of_language(language_report.certificate_lines),
    "language-settling": _of_language(language_report.settling_lines),
    "language-samples": _of_language(language_report.sample_lines),
    "language-text": _of_language(language_report.text_lines),
    "language-search": language_search,
    "pulsed-presets": presets_table,
    "pulsed": lambda: of_devices("pulsed", "pulsed", device_report.pulsed_lines),
    "budget-grid": lambda: of_devices("budget", "grid", device_report.budget_lines),
    "devices": lambda: devices_table("digits"),
    "devices-claims": lambda: devices_claims("digits"),
    "devices-settings": lambda: devices_settings("digits"),
    "devices-mnist": lambda: devices_table("mnist"),
    "devices-mnist-claims": lambda: devices_claims("mnist"),
    "devices-mnist-settings": lambda: devices_settings("mnist"),
    "devices-second": lambda: devices_second("digits"),
    "devices-mnist-second": lambda: devices_second("mnist"),
    "devices-rounding": lambda: of_devices(
        "mnist_rounding", "sweep --task mnist", device_report.rounding_lines
    ),
    "devices-map": devices_map,
    "kills": lambda: tried("kill", kills_table),
    "fuzz": lambda: tried("fuzz", fuzz_table),
    "soak": lambda: tried("soak", soak_sentence),
    "circuits": circuits_table,
    "speed": speed_table,
    "speed-overview": speed_overview_table,
    "speed-at-bounds": speed_at_bounds_table,
    "speed-training": speed_training_table,
    "speed-parallel": speed_parallel_table,
    "memory": memory_table,
    "accuracy": accuracy_table,
    "insights": insights,
    "benchmark-source": benchmark_source,
    "bias": bias_table,
    "bounds": bounds_table,
    "no-nudge": no_nudge_sentence,
    "mutations": mutation_table,
    "self-test": self_test_sentence,
    "conditions": conditions,
}
