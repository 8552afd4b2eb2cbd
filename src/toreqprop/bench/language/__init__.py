"""A character model: attention that settles, by EP, beside its exact twin and a plain one."""
