"""Alembic's environment and its revisions."""
