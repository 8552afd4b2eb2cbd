"""One file per track; see docs/verification.md for how to add one."""
