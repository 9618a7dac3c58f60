"""Values and pure decisions, and the ports that rooms share.

No I/O, no clock, no randomness: what a decision depends on is an argument.
Imports the standard library and foliot.errors only.
"""
