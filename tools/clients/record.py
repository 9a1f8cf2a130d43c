#!/usr/bin/env python3
"""Write the raw HTTP requests of openai-python and openai-node for typical calls.

usage: record.py DIRECTORY       (after make .venv/clients and npm ci)

Starts a server on 127.0.0.1 that keeps each request byte for byte and answers it
with the least that satisfies the library, runs both client runners against it, and
writes DIRECTORY/{openai-python,openai-node}-NAME.http. Two things are replaced:
the key, by "dummy", and the port in Host, by 8080. Each file is one request: its
head as sent, an empty line, its body.
"""

import base64
import json
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = {
    "openai-python": [ROOT / ".venv/clients/bin/python", ROOT / "tools/clients/python/run.py"],
    "openai-node": ["node", ROOT / "tools/clients/node/run.mjs"],
}
KEY = "sk-recording"

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Current weather of a city – in °C or °F.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City, e.g. \"Zürich\""},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "send_mail",
            "description": "Send <b>mail</b> & wait",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "array", "items": {"type": "string"}}, "text": {"type": "string"}},
                "required": ["to", "text"],
                "additionalProperties": False,
            },
        },
    },
]
ASKED = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "How warm is it in Zürich? \U0001f321\ufe0f"},
]
ANSWERED = ASKED + [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Zürich",  "unit":"C"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 3.50, "id": 9007199254740993}'},
]
STREAM_USAGE = {"stream_options": {"include_usage": True}}

CALLS = {
    "chat": {"params": {"model": "tiny", "messages": ASKED, "temperature": 0.2, "max_tokens": 64, "seed": 7}},
    "chat-stream": {"stream": True, "params": {"model": "tiny", "messages": ASKED, **STREAM_USAGE}},
    "tools": {
        "params": {"model": "tiny", "messages": ANSWERED, "tools": TOOLS, "tool_choice": "auto", "max_tokens": 64}
    },
    "tools-stream": {
        "stream": True,
        "params": {
            "model": "tiny",
            "messages": ASKED,
            "tools": TOOLS,
            "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
            "parallel_tool_calls": False,
            **STREAM_USAGE,
        },
    },
    "models": {"call": "models"},
    "embeddings": {"call": "embeddings", "params": {"model": "tiny", "input": ["one", "zwei – drei"]}},
    "completions": {"call": "completions", "params": {"model": "tiny", "prompt": "Once upon", "max_tokens": 16}},
    "completions-stream": {
        "call": "completions",
        "stream": True,
        "params": {"model": "tiny", "prompt": ["Once upon"], "max_tokens": 16, "stop": ["\n"]},
    },
}

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def chunks(kind, choices):
    head = {"id": "1", "object": kind, "created": 1, "model": "tiny"}
    lines = [json.dumps(head | {"choices": [choice]}) for choice in choices]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in lines) + "data: [DONE]\n\n"


def reply(path, body):
    """The least answer to a call, as content type and text."""
    head = {"id": "1", "created": 1, "model": "tiny", "usage": USAGE}
    if path.endswith("/models"):
        data = {"object": "list", "data": [{"id": "tiny", "object": "model", "created": 1, "owned_by": "test"}]}
    elif path.endswith("/embeddings"):
        vector = base64.b64encode(struct.pack("<2f", 0.5, -0.5)).decode()
        entries = [{"object": "embedding", "index": i, "embedding": vector} for i in range(len(body["input"]))]
        data = {"object": "list", "data": entries, "model": "tiny", "usage": USAGE}
    elif path.endswith("/chat/completions"):
        if body.get("stream"):
            return chunks(
                "chat.completion.chunk",
                [
                    {"index": 0, "delta": {"role": "assistant", "content": "3"}, "finish_reason": None},
                    {"index": 0, "delta": {}, "finish_reason": "stop"},
                ],
            )
        message = {"role": "assistant", "content": "3"}
        data = head | {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    else:
        choice = {"index": 0, "text": "a", "finish_reason": "stop", "logprobs": None}
        if body.get("stream"):
            return chunks("text_completion", [choice])
        data = head | {"object": "text_completion", "choices": [choice]}
    return "application/json", json.dumps(data)


def serve(listener, record):
    """Takes one request a connection and passes its bytes on, until the listener is shut down."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            head, _, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            while length and len(body) < int(length[1]):
                body += connection.recv(65536)
            record(head, body)
            kind, text = reply(head.split()[1].decode(), json.loads(body or b"{}"))
            payload = text.encode()
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (kind.encode(), len(payload))
                + payload
            )


def neutral(head, port):
    head = head.replace(KEY.encode(), b"dummy")
    return head.replace(b"127.0.0.1:%d" % port, b"127.0.0.1:8080")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(
            target=serve, args=(listener, lambda head, body: taken.append((head, body))), daemon=True
        ).start()
        for client, command in CLIENTS.items():
            for name, call in CALLS.items():
                taken.clear()
                done = subprocess.run(
                    [*map(str, command), "--base-url", f"http://127.0.0.1:{port}/v1", "--api-key", KEY],
                    input=json.dumps({"id": name, **call}),
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                if done.returncode != 0:
                    sys.exit(f"record: {client} {name}: {done.stderr}")
                answer = json.loads(done.stdout)
                if not answer["ok"] or len(taken) != 1:
                    sys.exit(f"record: {client} {name}: {len(taken)} requests; {answer['error']}")
                head, body = taken[0]
                file = directory / f"{client}-{name}.http"
                file.write_bytes(neutral(head, port) + b"\r\n\r\n" + body)
                print(file)


if __name__ == "__main__":
    main()
