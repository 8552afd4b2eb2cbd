"""An equilibrium block inside an ordinary network: autograd around it, EP inside, end to end.

python examples/blocks_digits.py           # 10 epochs
python examples/blocks_digits.py --fast    # two epochs
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.tasks import get

parser = argparse.ArgumentParser()
parser.add_argument("--fast", action="store_true")
fast = parser.parse_args().fast

torch.manual_seed(0)
data = get("digits").load(seed=0, full=False)
x, y = torch.from_numpy(data.train_x).reshape(-1, 1, 8, 8), torch.from_numpy(data.train_y)
test_x = torch.from_numpy(data.test_x).reshape(-1, 1, 8, 8)
test_y = torch.from_numpy(data.test_y)

# Two layers of maps that settle together. Batch norm cannot settle, so it stands in front.
block = teq.Block(
    nn.Sequential(
        nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.Tanh(),
        nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(),
    ),
    feedback=0.3,
)  # fmt: skip
net = nn.Sequential(
    nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
    block,
    nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

for epoch in range(2 if fast else 10):
    for batch in torch.randperm(len(x)).split(64):
        loss = F.cross_entropy(net(x[batch]), y[batch])  # inside, the block settles
        optimizer.zero_grad()
        loss.backward()  # autograd, nudged phases inside the block, autograd again
        optimizer.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")

net.eval()
with torch.no_grad():
    maps = net[:3](x[:16])
    goal = torch.zeros_like(block(maps))
    right = (net(test_x).argmax(1) == test_y).float().mean().item()

# The block's own gradient, of any loss on its maps, against the exact one.
print(teq.certify(block, maps, goal, loss=F.mse_loss))
print(
    f"accuracy on {len(test_y)} test images: {100 * right:.1f} % (chance {100 * data.chance:.1f} %)"
)
