"""CIFAR-10 by equilibrium propagation, beside a feed-forward twin by backpropagation."""
