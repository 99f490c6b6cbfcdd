"""Calls to addresses that a tenant named: checked, pinned to what was checked, bounded in time and size."""
