"""Makes a small tokenizer, and says which tokens TRL's SFTTrainer would learn of some rows, for crates/data/src/data/render/tests.rs.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers trl datasets tokenizers
    /tmp/oracle/bin/python tests/oracle/masks_oracle.py assets/templates tests/fixtures/chat

The rows are prepared by the trainer itself, with our templates from assets/templates: their `generation` blocks are the
ones that transformers knows.
"""

import json
import sys
import tempfile
from pathlib import Path

from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
]
CORPUS = [
    "The user asks the assistant a question, and the assistant answers the question.",
    "system user assistant model hello world the weather in the town is fine today",
    "one two three four five six seven eight nine ten",
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


CHATS = [
    [user("hello world"), assistant("hello")],
    [user("one?"), assistant(" two \n"), user("three naïve 東京?"), assistant("four 😀\n\nfive")],
    [user("a"), assistant(""), user("b"), assistant("\nc")],
]
TURNS = [
    dict(prompt=[user("hello")], completion=[assistant("world the town")]),
    dict(prompt=[user("a"), assistant("b"), user("c")], completion=[assistant("d")]),
]
TEXTS = [
    dict(prompt="the user asks", completion=" the assistant answers"),
    dict(prompt="hel", completion="lo world"),
    dict(prompt="one\n", completion="two<|endoftext|>"),
]
PLAIN = [dict(text="hello world"), dict(text="one two<|endoftext|>")]


def tokenizer(folder):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
    )
    made.train_from_iterator(CORPUS, trainer)
    made.save(str(folder / "tokenizer.json"), pretty=False)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def labels(tokens, rows, template=None, **config):
    tokens.chat_template = template
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=len(tokens)))
    with tempfile.TemporaryDirectory() as out:
        settings = SFTConfig(output_dir=out, max_length=None, report_to="none", use_cpu=True, bf16=False, **config)
        trainer = SFTTrainer(model=model, args=settings, train_dataset=Dataset.from_list(rows), processing_class=tokens)
        prepared = [dict(row) for row in trainer.train_dataset]
    return [
        dict(ids=row["input_ids"], supervised=[label != -100 for label in row["labels"]])
        for row in prepared
    ]


def main(templates, out):
    templates, out = Path(templates), Path(out)
    tokens = tokenizer(out)
    cases = []

    def add(template, kind, train_on, rows, **config):
        text = None if template is None else (templates / f"{template}.jinja").read_text()
        if template in ("llama3", "gemma", "gemma3", "mistral"):
            tokens.bos_token = {"llama3": "<|begin_of_text|>", "mistral": "<s>"}.get(template, "<bos>")
        tokens.eos_token = "</s>" if template == "mistral" else "<|endoftext|>"
        for row, result in zip(rows, labels(tokens, rows, text, **config), strict=True):
            cases.append(dict(template=template, kind=kind, train_on=train_on, row=row, **result))

    for template in ("chatml", "llama3", "qwen", "mistral", "gemma", "gemma3", "phi3"):
        chats = [dict(messages=messages) for messages in CHATS]
        add(template, "chat", "assistant", chats, assistant_only_loss=True)
        add(template, "chat", "all", chats[:1])
        add(template, "completion", "completion", TURNS)
        add(template, "completion", "assistant", TURNS, assistant_only_loss=True)
    add(None, "completion", "completion", TEXTS)
    add(None, "completion", "all", TEXTS[:1], completion_only_loss=False)
    add(None, "text", "all", PLAIN)
    (out / "masks.json").write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


main(*sys.argv[1:])
