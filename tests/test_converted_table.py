"""``toreqprop convert``: what is measured, shown and written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toreqprop.bench.converted_table import FEEDBACKS, Row, Setup, Table, measure, render_markdown
from toreqprop.cli import app
from toreqprop.cli.estimators import BEGIN, END
from toreqprop.errors import InvalidInputError
from toreqprop.models.example_networks import NETWORKS
from toreqprop.models.neuron_network import FEEDBACK

PAGE = Path(__file__).parents[1] / "docs" / "converted.md"


def test_a_row_has_what_was_measured() -> None:
    seen: list[Row] = []
    setup = Setup(("lenet",), (0.2, 1e-4), width=2, batch=6, steps=3)
    table = measure(setup, on_row=seen.append)
    assert tuple(seen) == table.rows
    strong, weak = table.rows
    assert (strong.network, strong.layers, strong.feedback) == ("lenet", 3, 0.2)
    assert strong.parameters == sum(p.numel() for p in NETWORKS["lenet"](2, 10).parameters())
    assert strong.ok
    assert strong.cosine > 0.99
    assert strong.backprop_cosine < weak.backprop_cosine
    assert weak.backprop_cosine > 0.999
    assert weak.free < strong.free
    assert strong.time > 1


def test_a_row_that_is_not_certified_says_so() -> None:
    row = Row("vgg", 4, 100, 0.9, 200, 7, 0.5, 0.25, -0.5, 3.21, 6, False)
    text = render_markdown(Table((row,), "nothing"))
    assert "| vgg | 4 | 100 | 0.9 | 200 / 7 | 0.5000 / 0.2500 | -0.5000 | 3.2 | 6 | no |" in text


def test_the_command_prints_writes_and_refuses(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    small = ["convert", "--network", "lenet", "--feedback", "0.1", "--width", "2", "--steps", "2"]
    result = CliRunner().invoke(app, [*small, "--write", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n| Network |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    rows = json.loads(CliRunner().invoke(app, [*small, "--json"]).stdout)["rows"]
    assert [r["network"] for r in rows] == ["lenet"]
    wrong = CliRunner().invoke(app, ["convert", "--network", "nonsense"])
    assert isinstance(wrong.exception, InvalidInputError)
    assert "network must be" in str(wrong.exception)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_page_has_every_network_at_every_feedback(name: str) -> None:
    table = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    rows = [line.split("|")[1:-1] for line in re.findall(rf"^\| {name} \|.*$", table, re.MULTILINE)]
    assert [float(row[3]) for row in rows] == list(FEEDBACKS)
    certified = {float(row[3]): row[-1].strip() for row in rows}
    assert certified[FEEDBACK] == "yes"  # as the page says of the default
