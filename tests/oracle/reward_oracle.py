"""A tiny reward model of transformers with TRL's loss, and adapters of PEFT, for tests/oracle/reward.rs to compare with.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers==5.* trl==1.16.* peft safetensors
    /tmp/oracle/bin/python tests/oracle/reward_oracle.py tests/oracle

Writes three folders as their libraries save them: `reward` (LlamaForSequenceClassification, one label), `peft_lm` and
`peft_reward` (a base with a LoRA of PEFT beside it), and reward.safetensors with inputs, scores, losses, readings and
gradients. Losses come from TRL's own `RewardTrainer.compute_loss`. With a folder of ours as a second argument it opens that
folder with PEFT instead and prints logits of the ids that follow:

    python tests/oracle/reward_oracle.py --open runs/…/checkpoints/step-000100 1 2 3 4
"""

import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM,
                          LlamaForSequenceClassification)
from trl import RewardTrainer

torch.set_num_threads(1)
PAD, VOCAB, T, PAIRS = 0, 13, 10, 3
CONFIG = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
              num_key_value_heads=1, max_position_embeddings=T, rms_norm_eps=1e-5, tie_word_embeddings=False,
              bos_token_id=None, eos_token_id=1, initializer_range=0.15, pad_token_id=PAD)
MARGINS = [0.5, 0.0, 1.25]


def sides():
    """Chosen sequences, then rejected ones, of different lengths; pad ids stand inside texts too, and at the end of one."""
    draw = torch.Generator().manual_seed(5)
    lengths = [6, 10, 4, 9, 3, 7]
    texts = [torch.randint(0, VOCAB, (n,), generator=draw).tolist() for n in lengths]
    texts = [[t if t != PAD or i % 2 else 2 for i, t in enumerate(text)] for text in texts]
    for text in texts:
        text[-1] = text[-1] or 3
    texts[2][-1] = PAD
    texts[2][-2] = 5
    return texts


def padded(texts):
    ids, mask = torch.full((len(texts), T), PAD), torch.zeros((len(texts), T), dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
    return ids, mask


def trl_loss(model, inputs, coefficient):
    """TRL's own method, on as much of a trainer as it asks for."""
    metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    accelerator = SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x)
    trainer = SimpleNamespace(model=SimpleNamespace(training=False), args=SimpleNamespace(
        center_rewards_coefficient=coefficient), accelerator=accelerator, _metrics=metrics, _total_train_tokens=0, _tp_size=1)
    return RewardTrainer.compute_loss(trainer, model, dict(inputs)), metrics["eval"]


def main(folder):
    torch.manual_seed(3)
    model = LlamaForSequenceClassification(LlamaConfig(**CONFIG, num_labels=1)).eval()
    model.save_pretrained(folder / "reward")
    texts = sides()
    ids, mask = padded(texts)
    inputs = dict(input_ids=ids, attention_mask=mask)
    tensors = {"ids": ids.to(torch.uint32), "lengths": torch.tensor([len(t) for t in texts]).to(torch.uint32),
               "margins": torch.tensor(MARGINS), "scores": model(**inputs).logits[:, 0].detach()}
    metadata = {"pad": str(PAD)}
    for name, coefficient, margins in (("plain", None, False), ("full", 0.1, True)):
        model.zero_grad()
        batch = dict(inputs, margin=torch.tensor(MARGINS)) if margins else inputs
        loss, metrics = trl_loss(model, batch, coefficient)
        loss.backward()
        metadata[name] = json.dumps({"loss": loss.item(), "accuracy": float(metrics["accuracy"][0]),
                                     "margin": metrics["margin"][0]})
        for key, p in model.named_parameters():
            tensors[f"{name}.grad.{key}"] = p.grad.clone()
    for name, kind, task in (("peft_lm", LlamaForCausalLM, "CAUSAL_LM"),
                             ("peft_reward", LlamaForSequenceClassification, "SEQ_CLS")):
        base = kind(LlamaConfig(**CONFIG, num_labels=1)).eval()
        base.save_pretrained(folder / name)
        lora = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"], task_type=task,
                          use_rslora=name == "peft_lm")
        peft = get_peft_model(base, lora).eval()
        for key, p in peft.named_parameters():
            if "lora_" in key or "modules_to_save" in key:
                torch.nn.init.normal_(p, std=0.2)
        peft.save_pretrained(folder / name)
        (folder / name / "README.md").unlink(missing_ok=True)
        tensors[name] = peft(**inputs).logits.detach()
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "reward.safetensors", metadata)
    print(metadata)


def reopen(folder, ids):
    config = json.loads((folder / "config.json").read_text())
    scores = "ForSequenceClassification" in config["architectures"][0]
    kind = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    # Without the adapter beside it the base alone is opened.
    base = folder.parent / (folder.name + ".base")
    shutil.copytree(folder, base, ignore=shutil.ignore_patterns("adapter_*", "optimizer*"))
    model = PeftModel.from_pretrained(kind.from_pretrained(base), folder).eval()
    shutil.rmtree(base)
    logits = model(torch.tensor([ids])).logits
    print(json.dumps((logits if scores else logits[0, -1]).flatten().tolist()))


if __name__ == "__main__":
    if sys.argv[1] == "--open":
        reopen(Path(sys.argv[2]), [int(word) for word in sys.argv[3:]])
    else:
        main(Path(sys.argv[1]))
