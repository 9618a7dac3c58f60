"""Requests to the outside: which addresses they may go to, and connections to exactly these.

    guard    decides whether a request may go to an address; pure
    connect  resolves a name, has the guard check every address, connects to the checked one

Everything in Foliot that sends a request uses this package. It follows no redirect and uses no proxy. It knows no
store, no run and no setting: its caller passes a guard.
"""

from foliot.net.connect import Answer, Connector
from foliot.net.guard import EVERYWHERE, SETTING, AddressGuard, AddressRefused, is_loopback, networks

__all__ = [
    "EVERYWHERE",
    "SETTING",
    "AddressGuard",
    "AddressRefused",
    "Answer",
    "Connector",
    "is_loopback",
    "networks",
]
