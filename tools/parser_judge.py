#!/usr/bin/env python3
"""Read answers with SGLang's own parsers of tool calls.

  parser_judge.py < requests.jsonl > answers.jsonl

One JSON object a line in, one a line out, in order, flushed. A request:

  {"parser": "qwen3_coder", "tools": [{"type": "function", "function": ...}],
   "pieces": ["text", ...]}         the answer as it streams

An answer: what the parser makes of the pieces, and of the whole at once. A call
is [name, arguments], the arguments as text; one that it forwards in a stream
without a name has null.

  {"stream": {"calls": [["f", "{}"]], "text": "..."}, "whole": {...}}
  either may be {"error": "..."}

torch is not needed: see stand_ins().
"""
import importlib.util, json, logging, os, sys, types


def stand_ins():
    """Makes sglang.srt.function_call importable without its package roots, which
    import torch."""
    import numpy as np
    import tvm_ffi  # noqa: F401  first: it probes sys.modules for a real torch

    torch = types.ModuleType("torch")
    torch.int32 = np.int32
    torch.Tensor = torch.LongTensor = torch.FloatTensor = np.ndarray
    torch.tensor = lambda v, dtype=None: np.array(v, dtype)
    torch.full = lambda shape, v, dtype=None: np.full(shape, v, dtype)
    hf = types.ModuleType("transformers")
    hf.PreTrainedTokenizerBase = hf.PreTrainedTokenizerFast = type("T", (), {})
    hf.LogitsProcessor = object
    display = types.ModuleType("IPython.display")
    display.HTML = display.display = object
    ipython = types.ModuleType("IPython")
    ipython.display = display
    for name, m in {"torch": torch, "transformers": hf, "IPython": ipython, "IPython.display": display}.items():
        sys.modules.setdefault(name, m)
    root = importlib.util.find_spec("sglang").submodule_search_locations[0]
    for name, sub in (("sglang", ""), ("sglang.srt", "/srt")):
        m = types.ModuleType(name)
        m.__path__ = [root + sub]
        sys.modules[name] = m


class Judge:
    def __init__(self):
        stand_ins()
        from sglang.srt.entrypoints.openai.protocol import Tool
        from sglang.srt.function_call.function_call_parser import FunctionCallParser

        logging.disable(logging.CRITICAL)
        self.Tool, self.parsers, self.tools = Tool, FunctionCallParser.ToolCallParserEnum, {}

    def known(self, raw):
        key = json.dumps(raw)
        if key not in self.tools:
            self.tools[key] = [self.Tool.model_validate(t) for t in raw]
        return self.tools[key]

    def stream(self, parser, tools, pieces):
        d = self.parsers[parser]()
        calls, text = {}, ""
        for p in pieces:
            r = d.parse_streaming_increment(p, tools)
            text += r.normal_text
            for c in r.calls:
                call = calls.setdefault(c.tool_index, [None, ""])
                if c.name:
                    call[0] = c.name
                call[1] += c.parameters
        return {"calls": [calls[k] for k in sorted(calls)], "text": text}

    def whole(self, parser, tools, text):
        r = self.parsers[parser]().detect_and_parse(text, tools)
        return {"calls": [[c.name, c.parameters] for c in r.calls], "text": r.normal_text}

    def answer(self, req):
        tools, out = self.known(req["tools"]), {}
        for key, read in (
            ("stream", lambda: self.stream(req["parser"], tools, req["pieces"])),
            ("whole", lambda: self.whole(req["parser"], tools, "".join(req["pieces"]))),
        ):
            try:
                out[key] = read()
            except Exception as e:  # the judge reports, the test decides
                out[key] = {"error": f"{type(e).__name__}: {e}"[:300]}
        return out


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the parsers print must not mix with the answers
    j = Judge()
    for line in sys.stdin:
        if line.strip():
            out.write(json.dumps(j.answer(json.loads(line))) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
