"""Teach a transformer to reverse sequences by equilibrium propagation: about ten seconds.

    python examples/transformer_reversal.py            # attention with an energy
    python examples/transformer_reversal.py --variant attention

Attention is not applied here but relaxes: every token's neurons settle in a minimum of one energy.
`loss.backward()` nudges that minimum a little and reads the gradient off the difference.
"""

from __future__ import annotations

import argparse

import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.tasks.sequences import sequences
from toreqprop.training import accuracy


def main(variant: str, steps: int, length: int) -> float:
    """Train on sequences seen once; returns the share of tokens that are right on new ones."""
    torch.manual_seed(0)
    data = sequences("reversal", length=length, train=64 * steps, seed=0)
    model = teq.EquilibriumTransformer(10, length, variant=variant)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    for step, (x, y) in enumerate(zip(data.x.split(64), data.y.split(64), strict=True), start=1):
        optimizer.zero_grad()
        logits = model(x)  # free phase: the tokens settle
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()  # nudged phases: no backpropagation through the relaxation
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3d}   loss {loss.item():.3f}")

    x, y = data.validation_x[:32], data.validation_y[:32]
    print(teq.certify(model, x, y, loss=lambda o, t: F.cross_entropy(o.mT, t)))
    right = accuracy(model, data.test_x, data.test_y)
    print(f"{data.test_x[0].tolist()} -> {model(data.test_x[:1])[0].argmax(-1).tolist()}")
    print(f"{100 * right:.2f} % of the tokens of {len(data.test_x)} new sequences are right")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", default="energy", choices=("energy", "attention"))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--length", type=int, default=8)
    chosen = parser.parse_args()
    main(chosen.variant, chosen.steps, chosen.length)
