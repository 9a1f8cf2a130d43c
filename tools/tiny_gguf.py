#!/usr/bin/env python3
"""Write a tiny Qwen3 with random weights as a GGUF file, for llama.cpp.

usage: tiny_gguf.py DIRECTORY FILE.gguf      (run by the Python of .venv/gguf)

DIRECTORY is that of tiny_qwen3.py: configuration, tokenizer and chat template come
from there, the weights from a fixed seed.
"""

import json
import pathlib
import sys

import gguf
import numpy as np

SPREAD = 0.02  # standard deviation of the weights, as Qwen3 is initialised


def vocabulary(directory, size):
    """The tokens by id, their types and the merges."""
    file = json.loads((directory / "tokenizer.json").read_text())
    tokens = {id: token for token, id in file["model"]["vocab"].items()}
    types = {id: gguf.TokenType.NORMAL for id in tokens}
    for added in file["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    for id in range(size):
        tokens.setdefault(id, f"[PAD{id}]")
        types.setdefault(id, gguf.TokenType.UNUSED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    return [tokens[id] for id in range(size)], [types[id] for id in range(size)], merges


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    directory = pathlib.Path(sys.argv[1])
    config = json.loads((directory / "config.json").read_text())
    template = json.loads((directory / "tokenizer_config.json").read_text())["chat_template"]
    width, inner, layers, head = (config[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"))
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]

    w = gguf.GGUFWriter(sys.argv[2], "qwen3")
    w.add_name("tiny random Qwen3")
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(width)
    w.add_feed_forward_length(inner)
    w.add_block_count(layers)
    w.add_head_count(heads)
    w.add_head_count_kv(shared)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32)

    tokens, types, merges = vocabulary(directory, config["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(config["bos_token_id"])
    w.add_eos_token_id(config["eos_token_id"])
    w.add_pad_token_id(config["bos_token_id"])
    w.add_add_bos_token(False)
    w.add_chat_template(template)

    rng = np.random.default_rng(0)
    random = lambda *shape: rng.normal(0, SPREAD, shape).astype(np.float32)
    ones = lambda n: np.ones(n, np.float32)
    w.add_tensor("token_embd.weight", random(config["vocab_size"], width).astype(np.float16))
    w.add_tensor("output_norm.weight", ones(width))
    for i in range(layers):
        for name, tensor in {
            "attn_norm": ones(width), "ffn_norm": ones(width), "attn_q_norm": ones(head), "attn_k_norm": ones(head),
            "attn_q": random(heads * head, width), "attn_k": random(shared * head, width), "attn_v": random(shared * head, width),
            "attn_output": random(width, heads * head),
            "ffn_gate": random(inner, width), "ffn_up": random(inner, width), "ffn_down": random(width, inner),
        }.items():
            w.add_tensor(f"blk.{i}.{name}.weight", tensor)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
