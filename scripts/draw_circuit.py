"""The figures of docs/circuits.md: a schematic, and what a small trained circuit does."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from toreqprop.bench.circuits import digits, pictures
from toreqprop.hardware import Newton, Ngspice
from toreqprop.models import ResistiveMLP
from toreqprop.plots import save
from toreqprop.plots.circuits import mismatch_figure, settling_figure, voltages_figure

RESULTS = Path(__file__).parents[1] / "results" / "circuits"
INK, FAINT, ACCENT = "#1f2937", "#6b7280", "#0072b2"


def resistor(x: float, y: float, label: str = "") -> str:
    """A horizontal resistor of 60 by 14, its left end at (x, y)."""
    text = f'<text x="{x + 30}" y="{y - 11}" text-anchor="middle">{label}</text>' if label else ""
    return (
        f'<path d="M{x} {y}h10"/><rect x="{x + 10}" y="{y - 7}" width="40" height="14"/>'
        f'<path d="M{x + 50} {y}h10"/>{text}'
    )


def diode(x: float, y: float, up: bool) -> str:
    """A vertical diode between (x, y) and (x, y + 40)."""
    tip = (f"M{x - 8} {y + 27}h16l-8 -14z", f"M{x - 8} {y + 13}h16") if up else (
        f"M{x - 8} {y + 13}h16l-8 14z", f"M{x - 8} {y + 27}h16",
    )  # fmt: skip
    return f'<path d="M{x} {y}v40"/><path d="{tip[0]}" fill="{INK}"/><path d="{tip[1]}"/>'


def source(x: float, y: float, label: str) -> str:
    """A rail that a source holds at a voltage."""
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{ACCENT}"/><text x="{x - 10}" y="{y + 4}" \
text-anchor="end">{label}</text><path d="M{x} {y}h26"/>'


def schematic(folder: Path) -> Path:
    """One hidden node and one output node, with everything that is connected to them."""
    parts = []
    for y, name in ((40, "+k·x₁"), (80, "−k·x₁"), (120, "+bias"), (160, "−bias")):
        parts.append(source(90, y, name) + resistor(116, y, "g" if y == 40 else ""))
        parts.append(f'<path d="M176 {y}h24"/>')
    parts.append('<path d="M200 40v120M200 100h170"/>')
    parts.append('<circle cx="230" cy="100" r="4" fill="#1f2937"/>')
    parts.append('<text x="222" y="90">h1_1</text>')
    parts.append('<path d="M270 100v20"/>' + diode(270, 120, up=False))
    parts.append('<path d="M310 100v20"/>' + diode(310, 120, up=True))
    parts.append('<path d="M270 160v14M310 160v14"/>')
    parts.append('<text x="262" y="190">+clamp</text>')
    parts.append('<text x="320" y="190">−clamp</text>')
    parts.append('<path d="M370 74v52l52 -26z" fill="white"/><text x="376" y="105">A</text>')
    parts.append('<path d="M422 100h24" /><text x="414" y="82">up1_1 = A·v</text>')
    parts.append(
        f'<path d="M446 100c0 70 -216 76 -216 4" stroke="{FAINT}" stroke-dasharray="4 3"/>'
        '<text x="350" y="175">1/A of the current comes back</text>'
    )
    parts.append(resistor(446, 100, "") + '<path d="M506 100h60"/>')
    parts.append('<text x="470" y="124">g</text>')
    parts.append('<circle cx="566" cy="100" r="4" fill="#1f2937"/>')
    parts.append('<text x="576" y="104">out1</text>')
    parts.append('<path d="M540 100v-34"/><circle cx="540" cy="54" r="12"/>')
    parts.append('<path d="M540 62v-16m-4 12l4 8l4 -8M540 42v-14"/>')
    parts.append('<text x="558" y="50">nudge ±β</text>')
    style = "font-family:sans-serif;font-size:12px"
    body = "".join(parts).replace("<text", f'<text stroke="none" fill="{INK}" style="{style}"')
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 210" role="img">'
        "<title>One hidden node and one output node of a resistive network</title>"
        f'<g fill="none" stroke="{INK}" stroke-width="1.4">{body}</g></svg>\n'
    )
    path = folder / "circuit-schematic.svg"
    path.write_text(text)
    return path


def main(folder: Path) -> None:
    schematic(folder)
    data = digits.digits(0)
    recipe = digits.Recipe(hidden=16, epochs=4)
    model: ResistiveMLP = digits.learn(digits.build(recipe, 0), data, recipe, 0)
    model.solver = Newton(tol=1e-10)
    x, y = data[2][:1], data[3][:1]
    settling = pictures.settling_data(model, x, simulator=Ngspice())
    save(settling_figure(settling), folder / "circuit-settling.svg")
    save(voltages_figure(pictures.voltages_data(model, x, y)), folder / "circuit-voltages.svg")
    runs = json.loads((RESULTS / "in_situ.json").read_text())
    save(mismatch_figure(runs), folder / "circuit-mismatch.svg")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(__file__).parents[1] / "docs" / "figures")
