"""Reports are templates filled with plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def fill(
    package: str,
    template: str,
    filters: Mapping[str, Callable[..., Any]],
    **content: Any,
) -> str:
    """A template of ``package``, filled; a name it does not know is an error, not a gap."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(**content)
