"""A page one can play with: a network that settles, in the browser."""
