"""Reference tokenizers for the tests of models/tokenizer.

    tokenizer-golden.py judge                 answers JSON lines on standard input
    tokenizer-golden.py golden VOCAB FILE     fills in the ids of FILE (testdata/NAME.golden.json) by VOCAB,
                                              a tokenizer.json or ENCODING.tiktoken

Needs tools/requirements-tokenizers.txt. Requests of the judge, one a line; the
answer is one line, {"error": …} if it failed:

    {"op": "load", "name": N, "json": PATH}                        Hugging Face tokenizers
    {"op": "load", "name": N, "ranks": PATH, "encoding": "cl100k_base"}   tiktoken
    {"op": "encode", "name": N, "ordinary": bool, "texts": […]}  -> {"ids": [[…], …]}
    {"op": "nfc", "texts": […]}                                  -> {"texts": […]}
    {"op": "class", "lib": "hf"|"tiktoken", "class": "\\p{L}"}   -> {"ranges": [[first, last], …]}
"""

import json
import os
import sys

SURROGATES = range(0xD800, 0xE000)


class HuggingFace:
    def __init__(self, path):
        from tokenizers import Tokenizer

        with open(path, encoding="utf-8") as f:
            spec = json.load(f)
        self.full = Tokenizer.from_str(json.dumps(spec))
        # Specials off: the same tokenizer without added tokens.
        spec["added_tokens"] = []
        spec["post_processor"] = None
        self.plain = Tokenizer.from_str(json.dumps(spec))

    def encode(self, texts, ordinary):
        tok = self.plain if ordinary else self.full
        return [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]


class TikToken:
    def __init__(self, path, encoding):
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe
        from tiktoken_ext import openai_public

        # The encoding as tiktoken has it, but for where the ranks come from.
        openai_public.load_tiktoken_bpe = lambda url, expected_hash=None: load_tiktoken_bpe(path)
        self.tok = tiktoken.Encoding(**openai_public.ENCODING_CONSTRUCTORS[encoding]())

    def encode(self, texts, ordinary):
        if ordinary:
            return [self.tok.encode_ordinary(t) for t in texts]
        return [self.tok.encode(t, allowed_special="all") for t in texts]


def members(lib, cls):
    """The code points of a regex class, as ranges."""
    chars = [chr(c) for c in range(0x110000) if c not in SURROGATES]
    if lib == "hf":
        from tokenizers import Regex, pre_tokenizers

        split = pre_tokenizers.Split(Regex(f"[{cls}]"), "removed", invert=True)  # keeps the matches only
        found = [ord(s) for i in range(0, len(chars), 4096) for s, _ in split.pre_tokenize_str("".join(chars[i : i + 4096]))]
    else:
        import tiktoken

        # With no merges the ids are the bytes of what matches.
        tok = tiktoken.Encoding("bytes", pat_str=f"[{cls}]", mergeable_ranks={bytes([b]): b for b in range(256)}, special_tokens={})
        found = [ord(s) for i in range(0, len(chars), 4096) for s in bytes(tok.encode_ordinary("".join(chars[i : i + 4096]))).decode()]
    ranges = []
    for c in found:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def answer(q, loaded):
    match q["op"]:
        case "load":
            loaded[q["name"]] = HuggingFace(q["json"]) if q.get("json") else TikToken(q["ranks"], q["encoding"])
            return {}
        case "encode":
            return {"ids": loaded[q["name"]].encode(q["texts"], q.get("ordinary", False))}
        case "nfc":
            from tokenizers import normalizers

            n = normalizers.NFC()
            return {"texts": [n.normalize_str(t) for t in q["texts"]]}
        case "class":
            return {"ranges": members(q["lib"], q["class"])}
    raise ValueError(f"unknown op {q['op']!r}")


def judge():
    loaded = {}
    for line in sys.stdin:
        try:
            a = answer(json.loads(line), loaded)
        except Exception as e:  # the caller decides what a failure means
            a = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(a), flush=True)


def golden(vocab, path):
    with open(path, encoding="utf-8") as f:
        cases = json.load(f)
    stem, ranks = os.path.basename(vocab), vocab.endswith(".tiktoken")
    tok = TikToken(vocab, stem.removesuffix(".tiktoken")) if ranks else HuggingFace(vocab)
    for c in cases:
        (c["ids"],) = tok.encode([c["text"]], False)
        (c["ordinary"],) = tok.encode([c["text"]], True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["judge"]:
        judge()
    elif len(sys.argv) == 4 and sys.argv[1] == "golden":
        golden(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
