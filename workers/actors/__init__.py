"""Composition roots of the cluster: thin Ray actors round the cores, in which the ports meet their adapters.

`fleet` supervises: it makes the `scheduler`, a `dispatcher` a pool, and the workers. All are named and detached, so
that they outlive whoever started them; Ray starts all but the workers again when their process dies, and the fleet
replaces workers. What crosses Ray is JSON of ours in bytes, and plain texts and numbers.
"""
