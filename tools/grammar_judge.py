#!/usr/bin/env python3
"""Judge grammars with the real xgrammar and llguidance.

  grammar_judge.py TOKENIZER_JSON < requests.jsonl > answers.jsonl

One JSON object a line in, one a line out, in order, flushed. A request:

  {"id": ..., "engine": "xgrammar",   or "llguidance"
   "tag": {"type": "structural_tag", "format": ...},     what to compile: one of
   "ebnf": "...", "lark": "...", "regex": "...", "json_schema": {...},
   "model": "kimi", "model_tools": [...], "model_choice": "auto",   the tag that xgrammar builds in
   "accept": ["text", ...],        whole outputs to judge
   "walks": 3, "max_tokens": 400, "seed": 1,
   "prefix": "text",               what every walk starts with, after the mask allowed it
   "wander": 0.5,                  how far a walk strays, see walk()
   "probe": 200,                   how many allowed tokens a step tries, of xgrammar
   "after": {"type": ...}}         a tag that was compiled before, by the same compiler

An answer:

  {"id": ..., "ok": true, "compile_ms": 1.2,
   "accept": [true, ...],          the grammar takes the text and may end there
   "walks": [{"bytes": "base64", "done": true, "tokens": 17}, ...]}
  {"id": ..., "ok": false, "error": "what the engine said"}

compile_ms is processor time, which a busy machine stretches less, until the
grammar is ready; of llguidance, which works as it goes, until the first mask.
xgrammar compiles on one thread with its cache on, as vLLM and SGLang have it,
and with nothing in the cache unless cache is true or after is given.
torch and transformers are not needed: see stand_ins().
"""
import base64, json, os, random, resource, sys, time, types

# A grammar that takes more than this is refused, or the process dies of it.
MEMORY = 8 << 30  # bytes of address space


def stand_ins():
    """xgrammar imports torch and transformers for a few names only."""
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
    sys.modules.setdefault("torch", torch)
    sys.modules.setdefault("transformers", hf)


def byte_alphabet():
    """The byte-level BPE alphabet: character -> byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out = {chr(b): b for b in plain}
    out.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in plain)})
    return out


class Vocabulary:
    def __init__(self, path):
        from tokenizers import Tokenizer

        t = Tokenizer.from_file(path)
        with open(path) as f:
            self.text = f.read()
        self.size = t.get_vocab_size()
        self.spellings = [t.id_to_token(i) or "" for i in range(self.size)]
        added = t.get_added_tokens_decoder()
        alphabet = byte_alphabet()
        self.bytes = [
            s.encode() if i in added else bytes(alphabet[c] for c in s) for i, s in enumerate(self.spellings)
        ]
        self.eos = t.token_to_id("<|im_end|>")
        if self.eos is None:
            self.eos = self.size - 1


class XGrammar:
    """The constraint engine of vLLM and SGLang."""

    def __init__(self, v):
        stand_ins()
        import numpy as np
        import xgrammar as xg

        self.np, self.xg, self.v = np, xg, v
        info = xg.TokenizerInfo(v.spellings, xg.VocabType.BYTE_LEVEL, vocab_size=v.size, stop_token_ids=[v.eos])
        self.fresh = lambda: xg.GrammarCompiler(info, max_threads=1, cache_enabled=True)
        self.cached = self.fresh()
        self.mask = xg.allocate_token_bitmask(1, v.size)

    def compiler(self, req):
        c = self.cached if req.get("cache") else self.fresh()
        if "after" in req:
            c.compile_structural_tag(json.dumps(req["after"]))
        return c

    def compile(self, req, c):
        if "model" in req:
            return c.compile_structural_tag(
                self.xg.get_model_structural_tag(
                    req["model"], req["model_tools"], req["model_choice"], reasoning="disabled"
                )
            )
        if "tag" in req:
            return c.compile_structural_tag(json.dumps(req["tag"]))
        if "ebnf" in req:
            return c.compile_grammar(req["ebnf"])
        if "regex" in req:
            return c.compile_regex(req["regex"])
        if "lark" in req:
            return c.compile_lark(req["lark"])
        return c.compile_json_schema(json.dumps(req["json_schema"]))

    def start(self, g):
        return self.xg.GrammarMatcher(g, max_rollback_tokens=1)

    def takes(self, g, text):
        m = self.start(g)
        return bool(m.accept_string(text) and m.is_completed())

    def begin(self, m, text):
        return m.accept_string(text)

    def allowed(self, m):
        self.mask[:] = -1
        m.fill_next_token_bitmask(self.mask)
        bits = self.np.unpackbits(self.mask.view(self.np.uint8).reshape(-1), bitorder="little")[: self.v.size]
        return self.np.nonzero(bits)[0]

    def take(self, m, token):
        return m.accept_token(token)

    def refused(self, m, tokens):
        """The first of tokens that the matcher doesn't take; None if there is none."""
        for t in tokens:
            if t == self.v.eos:
                continue
            if not m.accept_token(int(t)):
                return int(t)
            m.rollback(1)


class LLGuidance:
    """The constraint engine of vLLM's and SGLang's other backend."""

    def __init__(self, v):
        import numpy as np
        from llguidance import LLMatcher, LLTokenizer

        self.np, self.v, self.Matcher = np, v, LLMatcher
        self.tokenizer = LLTokenizer(v.text, eos_token=v.eos)

    def compiler(self, req):
        return None

    def compile(self, req, _):
        if "lark" in req:
            g = self.Matcher.grammar_from_lark(req["lark"])
        elif "regex" in req:
            g = self.Matcher.grammar_from_regex(req["regex"])
        elif "json_schema" in req:
            g = self.Matcher.grammar_from_json_schema(json.dumps(req["json_schema"]))
        elif "structures" in req.get("tag", {}):
            from llguidance import StructTag

            tag = req["tag"]
            begins = lambda s: next(t for t in tag["triggers"] if s["begin"].startswith(t))
            g = StructTag.to_grammar(
                [StructTag(trigger=begins(s), begin=s["begin"], grammar=s["schema"], end=s["end"]) for s in tag["structures"]],
                assume_special=False,
            )
        else:
            raise RuntimeError("llguidance takes no tag with a format, and no ebnf")
        m = self.start(g)
        self.allowed(m)
        if m.is_error():
            raise RuntimeError(m.get_error())
        return g

    def start(self, g):
        return self.Matcher(self.tokenizer, g, log_level=0)

    def takes(self, g, text):
        m = self.start(g)
        ids = self.tokenizer.tokenize_bytes(text.encode())
        return m.try_consume_tokens(ids) == len(ids) and m.is_accepting()

    def begin(self, m, text):
        ids = self.tokenizer.tokenize_bytes(text.encode())
        return m.try_consume_tokens(ids) == len(ids)

    def allowed(self, m):
        bits = self.np.frombuffer(m.compute_bitmask(), self.np.uint8)
        bits = self.np.unpackbits(bits, bitorder="little")[: self.v.size]
        return self.np.nonzero(bits)[0]

    def take(self, m, token):
        return m.consume_token(token)


class Judge:
    def __init__(self, path):
        import numpy as np

        self.v = Vocabulary(path)
        self.engines = {}
        # What a walk prefers, so that it ends in reasonable time and visits
        # separators, quotes and digits.
        self.short = np.array([len(b) <= 2 for b in self.v.bytes])
        self.closing = np.array([len(b) <= 3 and b[:1] in (b'"', b"}", b"]", b",", b":") for b in self.v.bytes])

    def engine(self, name):
        if name not in self.engines:
            self.engines[name] = {"xgrammar": XGrammar, "llguidance": LLGuidance}[name](self.v)
        return self.engines[name]

    def walk(self, e, g, rng, prefix, max_tokens, wander, probe):
        """One random output. Each step takes the end if it is allowed and a coin
        says so; else, with probability wander, any allowed token, and otherwise
        one among the allowed tokens of one or two bytes, or among those that begin
        with a quote, bracket or separator, when there are some."""
        m = e.start(g)
        out = bytearray()
        if prefix:
            if not e.begin(m, prefix):
                return {"error": "prefix refused"}
            out += prefix.encode()
        for n in range(max_tokens):
            ids = e.allowed(m)
            if len(ids) == 0:
                return {"bytes": base64.b64encode(bytes(out)).decode(), "done": False, "tokens": n, "stuck": True}
            if probe:
                few = ids if len(ids) <= probe else ids[[rng.randrange(len(ids)) for _ in range(probe)]]
                if (t := e.refused(m, few)) is not None:
                    return {
                        "bytes": base64.b64encode(bytes(out)).decode(),
                        "error": "mask allows token %d %r, matcher refuses it" % (t, self.v.bytes[t]),
                    }
            if self.v.eos in ids and (len(ids) == 1 or rng.random() < 0.5):
                return {"bytes": base64.b64encode(bytes(out)).decode(), "done": True, "tokens": n}
            if rng.random() >= wander:
                few = ids[self.short[ids]]
                close = ids[self.closing[ids]]
                if len(close) and rng.random() < 0.35:
                    few = close
                if len(few):
                    ids = few
            i = int(ids[rng.randrange(len(ids))])
            if i == self.v.eos:
                return {"bytes": base64.b64encode(bytes(out)).decode(), "done": True, "tokens": n}
            if not e.take(m, i):
                return {"error": "mask allowed token %d, matcher refused it" % i}
            out += self.v.bytes[i]
        return {"bytes": base64.b64encode(bytes(out)).decode(), "done": False, "tokens": max_tokens}

    def answer(self, req):
        a = {"id": req.get("id")}
        e = self.engine(req.get("engine", "xgrammar"))
        try:
            c = e.compiler(req)
            t = time.process_time()
            g = e.compile(req, c)
        except Exception as x:  # RuntimeError for all kinds
            return a | {"ok": False, "error": str(x)[:600]}
        a |= {"ok": True, "compile_ms": round(1e3 * (time.process_time() - t), 3)}
        if "accept" in req:
            a["accept"] = [e.takes(g, s) for s in req["accept"]]
        if req.get("walks"):
            rng = random.Random(req.get("seed", 1))
            a["walks"] = [
                self.walk(
                    e,
                    g,
                    rng,
                    req.get("prefix", ""),
                    req.get("max_tokens", 400),
                    req.get("wander", 0.5),
                    req.get("probe", 0),
                )
                for _ in range(req["walks"])
            ]
        return a


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what xgrammar prints must not mix with the answers
    j = Judge(sys.argv[1])
    for line in sys.stdin:
        if line.strip():
            out.write(json.dumps(j.answer(json.loads(line))) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
