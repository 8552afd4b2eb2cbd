"""The multi-task benchmark: the same as ``toreqprop benchmark``, with the same options."""

from __future__ import annotations

import sys

from toreqprop.cli import main

if __name__ == "__main__":
    sys.argv[1:] = ["benchmark", *sys.argv[1:]]
    main()
