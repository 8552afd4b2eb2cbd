"""A convolutional network learns handwritten digits by equilibrium propagation.

python examples/convolutional_mnist.py           # 5,000 images
python examples/convolutional_mnist.py --fast    # 1,000 images, one epoch
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
data = get("mnist").load(seed=0, full=False)
count = 1000 if fast else 5000
x, y = torch.from_numpy(data.train_x[:count]), torch.from_numpy(data.train_y[:count])
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)

# Two layers of maps. The kernel that leads from the first to the second leads back, too: the maps
# relax to an equilibrium. Images are max pooled on their way in, average pooled between the maps.
model = teq.HopfieldConvNet(
    image=(1, 28, 28),
    channels=(16, 32),
    classes=10,
    pooling=(teq.MaxPooling(2), teq.AveragePooling(2)),
    tol=1e-2,
)
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)

for epoch in range(1 if fast else 3):
    for batch in torch.randperm(len(x)).split(50):
        loss = F.cross_entropy(model(x[batch]), y[batch])  # free phase
        optimizer.zero_grad()
        loss.backward()  # nudged phases: no graph through the relaxation
        optimizer.step()
    print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.3f}")

# Is that gradient the true one? Measure it against the exact one, solved in float64.
print(teq.certify(model, x[:16], y[:16]))
print(f"Lipschitz constant of the relaxation: {model.lipschitz():.3f} (below 1: it contracts)")

with torch.no_grad():
    answers = torch.cat([model(part).argmax(1) for part in test_x.split(1000)])
right = (answers == test_y).float().mean().item()
print(
    f"accuracy on {len(test_y)} test images: {100 * right:.1f} % (chance {100 * data.chance:.1f} %)"
)
