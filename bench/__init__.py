"""What Foliot does on this machine, and what the machine could do: `python -m bench`, or `make bench`.

Every rate stands beside its ceiling: the same statements on the same tables, in plain SQL, measured in the same run.
Nothing here asserts a time; a gate that was missed is printed as missed. Method and figures: docs/benchmarks.md.
"""
