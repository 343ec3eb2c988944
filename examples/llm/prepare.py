"""Writes the configuration of a tiny Llama, its tokenizer and 100 sums to learn: prepare.py DIRECTORY."""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

SPECIAL = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}
WORDS = [*SPECIAL.values(), "plus", *map(str, range(19))]


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n")


def main(directory):
    model = directory / "model"
    model.mkdir(parents=True, exist_ok=True)
    write_json(
        model / "config.json",
        {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": len(WORDS),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            **{f"{name}_token_id": WORDS.index(word) for name, word in SPECIAL.items()},
            "fuse_rms_norm": False,  # the fused operator has no kernel for the CPU
        },
    )
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(model / "tokenizer.json"))
    write_json(
        model / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{name}_token": word for name, word in SPECIAL.items()},
        },
    )
    sums = [{"src": [f"{a} plus {b}"], "tgt": [str(a + b)]} for a in range(10) for b in range(10)]
    (directory / "sums.jsonl").write_text("".join(json.dumps(each) + "\n" for each in sums))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
