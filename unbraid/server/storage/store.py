"""The store: responses that clients may ask for again, in one SQLite file.

A response is in the file before its client is told of it, so a process that is killed loses none that was answered.
Every row belongs to one client (`http.client_of`), and is found with its name alone. Several processes may share a
file. All methods block: call them in a thread.

A response that runs in the background is `in_progress` in the file. The process that runs it says again and again that
it does (`beat`), and learns there whether it is still wanted. One of which nothing was heard for a while has failed:
its process is gone.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...errors import UnbraidError

_DAY = 24 * 3600.0
_BETWEEN_PURGES = 3600.0
_PATIENCE = 5.0
"""How many seconds to wait for another process that writes."""
_VERSION = 1
"""Of the tables below. To change them, count it up."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, created REAL NOT NULL, input BLOB NOT NULL, response BLOB NOT NULL,
    heard REAL NOT NULL, wanted INTEGER NOT NULL DEFAULT 1, conversation TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS responses_conversation ON responses (conversation);
CREATE INDEX IF NOT EXISTS responses_created ON responses (created);
CREATE TABLE IF NOT EXISTS items (
    id TEXT NOT NULL, client TEXT NOT NULL, response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    item BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS items_id ON items (id);
CREATE INDEX IF NOT EXISTS items_response ON items (response);
CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""

RUNNING = ("queued", "in_progress")
"""The statuses of a response that is being made."""
BEAT = 5.0
"""Seconds between two signs of life of a running response."""
SILENCE = 30.0
"""After so many seconds without a sign of life, its process is gone."""
_GONE = {"code": "server_error", "message": "the server ended before the response did"}

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response and what it answered."""

    input: list[Item]
    """The items of its own request, without those of the responses before it."""
    response: dict[str, Any]

    @property
    def previous(self) -> str | None:
        """The response that it goes on from."""
        return self.response.get("previous_response_id")


class Store:
    """The responses in a file. Those that are older than `days` are forgotten."""

    def __init__(self, path: Path, days: float) -> None:
        self._lock, self._read_lock = threading.Lock(), threading.Lock()
        self._seconds = days * _DAY
        self._purged = 0.0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # conversations are nobody else's business
            self._database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA foreign_keys=ON")
            self._database.execute("PRAGMA secure_delete=ON")
            made_by = self._database.execute("PRAGMA user_version").fetchone()[0]
            if made_by not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"another version of unbraid made it ({made_by}, not {_VERSION})")
            self._database.executescript(_SCHEMA)
            self._database.execute(f"PRAGMA user_version={_VERSION}")
            # Whoever reads does not wait for whoever writes.
            self._readings = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise UnbraidError(
                f"the store {path} cannot be opened: {error}; --store names another file, or none"
            ) from error

    def secret(self) -> bytes:
        """The secret of the seals, made when the file was."""
        with self._change() as database:
            database.execute("INSERT OR IGNORE INTO secrets VALUES ('seal', ?)", (secrets.token_bytes(32),))
            (secret,) = database.execute("SELECT value FROM secrets WHERE name = 'seal'").fetchone()
            return bytes(secret)

    def put(self, client: str, input: Sequence[Item], response: Mapping[str, Any], *, again: bool = False) -> None:
        """Store a response. `again`: update one that is stored, unless it was deleted meanwhile."""
        encode, now = msgspec.json.encode, time.time()
        items = [*input, *response["output"]]
        with self._change() as database:
            there = database.execute("DELETE FROM responses WHERE id = ?", (response["id"],)).rowcount > 0
            if again and not there:
                return
            before = database.execute(
                "SELECT conversation FROM responses WHERE id = ? AND client = ?",
                (response.get("previous_response_id"), client),
            ).fetchone()
            conversation = response["id"] if before is None else before[0]
            database.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, 1, ?)",
                (response["id"], client, now, encode(input), encode(response), now, conversation),
            )
            # A conversation that goes on is kept as a whole.
            database.execute("UPDATE responses SET created = ? WHERE conversation = ?", (now, conversation))
            database.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?)",
                [(item["id"], client, response["id"], encode(item)) for item in items if item.get("id")],
            )
            self._purge(database)

    def get(self, client: str, id: str) -> StoredResponse | None:
        now = time.time()
        with self._read_lock:
            row = self._readings.execute(
                "SELECT input, response, heard, wanted FROM responses WHERE id = ? AND client = ? AND created > ?",
                (id, client, now - self._seconds),
            ).fetchone()
        if row is None:
            return None
        input, response = map(msgspec.json.decode, row[:2])
        heard, wanted = row[2:]
        if response["status"] in RUNNING and not wanted:  # whoever runs it learns it with the next beat
            response |= {"status": "cancelled"}
        elif response["status"] in RUNNING and now - heard > SILENCE:
            response |= {"status": "failed", "error": _GONE}
        return StoredResponse(input, response)

    def beat(self, client: str, id: str) -> bool:
        """Record that a response is still running. Returns False if it was cancelled or deleted."""
        with self._change() as database:
            database.execute("UPDATE responses SET heard = ? WHERE id = ?", (time.time(), id))
            row = database.execute("SELECT wanted FROM responses WHERE id = ? AND client = ?", (id, client)).fetchone()
        return row is not None and bool(row[0])

    def cancel(self, client: str, id: str) -> None:
        """Tell whoever runs a response that it is no longer wanted."""
        with self._change() as database:
            database.execute("UPDATE responses SET wanted = 0 WHERE id = ? AND client = ?", (id, client))

    def delete(self, client: str, id: str) -> bool:
        """Forget a response. False if there is none."""
        there = self.get(client, id) is not None
        with self._change() as database:
            database.execute("DELETE FROM responses WHERE id = ? AND client = ?", (id, client))
        with self._lock:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is deleted is gone from the disk, too
        return there

    def item(self, client: str, id: str) -> Item | None:
        """An item of any response, by its id."""
        with self._read_lock:
            row = self._readings.execute(
                "SELECT item FROM items JOIN responses ON responses.id = items.response "
                "WHERE items.id = ? AND items.client = ? AND created > ? LIMIT 1",
                (id, client, time.time() - self._seconds),
            ).fetchone()
        return None if row is None else dict(msgspec.json.decode(row[0]))

    def close(self) -> None:
        with self._lock, self._read_lock:
            self._database.close()
            self._readings.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing."""
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _purge(self, database: sqlite3.Connection) -> None:
        now = time.time()
        if now - self._purged > _BETWEEN_PURGES:
            self._purged = now
            database.execute("DELETE FROM responses WHERE created < ?", (now - self._seconds,))
