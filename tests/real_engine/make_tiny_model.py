# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a tiny Llama checkpoint with fixed random weights and its tokenizer.

Usage: make_tiny_model.py DIRECTORY

Greedy output depends on the prompt and is the same in every run, so a wrong or
half-transferred KV cache shows as a changed answer. About 0.6 MB on disk.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB, HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 512, 64, 128, 2, 4, 2, 16


def write_tokenizer(target: Path) -> None:
    """Train a small byte-level BPE (smaller than VOCAB; the model may emit unused ids)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    text = [
        "hello world the quick brown fox jumps over the lazy dog",
        "prefill and decode are separate services",
        "router bootstrap transfer failed queue inflight",
    ]
    tokenizer.train_from_iterator(text * 20, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = (
        "{% for m in messages %}{{'<|'+m['role']+'|>'+m['content']}}{% endfor %}"
        "{% if add_generation_prompt %}{{'<|assistant|>'}}{% endif %}"
    )
    fast.model_max_length = 2048
    fast.save_pretrained(target)


def write_weights(target: Path) -> None:
    generator = torch.Generator().manual_seed(7)

    def rand(*shape: int, std: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * std

    weights = {
        "model.embed_tokens.weight": rand(VOCAB, HIDDEN, std=1.0),
        "lm_head.weight": rand(VOCAB, HIDDEN, std=0.5),
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for layer in range(LAYERS):
        p = f"model.layers.{layer}."
        weights |= {
            p + "self_attn.q_proj.weight": rand(HEADS * HEAD_DIM, HIDDEN, std=0.4),
            p + "self_attn.k_proj.weight": rand(KV_HEADS * HEAD_DIM, HIDDEN, std=0.4),
            p + "self_attn.v_proj.weight": rand(KV_HEADS * HEAD_DIM, HIDDEN, std=0.4),
            p + "self_attn.o_proj.weight": rand(HIDDEN, HEADS * HEAD_DIM, std=0.4),
            p + "mlp.gate_proj.weight": rand(FFN, HIDDEN, std=0.3),
            p + "mlp.up_proj.weight": rand(FFN, HIDDEN, std=0.3),
            p + "mlp.down_proj.weight": rand(HIDDEN, FFN, std=0.3),
            p + "input_layernorm.weight": torch.ones(HIDDEN),
            p + "post_attention_layernorm.weight": torch.ones(HIDDEN),
        }
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_tokenizer(target)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    (target / "config.json").write_text(json.dumps(config, indent=1))
    (target / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    write_weights(target)


if __name__ == "__main__":
    main()
