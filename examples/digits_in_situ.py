"""A resistive network learns handwritten digits in place, on a circuit that is not as drawn.

    python examples/digits_in_situ.py
    python examples/digits_in_situ.py --spread 2 --seeds 3

Four numbers follow for each circuit: trained and tested as drawn, trained as drawn and deployed on
the mismatched circuit, trained in place, and in place with the first crossbar frozen. At spread 1
conductances are off by 40 %, diodes by 70 %, the current that amplifiers return by 20 %, and every
amplifier has an offset of 50 mV.
"""

from __future__ import annotations

import argparse

import torch

from toreqprop.bench.circuits.digits import Recipe, mismatched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    recipe = Recipe(hidden=chosen.hidden, epochs=chosen.epochs)
    for seed in range(chosen.seeds):
        row = mismatched(recipe, seed, chosen.spread)
        figures = ", ".join(
            f"{name.replace('_', ' ')} {row[name]:.1%}"
            for name in ("ideal", "deployed", "in_place", "frozen")
        )
        print(f"circuit {seed}: {figures}", flush=True)


if __name__ == "__main__":
    main()
