"""Writes the logs that tests/watch.rs reads, by the programs that write them: transformers 5.23 (`multimodal`: 5.24), TRL 1.16, tensorboard 2.21
and wandb 0.31, on a model of a few thousand parameters. Run in a folder of its own: python make.py OUT"""

import json, os, shutil, sys
from pathlib import Path

os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
here = Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent.parent / "assets" / "watch"))
out = Path(sys.argv[1]).resolve()
out.mkdir(parents=True, exist_ok=True)

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from llmtui_log import LlmtuiLog

vocab = {f"t{i}": i for i in range(64)}
tok = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(vocab, unk_token="t0")), pad_token="t0", eos_token="t1", unk_token="t0"
)


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    )


rows = [[(7 * i + j) % 60 + 2 for j in range(24)] for i in range(64)]
data = Dataset.from_dict({"input_ids": rows, "labels": rows, "attention_mask": [[1] * 24] * 64})
common = dict(per_device_train_batch_size=4, use_cpu=True, seed=7, disable_tqdm=True, logging_steps=5, learning_rate=5e-3)


def trim(folder):
    """Only what is read; weights and optimizers are not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        keep = path.name in ("trainer_state.json", "llmtui.jsonl") or "tfevents" in path.name or path.suffix == ".wandb"
        if path.is_file() and not keep:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def hugging_face():
    args = TrainingArguments(
        str(out / "hf"), max_steps=60, save_steps=20, eval_steps=20, eval_strategy="steps", report_to="tensorboard",
        warmup_steps=6, lr_scheduler_type="cosine", **common,
    )
    trainer = Trainer(model(), args, train_dataset=data, eval_dataset=data.select(range(8)), callbacks=[LlmtuiLog()])
    trainer.train()
    trainer.save_state()
    trim(out / "hf")


def multimodal():
    """A model whose vocabulary is that of its text configuration, and a warm-up that is a share of all steps."""
    from transformers import AutoModelForCausalLM, Gemma3Config

    text = dict(
        vocab_size=100, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8
    )
    vision = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    ids = dict(image_token_index=98, boi_token_index=96, eoi_token_index=97)
    gemma = AutoModelForCausalLM.from_config(Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, **ids))
    args = TrainingArguments(str(out / "gemma"), max_steps=10, warmup_steps=0.25, report_to="none", save_strategy="no", **common)
    tokens = data.map(lambda row: {"token_type_ids": [0] * len(row["input_ids"])})
    Trainer(gemma, args, train_dataset=tokens, callbacks=[LlmtuiLog()]).train()


def trl():
    from trl import DPOConfig, DPOTrainer

    words = lambda ids: " ".join(f"t{i}" for i in ids)
    tok.chat_template = None
    pairs = Dataset.from_list([{"prompt": words(r[:8]), "chosen": " " + words(r[8:16]), "rejected": " " + words(r[16:])} for r in rows])
    args = DPOConfig(str(out / "trl"), max_steps=20, save_steps=10, report_to="none", bf16=False, max_length=24, **common)
    trainer = DPOTrainer(model(), ref_model=model(), args=args, train_dataset=pairs, processing_class=tok)
    trainer.train()
    trim(out / "trl")


def tensorboard():
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(out / "tb"))
    writer.add_text("config", "a text that is no number", 0)
    for step in range(0, 100, 2):
        writer.add_scalar("Loss/train", 4.0 * 0.98**step, step)
        writer.add_scalar("Loss/val", 4.0 * 0.985**step, step)
        if step == 50:
            writer.add_scalar("odd", float("nan"), step)
    writer.add_histogram("weights", torch.zeros(8), 99)
    writer.close()


def curves():
    """Curves that were added together: each has a folder of its own, and the run's file has none."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(out / "curves"))
    for step in range(20):
        writer.add_scalars("loss", {"train": 3.0 - step * 0.125, "val": 3.25 - step * 0.125}, step)
    writer.close()


def wandb_offline():
    import wandb

    run = wandb.init(project="demo", dir=str(out), config={"learning_rate": 3e-4, "warmup_steps": 10, "max_steps": 160, "big": "x" * 40_000})
    for step in range(80):
        run.log({"train/loss": 5.0 * 0.99**step, "train/global_step": step * 2, "lr": 3e-4, "nested": {"a": step}})
        if step % 20 == 0:
            run.log({"eval/loss": 5.1 * 0.99**step, "train/global_step": step * 2})
    run.log({"train/loss": float("nan"), "train/global_step": 160})
    run.finish()
    kept = next((out / "wandb").glob("offline-run-*/*.wandb"))
    shutil.copy(kept, out / "offline.wandb")
    shutil.rmtree(out / "wandb")
    run_dir = out / "wandb" / "offline-run-20261123_000000-demo"
    run_dir.mkdir(parents=True)
    (out / "offline.wandb").rename(run_dir / "run-demo.wandb")


for make in (hugging_face, multimodal, trl, tensorboard, curves, wandb_offline):
    if len(sys.argv) < 3 or make.__name__ in sys.argv[2:]:
        make()
        print(make.__name__, "done")
