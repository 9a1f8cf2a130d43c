"""Records what the OpenAI clients send, byte for byte, into recorded/*.http.

    python record.py [node_modules]

Needs the package openai of Python (3.57.0 was used) and, for the files node-*,
a folder with the npm package openai (6.x). A socket on the loopback interface
answers as an engine would and keeps each request.
"""
import os, pathlib, socket, subprocess, sys, threading

here = pathlib.Path(__file__).parent
out = here / "recorded"
requests = []

CHAT = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
TEXT = b'{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"hi","finish_reason":"stop","logprobs":null}]}'
EMB = b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":1,"total_tokens":1}}'
MODELS = b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"x"}]}'
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def answer(head, body):
    if b'"stream":true' in body.replace(b" ", b""):
        return b"text/event-stream", CHUNK
    for path, reply in ((b"/chat/", CHAT), (b"/completions", TEXT), (b"/embeddings", EMB), (b"/models", MODELS)):
        if path in head.split(b"\r\n")[0]:
            return b"application/json", reply
    return b"application/json", b"{}"


def serve(conn):
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            got = conn.recv(65536)
            if not got:
                return
            data += got
        head, data = data.split(b"\r\n\r\n", 1)
        n = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                n = int(line.split(b":")[1])
        while len(data) < n:
            data += conn.recv(65536)
        body, data = data[:n], data[n:]
        requests.append(head + b"\r\n\r\n" + body)
        kind, reply = answer(head, body)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(reply)) + reply)


def accept(ln):
    while True:
        conn, _ = ln.accept()
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


def save(name, port):
    assert requests, name
    raw = requests.pop().replace(b"127.0.0.1:%d" % port, b"engine.example")
    (out / (name + ".http")).write_bytes(raw)


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city – now", "strict": True,
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 7}},
                         "required": ["city", "days"], "additionalProperties": False}}}]
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Wie wird das Wetter in Zürich? 🌧\n"},
         {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function",
          "function": {"name": "get_weather", "arguments": "{\"city\": \"Zürich\", \"days\": 1}"}}]},
         {"role": "tool", "tool_call_id": "call_1", "content": "{\"rain\": 0.10, \"id\": 9007199254740993}"}]

ln = socket.create_server(("127.0.0.1", 0))
port = ln.getsockname()[1]
threading.Thread(target=accept, args=(ln,), daemon=True).start()
out.mkdir(exist_ok=True)

import openai
py = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="not-a-key")
py.chat.completions.create(model="m", messages=TURNS, tools=TOOLS, temperature=0.25, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
save("python-chat-tools", port)
list(py.chat.completions.create(model="m", messages=TURNS[:2], stream=True, stream_options={"include_usage": True}))
save("python-chat-stream", port)
py.chat.completions.create(model="m", messages=[{"role": "user", "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}])
save("python-chat-parts", port)
py.completions.create(model="m", prompt=["a\u2028b", "</script>"], max_tokens=3, seed=2**53 + 1)
save("python-completions", port)
py.embeddings.create(model="m", input="text")
save("python-embeddings", port)
py.models.list()
save("python-models", port)

if len(sys.argv) > 1:
    script = r"""
const OpenAI = require("openai").default ?? require("openai");
const [port, what] = process.argv.slice(-2);
const c = new OpenAI({baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "not-a-key"});
const turns = [{role: "system", content: "Be brief."}, {role: "user", content: "Wetter in Zürich? 🌧\n"}];
const tools = [{type: "function", function: {name: "get_weather", parameters: {type: "object", properties: {city: {type: "string"}}, required: ["city"]}}}];
(async () => {
  if (what === "chat-tools") await c.chat.completions.create({model: "m", messages: turns, tools, tool_choice: "required", temperature: 1e-7});
  if (what === "chat-stream") for await (const _ of await c.chat.completions.create({model: "m", messages: turns, stream: true})) {}
  if (what === "embeddings") await c.embeddings.create({model: "m", input: ["a", "b"]});
  if (what === "models") await c.models.list();
})().catch(e => { console.error(e); process.exit(1) });
"""
    for what in ("chat-tools", "chat-stream", "embeddings", "models"):
        subprocess.run(["node", "-e", script, str(port), what], check=True, env={**os.environ, "NODE_PATH": sys.argv[1]})
        save("node-" + what, port)
print(len(list(out.glob("*.http"))), "requests recorded")
