"""What every program that tests start does first: it leaves alone what is imported.

As `toreqprop` itself does; others, such as workers, would spend a third of their time on it.
"""

from __future__ import annotations

import atexit
import gc

gc.set_threshold(*gc.get_threshold()[:2], 100)
atexit.register(gc.freeze)
