#!/usr/bin/env python3
"""Turn a GGUF file into a plain directory of bfloat16 weights.

usage: smollm2.py FILE.gguf DIRECTORY      (run by the Python of .venv/vllm)

The engines on CPU cannot load a GGUF file, and transformers will not save a
model that it has loaded from one, so the weights are dequantised by transformers
and written here as one safetensors file beside config.json and the tokenizer.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    source, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)

    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(target)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = [type(model).__name__]
    config["torch_dtype"] = config["dtype"] = "bfloat16"
    (target / "config.json").write_text(json.dumps(config, indent=1, default=str) + "\n")

    weights = {name: w.to(torch.bfloat16).contiguous() for name, w in model.state_dict().items()}
    if config.get("tie_word_embeddings"):
        weights.pop("lm_head.weight", None)  # the same storage as the embedding
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
