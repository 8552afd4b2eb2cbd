"""A deep Hopfield network learns handwritten digits by equilibrium propagation.

python examples/layered_digits.py           # two hidden layers, 15 epochs
python examples/layered_digits.py --fast    # one epoch
"""

from __future__ import annotations

import argparse

import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.tasks import get

parser = argparse.ArgumentParser()
parser.add_argument("--fast", action="store_true")
fast = parser.parse_args().fast

torch.manual_seed(0)
data = get("digits").load(seed=0, full=False)
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)

# The matrix that leads from the first hidden layer to the second leads back, too. A way back that
# is weaker than the way up settles in a few sweeps and leaves the way up room to grow.
model = teq.HopfieldMLP([64, 128, 128, 10], feedback=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for epoch in range(1 if fast else 15):
    for batch in torch.randperm(len(x)).split(64):
        loss = F.cross_entropy(model(x[batch]), y[batch])  # free phase: sweeps until it rests
        optimizer.zero_grad()
        loss.backward()  # nudged phases: no graph through the relaxation
        optimizer.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")

# Is that gradient the true one? Measure it against the exact one, solved in float64.
print(teq.certify(model, x[:32], y[:32]))
print(f"the relaxation contracts by at least {model.lipschitz():.3f}")

with torch.no_grad():
    right = (model(test_x).argmax(1) == test_y).float().mean().item()
print(
    f"accuracy on {len(test_y)} test images: {100 * right:.1f} % (chance {100 * data.chance:.1f} %)"
)
