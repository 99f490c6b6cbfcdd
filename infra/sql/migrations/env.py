"""Alembic's entry: runs in the transaction of the connection that `schema.migrate` hands over."""

from __future__ import annotations

from alembic import context

from infra.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite's DDL is transactional too; alembic doubts it because its driver once was not
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
