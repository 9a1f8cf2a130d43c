"""What the agent loops in Python have in common; see ../README.md for the protocol."""

import asyncio
import json
import sys
import traceback
from typing import Literal

from pydantic import BaseModel, Field

SYSTEM = "You keep a warehouse – answer with tools. Prices are in €."
RESULT = '{"ok": true, "rows": ["Zürich; 12 €", "Łódź; 7 €"], "note": "see \\"B\\"\\n"}'

class Place(BaseModel):
    aisle: int = Field(ge=1, le=99)
    shelf: Literal["low", "high"]


class FindOrders(BaseModel):
    """Orders of a city, newest first."""

    city: str = Field(max_length=12, description='City, e.g. "Zürich"')
    status: Literal["open", "paid & sent"]
    limit: int | None = Field(default=None, ge=1, le=20)


class MoveStock(BaseModel):
    """Moves an article within the warehouse."""

    article: int = Field(ge=0, le=9999)
    to: Place
    tags: list[Literal["fragile", "größer"]] = Field(max_length=2)


class Closing(BaseModel):
    """The last answer to a user, so that a model with random weights comes to one."""

    state: Literal["done", "to be continued"]


CLOSING = {"type": "json_schema", "json_schema": {"name": "closing", "schema": Closing.model_json_schema()}}
TOOLS = {"find_orders": FindOrders, "move_stock": MoveStock}


def answer(text, calls, finish, usage, cached):
    """One reply of the model as the library shows it; calls are (id, name, arguments)."""
    return {
        "text": text or "",
        "tool_calls": [
            {"id": i, "name": n, "arguments": json.loads(a) if isinstance(a, str) else a} for i, n, a in calls
        ],
        "finish_reason": finish,
        "usage": {"prompt": usage[0], "completion": usage[1], "cached": cached},
    }


def serve(loop):
    """Answers each line of standard input by what loop(request) returns, a list of answers."""
    out, sys.stdout = sys.stdout, sys.stderr  # libraries print
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"id": request["id"], "answers": [], "error": ""}
        try:
            answers = loop(request)
            reply["answers"] = asyncio.run(answers) if asyncio.iscoroutine(answers) else answers
        except Exception:  # whatever a user's program would see
            reply["error"] = traceback.format_exc()
        print(json.dumps(reply, ensure_ascii=False), file=out, flush=True)
