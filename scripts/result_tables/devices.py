"""Circuits, chips and pulsed devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from toreqprop.bench.hardware import report as device_report
from toreqprop.hardware import PRESETS, PulsedDevice

from .sources import Lines, Report, load, measured


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


def of_chips(
    name: str, command: str, lines: Callable[[Report], Lines], figure: str | None = None
) -> Callable[[], Lines]:
    """Lines of a report on chips, with its figure; the command where there is none yet."""
    picture = None if figure is None else f"![{figure}](figures/{FIGURES[name]}.svg)"
    return measured(f"hardware/{name}.json", f"hardware {command}", lines, picture)


FIGURES = {"digits": "devices", "mnist": "devices-mnist", "digits-map": "devices-map"}
"""By report, the figure that `make_doc_figures.py` draws of it."""


def _accuracies(found: Report) -> Lines:
    """Accuracies under every fault, and how they were measured."""
    return [*device_report.table_lines(found), "", device_report.sentence(found)]


def of_task(block: str, task: str) -> dict[str, Callable[[], Lines]]:
    """Accuracies, claims, settings and the second search of a sweep."""
    sweep = f"sweep --task {task}"
    return {
        block: of_chips(task, sweep, _accuracies, f"Accuracy under faults, {task}"),
        f"{block}-claims": of_chips(task, sweep, device_report.claim_lines),
        f"{block}-settings": of_chips(task, sweep, device_report.settings_lines),
        f"{block}-second": of_chips(task, sweep, device_report.second_lines),
    }


def two_bits_table() -> list[str]:
    """What is claimed at two bits against the rival with the device model in its loop."""
    lines = ["| task | claim | difference, points | verdict |", "|---|---|---|---|"]
    for task in ("digits", "mnist"):
        for claim in load(f"hardware/{task}.json")["claims"]:
            if claim["claim"].startswith("weights 2 bit") and "aware backprop" in claim["claim"]:
                words = task, claim["claim"], device_report.gap_text(claim["gap"])
                lines.append(f"| {' | '.join(words)} | {claim['verdict']} |")
    return lines


BLOCKS = {
    "circuits": circuits_table,
    "pulsed-presets": presets_table,
    "pulsed": of_chips("pulsed", "pulsed", device_report.pulsed_lines),
    "budget-grid": of_chips("budget", "grid", device_report.budget_lines),
    **of_task("devices", "digits"),
    **of_task("devices-mnist", "mnist"),
    "devices-mnist-third": of_chips("mnist", "sweep --task mnist", device_report.third_lines),
    "devices-mnist-power": of_chips("mnist", "sweep --task mnist", device_report.power_lines),
    "devices-rounding": of_chips(
        "mnist_rounding", "sweep --task mnist", device_report.rounding_lines
    ),
    "devices-two-bits": two_bits_table,
    "devices-map": of_chips(
        "digits-map", "sweep --map", device_report.map_lines, "Noise against resolution"
    ),
}
