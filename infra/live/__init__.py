"""Requests over a TCP connection: a worker's door, served here and seen from there."""

from infra.live.remote import RemoteDoor
from infra.live.server import DoorServer

__all__ = ["DoorServer", "RemoteDoor"]
