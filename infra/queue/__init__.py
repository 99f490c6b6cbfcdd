"""The queue adapters: topics in SQLite, with Apache Kafka's contract."""

from infra.queue.sqlite import QueuePolicy, SqliteQueue, open_queue

__all__ = ["QueuePolicy", "SqliteQueue", "open_queue"]
