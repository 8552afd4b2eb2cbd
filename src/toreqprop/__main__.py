"""``python -m toreqprop``."""

from __future__ import annotations

from toreqprop.cli import main

if __name__ == "__main__":
    main()
