"""What a PostgreSQL server is and how safe a commit on it is. Looks only; makes no table."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from infra.sql import postgres, schema
from infra.sql.faults import translated
from jobs.model import Value

_STANDBYS = sa.text(
    "SELECT count(*) AS senders, count(sync_state) AS seen,"
    " count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous FROM pg_stat_replication"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Value):
    """revision: of our tables, None without any. in_recovery: it is a standby itself, which takes no writes.

    wants_standby: commits wait for a standby; standbys: that they wait for now, None where we may not see them.
    """

    where: str
    version: str
    revision: str | None
    size_bytes: int
    in_recovery: bool
    wants_standby: bool
    standbys: int | None


def look(url_text: str) -> Server:
    """Raises DatabaseUnavailable and DatabaseUnfit."""
    url = postgres.parse(url_text)
    where, engine = postgres.shown(url), postgres.connect(url, postgres.PostgresPolicy(connections=1))
    try:
        with translated(where), engine.connect() as connection:
            return _look(connection, where)
    finally:
        engine.dispose()


def _look(connection: sa.Connection, where: str) -> Server:
    def tell(expression: str) -> str:
        return str(connection.exec_driver_sql(f"SELECT {expression}").scalar())

    standbys = connection.execute(_STANDBYS).one()
    hidden = standbys.senders > 0 and standbys.seen == 0
    return Server(
        where=where,
        version=tell("current_setting('server_version')").split()[0],
        revision=schema.revision(connection),
        size_bytes=int(tell("pg_database_size(current_database())")),
        in_recovery=tell("pg_is_in_recovery()") == "True",
        wants_standby=tell("current_setting('synchronous_standby_names')") != "",
        standbys=None if hidden else standbys.synchronous,
    )
