"""Train networks without backpropagation: equilibrium propagation behind loss.backward()."""
