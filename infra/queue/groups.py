"""Consumer groups: who is in one, which partitions each member has, how far the group is.

Every function runs inside a transaction of the queue's writer. A change of members or topics gives the group a new
generation and deals the partitions anew; members notice by the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import orjson
import sqlalchemy as sa

from jobs.ports.queue import TopicPartition

IsAlive = Callable[[str], bool]
"""Whether the process that a member names still lives."""


def join(
    connection: sa.Connection, *, group: str, member: str, process: str, topics: Sequence[str], now: float
) -> None:
    """Enter a group, or enter it again after having been given up."""
    connection.exec_driver_sql(
        "INSERT OR REPLACE INTO members (grp, member, process, topics, seen, joined) VALUES (?, ?, ?, ?, ?,"
        " (SELECT coalesce(max(joined), 0) + 1 FROM members))",
        (group, member, process, orjson.dumps(list(topics)).decode(), now),
    )
    deal(connection, group)


def leave(connection: sa.Connection, group: str, member: str) -> None:
    """Leave a group; its partitions go to the others."""
    connection.exec_driver_sql("DELETE FROM members WHERE grp = ? AND member = ?", (group, member))
    deal(connection, group)


def beat(connection: sa.Connection, group: str, member: str, now: float) -> bool:
    """Show that a member lives; False if the group has given it up."""
    seen = "UPDATE members SET seen = ? WHERE grp = ? AND member = ?"
    return connection.exec_driver_sql(seen, (now, group, member)).rowcount > 0


def bury(connection: sa.Connection, group: str, *, before: float, is_alive: IsAlive) -> None:
    """Give up members that were not seen since `before`, or whose process is gone."""
    query = "SELECT member, process, seen FROM members WHERE grp = ?"
    found = connection.exec_driver_sql(query, (group,)).all()
    dead = [row.member for row in found if row.seen < before or not is_alive(row.process)]
    for member in dead:
        connection.exec_driver_sql("DELETE FROM members WHERE grp = ? AND member = ?", (group, member))
    if dead:
        deal(connection, group)


def deal(connection: sa.Connection, group: str) -> None:
    """A new generation: each topic's partitions round its subscribers, each topic starting with another one.

    The oldest member comes first, so that one who joins where there is nothing to share takes nothing away.
    """
    connection.exec_driver_sql(
        "INSERT INTO generations (grp, generation) VALUES (?, 1)"
        " ON CONFLICT (grp) DO UPDATE SET generation = generation + 1",
        (group,),
    )
    connection.exec_driver_sql("DELETE FROM assignments WHERE grp = ?", (group,))
    dealt = [(group, topic, part, member) for (topic, part), member in _hands(connection, group).items()]
    if dealt:
        insert = "INSERT INTO assignments (grp, topic, part, member) VALUES (?, ?, ?, ?)"
        connection.exec_driver_sql(insert, dealt)


def deal_all(connection: sa.Connection, topics: Iterable[str]) -> None:
    """After topics were made or deleted: for every group that listens to one of them."""
    changed = set(topics)
    found = connection.exec_driver_sql("SELECT grp, topics FROM members").all()
    for group in sorted({row.grp for row in found if changed.intersection(orjson.loads(row.topics))}):
        deal(connection, group)


def commit(connection: sa.Connection, group: str, member: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Note offsets of the partitions that are this member's now; another member has taken over the rest."""
    for (topic, part), offset in offsets.items():
        connection.exec_driver_sql(
            "INSERT OR REPLACE INTO offsets (grp, topic_id, part, pos) SELECT a.grp, t.topic_id, a.part, ?"
            " FROM assignments a JOIN topics t ON t.topic = a.topic"
            " WHERE a.grp = ? AND a.topic = ? AND a.part = ? AND a.member = ?",
            (offset, group, topic, part, member),
        )


def finished(connection: sa.Connection, topic: str, topic_id: str, part: int) -> int:
    """The offset that every group known to the topic has passed; 0 while one has no offset yet, or none is known."""
    query = "SELECT grp, pos FROM offsets WHERE topic_id = ? AND part = ?"
    passed = {row.grp: int(row.pos) for row in connection.exec_driver_sql(query, (topic_id, part))}
    listening = connection.exec_driver_sql("SELECT DISTINCT grp, topics FROM members").all()
    silent = any(topic in orjson.loads(row.topics) and row.grp not in passed for row in listening)
    return 0 if silent or not passed else min(passed.values())


def _hands(connection: sa.Connection, group: str) -> dict[TopicPartition, str]:
    query = "SELECT member, topics FROM members WHERE grp = ? ORDER BY joined"
    members = [(row.member, set(orjson.loads(row.topics))) for row in connection.exec_driver_sql(query, (group,))]
    hands: dict[TopicPartition, str] = {}
    topics = connection.exec_driver_sql("SELECT topic, partitions FROM topics ORDER BY topic").all()
    for shift, row in enumerate(topics):
        subscribed = [member for member, wanted in members if row.topic in wanted]
        for part in range(row.partitions if subscribed else 0):
            hands[row.topic, part] = subscribed[(shift + part) % len(subscribed)]
    return hands
