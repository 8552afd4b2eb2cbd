"""``python verify.py …`` is ``toreqprop verify …``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "src"))
    from toreqprop.cli import main

    sys.argv.insert(1, "verify")
    main()
