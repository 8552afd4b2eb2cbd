from __future__ import annotations
def mutations(): return {}
