"""Control learnt from reward: the same policy optimisation with EP's gradient and backprop's."""
