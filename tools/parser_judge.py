#!/usr/bin/env python3
"""Read answers with an engine's own parsers of tool calls.

  parser_judge.py sglang|vllm < requests.jsonl > answers.jsonl

One JSON object a line in, one a line out, in order, flushed. A request:

  {"parser": "qwen3_coder", "tools": [{"type": "function", "function": ...}],
   "specials": ["<tool_call>", ...], added tokens of the vocabulary, for vLLM
   "pieces": ["text", ...]}         the answer as it streams

An answer: what the parser makes of the pieces, and of the whole at once. A call
is [name, arguments], the arguments as text; one that it forwards in a stream
without a name has null.

  {"stream": {"calls": [["f", "{}"]], "text": "..."}, "whole": {...}}
  either may be {"error": "..."}

SGLang's are read without torch: see stand_ins(). vLLM's are read as its server
does, reasoning apart.
"""
import base64, importlib.util, json, logging, os, pathlib, sys, tempfile, types


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


class SGLang:
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

    def stream(self, req, tools):
        d = self.parsers[req["parser"]]()
        calls, text = {}, ""
        for p in req["pieces"]:
            r = d.parse_streaming_increment(p, tools)
            text += r.normal_text
            for c in r.calls:
                call = calls.setdefault(c.tool_index, [None, ""])
                if c.name:
                    call[0] = c.name
                call[1] += c.parameters
        return {"calls": [calls[k] for k in sorted(calls)], "text": text}

    def whole(self, req, tools):
        r = self.parsers[req["parser"]]().detect_and_parse("".join(req["pieces"]), tools)
        return {"calls": [[c.name, c.parameters] for c in r.calls], "text": r.normal_text}


def byte_letters():
    """The letters that byte-level vocabularies write bytes with, by byte (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    return letters | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in letters)}


class VLLM:
    def __init__(self):
        logging.disable(logging.CRITICAL)
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.parser.parser_manager import ParserManager

        self.Request, self.manager = ChatCompletionRequest, ParserManager
        self.made = {}

    def tokenizer(self, specials):
        """A vocabulary of bytes and the given added tokens."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        t = Tokenizer(models.BPE({c: b for b, c in byte_letters().items()}, []))
        t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(False, use_regex=False), decoders.ByteLevel()
        t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
        return PreTrainedTokenizerFast(tokenizer_object=t)

    def harmony(self):
        """gpt-oss' vocabulary. openai_harmony reads it from a file it would fetch."""
        vocab = json.loads(pathlib.Path(__file__, "../../.cache/vocab/gptoss.json").resolve().read_text())["model"]["vocab"]
        byte = {c: b for b, c in byte_letters().items()}
        home = self.home = tempfile.TemporaryDirectory()  # vLLM loads it once more
        lines = (base64.b64encode(bytes(byte[c] for c in token)).decode() + f" {i}\n" for token, i in sorted(vocab.items(), key=lambda e: e[1]) if i < 199998)
        pathlib.Path(home.name, "o200k_base.tiktoken").write_text("".join(lines))
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = home.name
        from openai_harmony import HarmonyEncodingName, load_harmony_encoding

        encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

        class Tokenizer:
            def get_vocab(self):
                return {}

            def encode(self, text, add_special_tokens=False):
                return encoding.encode(text, allowed_special="all")

            def decode(self, ids):
                return encoding.decode(ids)

        return Tokenizer()

    def parser(self, req):
        key = json.dumps([req["parser"], req["specials"], req["tools"]])
        if key not in self.made:
            harmony = req["parser"] == "openai"
            tokenizer = self.harmony() if harmony else self.tokenizer(req["specials"])
            cls = self.manager.get_parser(req["parser"], enable_auto_tools=True, is_harmony=harmony, tokenizer=None if harmony else tokenizer)
            chat = self.Request(model="m", messages=[{"role": "user", "content": "."}], tools=req["tools"], tool_choice="auto")
            self.made[key] = cls, tokenizer, chat
        cls, tokenizer, chat = self.made[key]
        return cls(tokenizer, chat.tools), tokenizer, chat

    def known(self, raw):
        return raw

    def stream(self, req, tools):
        p, tokenizer, chat = self.parser(req)
        calls, text = {}, ""
        for i, piece in enumerate(req["pieces"]):
            ids = tokenizer.encode(piece, add_special_tokens=False)
            d = p.parse_delta(piece, ids, chat, [], finished=i == len(req["pieces"]) - 1)
            text += d and d.content or ""
            for c in d and d.tool_calls or ():
                call = calls.setdefault(c.index, [None, ""])
                if c.function.name:
                    call[0] = c.function.name
                call[1] += c.function.arguments or ""
        return {"calls": [calls[k] for k in sorted(calls)], "text": text}

    def whole(self, req, tools):
        p, tokenizer, chat = self.parser(req)
        text = "".join(req["pieces"])
        _, content, calls = p.parse(text, chat, enable_auto_tools=True, model_output_token_ids=tokenizer.encode(text, add_special_tokens=False))
        return {"calls": [[c.name, c.arguments] for c in calls or ()], "text": content or ""}


def answer(judge, req):
    tools, out = judge.known(req["tools"]), {}
    for key, read in ("stream", judge.stream), ("whole", judge.whole):
        try:
            out[key] = read(req, tools)
        except Exception as e:  # the judge reports, the test decides
            out[key] = {"error": f"{type(e).__name__}: {e}"[:300]}
    return out


def main():
    judges = {"sglang": SGLang, "vllm": VLLM}
    if len(sys.argv) != 2 or sys.argv[1] not in judges:
        sys.exit(__doc__)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the parsers print must not mix with the answers
    j = judges[sys.argv[1]]()
    for line in sys.stdin:
        if line.strip():
            out.write(json.dumps(answer(j, json.loads(line))) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
