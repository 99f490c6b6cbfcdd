"""Adapters: everything with the outside world on the other end. May import `jobs`."""
