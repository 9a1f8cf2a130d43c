#!/usr/bin/env python3
"""Measure other engines' token masks on the schemas and tokens that it is given.

  peers.py TOKENIZER_JSON [--engines xgrammar,llguidance] [--limit SECONDS] < work.jsonl > reports.json

"sidecar bench grammar --peers" writes the work, and reads the reports, which
have the keys of its own. The first line of work is {"end": id, "size": n};
every other is {"file": ..., "schema": text, "tests": [{"valid": ..., "ids": [...]}]}.

What is done is the same as for us: compile_us is from the schema's text to the
first mask; mask_us the masks, written to a buffer, before every token of the
first valid instance and at its end, over a freshly compiled grammar; an
instance is accepted if every token may come and then the end. Caches between
schemas are off. All on one thread; the calls are made from Python, which costs
xgrammar some 0.5 µs and llguidance some 5 µs each. A schema may take --limit
seconds with its instances, in a process that is killed then.
"""
import argparse, json, multiprocessing, os, sys, time

from grammar_judge import byte_alphabet, stand_ins


class XGrammar:
    strict = True

    def __init__(self, vocabulary):
        stand_ins()
        import xgrammar

        self.xg, self.end = xgrammar, vocabulary.end
        info = xgrammar.TokenizerInfo(
            vocabulary.spellings, xgrammar.VocabType.BYTE_LEVEL, vocab_size=vocabulary.size, stop_token_ids=[vocabulary.end]
        )
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bitmask = xgrammar.allocate_token_bitmask(1, vocabulary.size)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, strict_mode=self.strict)

    def start(self, grammar):
        self.matcher = self.xg.GrammarMatcher(grammar)

    def mask(self):
        self.matcher.fill_next_token_bitmask(self.bitmask)

    def take(self, token):
        return self.matcher.accept_token(token)

    def may_end(self):
        return self.matcher.accept_token(self.end)


class XGrammarLoose(XGrammar):
    strict = False


class LLGuidance:
    def __init__(self, vocabulary):
        import llguidance.numpy
        from llguidance import LLMatcher, LLTokenizer

        self.np, self.Matcher = llguidance.numpy, LLMatcher
        self.tokenizer = LLTokenizer(vocabulary.text, n_vocab=vocabulary.size, eos_token=vocabulary.end)
        self.bitmask = llguidance.numpy.allocate_token_bitmask(1, vocabulary.size)

    def compile(self, schema):
        m = self.Matcher(self.tokenizer, self.Matcher.grammar_from_json_schema(schema), log_level=0)
        if m.is_error():
            raise ValueError(m.get_error())
        return m

    def start(self, grammar):
        self.matcher = grammar.deep_copy()

    def mask(self):
        self.np.fill_next_token_bitmask(self.matcher, self.bitmask, 0)

    def take(self, token):
        return self.matcher.try_consume_tokens([token]) == 1

    def may_end(self):
        return self.matcher.is_accepting()


class OutlinesCore:
    def __init__(self, vocabulary):
        import numpy
        import outlines_core
        from outlines_core.json_schema import build_regex_from_schema

        self.oc, self.regex = outlines_core, build_regex_from_schema
        alphabet, tokens = byte_alphabet(), {}
        for i, s in enumerate(vocabulary.spellings):
            if s and i not in vocabulary.added:
                tokens.setdefault(bytes(alphabet[c] for c in s), []).append(i)
        self.vocabulary = outlines_core.Vocabulary(vocabulary.end, tokens)
        self.bitmask = numpy.zeros((vocabulary.size + 31) // 32, numpy.int32)

    def compile(self, schema):
        return self.oc.Index(self.regex(schema), self.vocabulary)

    def start(self, grammar):
        self.guide = self.oc.Guide(grammar)

    def mask(self):
        self.guide.write_mask_into(self.bitmask.ctypes.data, self.bitmask.size, 4)

    def take(self, token):
        if token not in self.guide.get_tokens():
            return False
        self.guide.advance(token, return_tokens=False)
        return True

    def may_end(self):
        return self.guide.is_finished()


ENGINES = {"xgrammar": XGrammar, "xgrammar-loose": XGrammarLoose, "llguidance": LLGuidance, "outlines-core": OutlinesCore}


class Vocabulary:
    def __init__(self, path, end, size):
        self.text = open(path, encoding="utf-8").read()
        file = json.loads(self.text)
        self.end, self.size = end, size
        self.spellings, self.added = [""] * size, set()
        for spelling, i in file["model"]["vocab"].items():
            self.spellings[i] = spelling
        for a in file["added_tokens"]:
            self.spellings[a["id"]] = a["content"]
            self.added.add(a["id"])


def clock(times, call):
    begin = time.perf_counter()
    call()
    times.append(time.perf_counter() - begin)


def judge(engine, schema, tests):
    begin = time.perf_counter()
    grammar = engine.compile(schema)
    engine.start(grammar)
    engine.mask()
    out = {"compile": time.perf_counter() - begin, "masks": [], "warm": [], "verdicts": []}

    def walk(ids, times):
        engine.start(grammar)
        for i in ids:
            if times is not None:
                clock(times, engine.mask)
            if not engine.take(i):
                return False
        if times is not None:
            clock(times, engine.mask)
        return bool(engine.may_end())

    first = next((t for t in tests if t["valid"]), tests[0] if tests else None)
    if first:
        walk(first["ids"], out["masks"])
        walk(first["ids"], out["warm"])
    out["verdicts"] = [walk(t["ids"], None) for t in tests]
    return out


def child(pipe, name, vocabulary):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # engines warn about what they drop
    engine = ENGINES[name](vocabulary)
    pipe.send("ready")
    while True:
        schema, tests = pipe.recv()
        try:
            pipe.send(judge(engine, schema, tests))
        except BaseException as x:  # whatever an engine throws is its refusal
            pipe.send(f"{type(x).__name__}: {str(x)[:200]}")


def run(name, vocabulary, work, limit):
    def spawn():
        ours, theirs = multiprocessing.Pipe()
        p = multiprocessing.Process(target=child, args=(theirs, name, vocabulary), daemon=True)
        p.start()
        theirs.close()
        ours.recv()
        return ours, p

    pipe, process = spawn()
    for w in work:
        pipe.send((w["schema"], w["tests"]))
        try:
            got = pipe.recv() if pipe.poll(limit) else f"more than {limit} s"
        except EOFError:
            got = "crash"
        if got == "crash" or isinstance(got, str) and got.startswith("more than"):
            process.kill()
            process.join()
            pipe, process = spawn()
        yield w, got
    process.kill()
    process.join()


def spread(seconds):
    us = sorted(1e6 * s for s in seconds)
    if not us:
        return dict.fromkeys(("avg", "p50", "p90", "p99", "max"), 0)
    at = lambda q: us[min(len(us) - 1, len(us) * q // 100)]
    return {"avg": sum(us) / len(us), "p50": at(50), "p90": at(90), "p99": at(99), "max": us[-1]}


def report(results):
    r = {
        "schemas": 0, "compiled": 0, "refused": [], "schemas_right": 0,
        "valid": {"accepted": 0, "rejected": 0}, "invalid": {"rejected": 0, "accepted": 0}, "wrong": [],
    }  # fmt: skip
    compile_s, masks, warm = [], [], []
    for w, got in results:
        r["schemas"] += 1
        if isinstance(got, str):
            r["refused"].append({"file": w["file"], "path": "", "keyword": "", "reason": got})
            continue
        r["compiled"] += 1
        compile_s.append(got["compile"])
        masks += got["masks"]
        warm += got["warm"]
        wrong = [{"file": w["file"], "test": i, "valid": t["valid"]} for i, t in enumerate(w["tests"]) if t["valid"] != got["verdicts"][i]]
        r["schemas_right"] += not wrong
        r["wrong"] += wrong
        for t, accepted in zip(w["tests"], got["verdicts"]):
            r["valid" if t["valid"] else "invalid"]["accepted" if accepted else "rejected"] += 1
    r |= {"compile_us": spread(compile_s), "mask_us": spread(masks), "masks": len(masks), "warm_mask_us": {"p50": spread(warm)["p50"]}}
    return r


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tokenizer")
    p.add_argument("--engines", default=os.environ.get("SIDECAR_PEERS", "xgrammar,llguidance,outlines-core"))
    p.add_argument("--limit", type=float, default=float(os.environ.get("SIDECAR_PEERS_LIMIT", "20")))
    a = p.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    head = json.loads(sys.stdin.readline())
    work = [json.loads(line) for line in sys.stdin]
    vocabulary = Vocabulary(a.tokenizer, head["end"], head["size"])
    # Engines write warnings to standard output too.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reports = {}
    for name in a.engines.split(","):
        begin = time.time()
        reports[name] = report(run(name, vocabulary, work, a.limit))
        print(f"peers: {name} took {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
    json.dump(reports, out)
    out.close()


if __name__ == "__main__":
    main()
