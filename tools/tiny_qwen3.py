#!/usr/bin/env python3
"""Write the configuration of a tiny Qwen3 model with random weights.

usage: tiny_qwen3.py DIRECTORY

Two layers of width 128 under Qwen3's full vocabulary: an engine that is told to
make dummy weights serves hundreds of tokens a second with it on one core, and
the tokenizer, the chat template and all that hangs on them are the real ones.
What it writes is noise, which is what a test of constraints wants.
"""

import json
import pathlib
import sys

WIDTH, LAYERS, HEAD = 128, 2, 64
END_OF_TEXT, END_OF_TURN = 151643, 151645  # <|endoftext|>, <|im_end|>

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,  # as published: 151,669 tokens and padding
    "hidden_size": WIDTH,
    "intermediate_size": 3 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": WIDTH // HEAD,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": END_OF_TEXT,
    "eos_token_id": END_OF_TURN,
    # Without a version transformers takes the tokenizer for an old Mistral's.
    "transformers_version": "5.19.0",
}
GENERATION = {
    "bos_token_id": END_OF_TEXT,
    "eos_token_id": [END_OF_TURN, END_OF_TEXT],
    "pad_token_id": END_OF_TEXT,
    "do_sample": True,
    "temperature": 1.0,
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    directory = pathlib.Path(sys.argv[1])
    for name, value in (("config.json", CONFIG), ("generation_config.json", GENERATION)):
        (directory / name).write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
