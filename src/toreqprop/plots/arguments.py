"""What the functions of this package are given, refused in a sentence where it cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel

_UNFIT = (KeyError, TypeError, IndexError, AttributeError, ValueError, StopIteration)


def check_model(model: Any) -> None:
    """Refuse what does not relax."""
    checks.instance("model", model, EquilibriumModel, "only a model that relaxes can be drawn")


def check_batch(model: Any, x: Any, y: Any, loss: Any) -> Callable[[Any, Any], Any]:
    """A model that relaxes, inputs and targets of as many samples; the loss, looked at too."""
    check_model(model)
    checks.pairs(x, y)
    checks.function("loss", loss)
    if len(x) == 0:
        raise InvalidInputError("There is nothing to draw: give at least one sample.")
    return lambda output, target: checks.scalar_loss(loss(output, target))


def draws(source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a function that draws plain data: other data is refused, with the name of its source."""

    def decorate(draw: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(draw)
        def checked(data: Any) -> Any:
            if not isinstance(data, Mapping) or not data:
                raise InvalidInputError(
                    f"data must be what {source} returns, got {checks.shown(data)}."
                )
            try:
                return draw(data)
            except InvalidInputError:
                raise
            except _UNFIT as error:
                raise InvalidInputError(
                    f"data must be what {source} returns, this cannot be drawn: "
                    f"{checks.shown(error)}."
                ) from error

        return checked

    return decorate
