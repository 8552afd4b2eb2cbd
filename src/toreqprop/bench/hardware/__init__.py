"""Learning on chips: in place, deployed, and with the device in backpropagation's loop."""
