"""Where promises are remembered: one folder per engine, and what engines share.

An engine implements `foliot.domain.store.Store` and is held to it by `tests/contract`. SQL lives in .sql files, as
named queries. Rooms never import an engine: they are handed one by `foliot.bootstrap`.
"""
