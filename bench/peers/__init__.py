"""Foliot beside other schedulers, on one PostgreSQL server, in one run: `python -m bench.peers`, or `make bench-peers`.

Every scheduler lives in a folder of its own as an adapter: a program that runs inside a throw-away environment with
nothing but that scheduler in it, and speaks the small protocol of `bench.peers.protocol`. Foliot is one of them, and
has no other way in. Whatever is compared takes turns. Nothing here asserts a time; where we lose, "lost" is printed.

Adapters import this package too, so nothing is imported here.
"""
