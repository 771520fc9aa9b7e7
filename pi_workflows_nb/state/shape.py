"""The shape of a state file: tables, columns, keys, foreign keys and indexes, as SQLite itself reports them.

Two files may be written with different text and still hold the same thing, so a file is judged by what its schema
means. What SQLite does not report (the predicate of a partial index, AUTOINCREMENT) is read from the stored statement,
without regard to case and white space.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

SCHEMA_SQL: Final = Path(__file__).with_name("schema.sql")
_SHAPE_JSON: Final = Path(__file__).with_name("shape.json")

_OWN: Final = "name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_TABLES: Final = f"SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND {_OWN}"
_STATEMENTS: Final = f"SELECT type, name, sql FROM sqlite_schema WHERE {_OWN}"
_COLUMNS: Final = (
    'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk'
    " FROM sqlite_schema t, pragma_table_xinfo(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid"
)
_FOREIGN_KEYS: Final = (
    'SELECT t.name, f.id, f."table", f."from", f."to", f.on_delete'
    " FROM sqlite_schema t, pragma_foreign_key_list(t.name) f WHERE t.type = 'table' ORDER BY t.name, f.id, f.seq"
)
_INDEXES: Final = (
    'SELECT t.name, i.name, i."unique", i.origin, x.name, x."desc" FROM sqlite_schema t, pragma_index_list(t.name) i,'
    " pragma_index_xinfo(i.name) x WHERE t.type = 'table' AND i.origin <> 'pk' AND x.key ORDER BY i.name, x.seqno"
)
_WHERE: Final = re.compile(r"\bWHERE\b(.*)\Z", re.IGNORECASE | re.DOTALL)
_AUTOINCREMENT: Final = re.compile(r"\bAUTOINCREMENT\b", re.IGNORECASE)


@cache
def expected() -> dict[str, Any]:
    """The shape that every state file of version 1 has, with its enum values, as data."""
    shape: dict[str, Any] = msgspec.json.decode(_SHAPE_JSON.read_bytes())
    return shape


def shape_of(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Read the shape of a file: `tables` and `indexes` in the form of `expected()`, and `others` (views, triggers)."""
    sql = {(kind, name): text or "" for kind, name, text in connection.execute(_STATEMENTS)}
    tables: dict[str, dict[str, Any]] = {
        name: {
            "autoincrement": _AUTOINCREMENT.search(sql["table", name]) is not None,
            "columns": [],
            "foreign_keys": [],
            "strict": bool(strict),
            "unique": [],
        }
        for name, strict in connection.execute(_TABLES)
    }
    for table, name, kind, not_null, default, key in connection.execute(_COLUMNS):
        if table in tables:
            tables[table]["columns"].append(
                {"default": default, "name": name, "not_null": bool(not_null), "primary_key": key, "type": kind}
            )
    keys: dict[tuple[str, int], dict[str, Any]] = {}
    for table, number, target, source, reference, on_delete in connection.execute(_FOREIGN_KEYS):
        fresh = {"columns": [], "on_delete": on_delete, "references": [], "table": target}
        key = keys.setdefault((table, number), fresh)
        key["columns"].append(source)
        key["references"].append(reference)
    for (table, _), key in keys.items():
        tables[table]["foreign_keys"].append(key)
    indexes: dict[str, dict[str, Any]] = {}
    for table, name, unique, _origin, column, descending in connection.execute(_INDEXES):
        fresh = {"columns": [], "descending": [], "table": table, "unique": bool(unique)}
        index = indexes.setdefault(name, fresh)
        index["columns"].append(column)
        index["descending"].append(bool(descending))
    for name in [name for name in indexes if ("index", name) not in sql]:  # those that a UNIQUE clause made
        index = indexes.pop(name)
        tables[index["table"]]["unique"].append(index["columns"])
    for name, index in indexes.items():
        where = _WHERE.search(sql["index", name])
        index["where"] = where[1].strip() if where else None
    for table in tables.values():
        table["foreign_keys"].sort(key=lambda key: key["columns"])
        table["unique"].sort()
    others = {name: {"type": kind} for kind, name in sql if kind not in ("table", "index")}
    return {"tables": tables, "indexes": indexes, "others": others}


def difference(actual: dict[str, dict[str, Any]]) -> str | None:
    """Name the first place where a shape is not the expected one; None when it is."""
    for kind, word in (("tables", "table"), ("indexes", "index")):
        wanted = expected()[kind]
        for name in sorted(wanted.keys() | actual[kind].keys()):
            if name not in actual[kind]:
                return f"the {word} {name} is missing"
            if name not in wanted:
                return f"the {word} {name} is too much"
            for part, value in wanted[name].items():
                if _plain(part, actual[kind][name][part]) != _plain(part, value):
                    return f"the {part.replace('_', ' ')} of the {word} {name} is different"
    for name, other in actual["others"].items():
        return f"the {other['type']} {name} is too much"
    return None


def _plain(part: str, value: Any) -> Any:
    if part == "where" and value is not None:
        return re.sub(r"[\s\"`()\[\]]", "", value).lower()
    if part == "foreign_keys":
        return sorted((key["columns"], key["table"], key["references"], key["on_delete"]) for key in value)
    if part == "unique" and isinstance(value, list):
        return sorted(value)
    return value
