"""What operators do and see: actions with actor, reason and audit row, and read models. Used by CLI, API and pages.

Sees domain, timing and clock; is handed a store, and never imports one.
"""

from foliot.operate.operator import Operator

__all__ = ["Operator"]
