"""Dispatcher, worker loop, pools: they take released tasks to an engine and commit the outcome."""
