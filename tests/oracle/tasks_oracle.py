"""Puts tasks of lm-evaluation-harness to a tiny random Llama: rows made up in the real sets' formats, log-likelihoods of
every choice, accuracies, and GSM8K's filters on stored answers.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install lm-eval==0.4.13 torch transformers tokenizers
    /tmp/oracle/bin/python tests/oracle/tasks_oracle.py tests/oracle/tasks

Writes model/ (config.json, model.safetensors, tokenizer.json), rows/*.jsonl and expected.json. Weights are drawn far wider
than a fresh model's, so that choices differ; the context of 160 tokens is shorter than some prompts.
"""

import json
import os
import random
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval
import torch
import transformers as tf
import yaml
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = Path(sys.argv[1]).absolute()
TASKS = Path(lm_eval.__file__).parent / "tasks"
WORDS = "the a red green small old cat dog bird tree river stone runs sleeps falls jumps under over near behind".split()
rng = random.Random(7)


def words(n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def sentence(n):
    return words(n).capitalize() + "."


def rows():
    for split, n in (("test", 14), ("train", 4)):
        yield "arc_easy", split, [
            dict(id=str(i), question=words(5 + i).capitalize() + "?",
                 choices=dict(text=[words(rng.randint(1, 5)) for _ in range(4)], label=labels), answerKey=rng.choice(labels))
            for i in range(n) for labels in [list("ABCD") if i % 3 else list("1234")]
        ]
    yield "hellaswag", "test", [
        dict(ind=i, activity_label=words(2).title(), ctx_a=sentence(4 + i) + ("[header] How to [title] " if i % 4 == 0 else ""),
             ctx_b=words(2), endings=[words(3) + (" [step] " if i % 3 == 0 else "  ") + sentence(3) for _ in range(4)],
             label=str(rng.randint(0, 3)))
        for i in range(12)
    ]
    yield "winogrande", "test", [
        dict(sentence=f"{words(5)} because the _ was {words(2)}.".capitalize(), option1=rng.choice(WORDS),
             option2=rng.choice(WORDS) + " ones", answer=rng.choice("12"))
        for i in range(12)
    ]
    # Some passages are longer than the context.
    yield "boolq", "test", [
        dict(passage=" ".join(sentence(8) for _ in range(1 + 5 * (i % 4))), question=words(5), label=rng.randint(0, 1), idx=i)
        for i in range(10)
    ]
    yield "lambada", "test", [dict(text=sentence(6) + " " + words(7) + " é") for i in range(6)] + [
        dict(text=words(9)) for i in range(6)
    ]
    for split, n in (("test", 8), ("dev", 6)):
        yield "mmlu", split, [
            dict(question=" " + words(4) + "?", subject="abstract_algebra", choices=[words(1) for _ in range(4)],
                 answer=rng.randint(0, 3))
            for i in range(n)
        ]
    yield "piqa", "test", [
        dict(goal=words(4), sol1=words(3), sol2=words(5), label=rng.randint(0, 1)) for i in range(10)
    ]
    yield "openbookqa", "test", [
        dict(question_stem=words(6), choices=dict(text=[words(2) for _ in range(4)], label=list("ABCD")),
             answerKey=rng.choice("ABCD"))
        for i in range(10)
    ]


def make_model(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder = OUT / "model"
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    torch.manual_seed(3)
    config = tf.LlamaConfig(
        vocab_size=len(fast), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=160, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1,
    )
    model = tf.LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Rounded, so that the file is small once compressed and still wide.
            parameter.copy_(torch.randn_like(parameter) * 0.35)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return HFLM(pretrained=model, tokenizer=fast, batch_size=4, max_length=160)


SOURCES = dict(
    arc_easy="arc/arc_easy.yaml", hellaswag="hellaswag/hellaswag.yaml", winogrande="winogrande/default.yaml",
    boolq="super_glue/boolq/default.yaml", lambada="lambada/lambada_openai.yaml", piqa="piqa/piqa.yaml",
    openbookqa="openbookqa/openbookqa.yaml", mmlu="mmlu/default/mmlu_abstract_algebra.yaml",
)


def main():
    files = {}
    (OUT / "rows").mkdir(parents=True, exist_ok=True)
    for name, split, made in rows():
        file = OUT / "rows" / f"{name}-{split}.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))
        files.setdefault(name, {})[split] = str(file)
    lm = make_model([Path(f).read_text() for by in files.values() for f in by.values()])
    configs = Path("/tmp/tasks-oracle")
    configs.mkdir(exist_ok=True)
    for name, by in files.items():
        config = dict(
            include=str(TASKS / SOURCES[name]), task=f"made_{name}", dataset_path="json", dataset_name=None,
            dataset_kwargs=dict(data_files=by), test_split="test", validation_split=None,
            training_split="train" if "train" in by else None, fewshot_split="dev" if "dev" in by else None, tag=[],
        )
        (configs / f"{name}.yaml").write_text(yaml.safe_dump({k: v for k, v in config.items()}))
    manager = TaskManager(include_path=str(configs))
    expected = {}
    for name in files:
        task = f"made_{name}"
        result = lm_eval.simple_evaluate(
            model=lm, tasks=[task], log_samples=True, task_manager=manager, bootstrap_iters=0,
            num_fewshot=5 if name == "mmlu" else 0,
        )
        items = []
        for sample in sorted(result["samples"][task], key=lambda s: s["doc_id"]):
            metrics = {k: float(sample[k]) for k in ("acc", "acc_norm") if k in sample}
            arguments = sample["arguments"]
            arguments = list(arguments.values()) if isinstance(arguments, dict) else arguments
            texts = [list(a.values())[:2] if isinstance(a, dict) else list(a)[:2] for a in arguments]
            items.append(dict(
                logps=[float(r[0][0]) for r in sample["resps"]],
                greedy=[str(r[0][1]) == "True" for r in sample["resps"]], arguments=texts, **metrics,
            ))
        readings = {k.split(",")[0]: v for k, v in result["results"][task].items() if isinstance(v, float)}
        errors = {k: v for k, v in result["results"][task].items() if "stderr" in k}
        expected[name] = dict(items=items, results=readings, stderr={k.split("_stderr")[0]: v for k, v in errors.items()})
    expected["gsm8k"] = gsm8k()
    text = json.dumps(expected, ensure_ascii=False, indent=0)
    (OUT / "expected.json").write_text(text + "\n")


def gsm8k():
    """The harness's own filters and metric on answers as models write them."""
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    config = yaml.safe_load((TASKS / "gsm8k/gsm8k.yaml").read_text())
    metric = config["metric_list"][0]
    answers = [
        (" 48/2 = 24 clips.\n#### 72", "so 72\n#### 72"), (" It is $1,234.50.", "#### 1234.50"), ("\n#### 1,200", "#### 1200"),
        (" no number", "#### 5"), (" #### -3. Then 4", "#### -3"), (" first 7 then 8.", "#### 8"), (" 9 apples #### 10.", "#### 10"),
        (" #### 12 dollars #### 13", "#### 12"), ("", "#### 0"), (" the answer is 3,000", "#### 3000"), (" = 2.0", "#### 2"),
        (" 5.", "x\n#### 5"), (" #### $18", "#### 18"), (" $18", "#### 18"), (" 1.2.3 and .", "#### 1.2.3"),
    ]
    found = []
    for answer, target in answers:
        item = dict(answer=answer, target=target)
        for filters in config["filter_list"]:
            first = {k: v for k, v in filters["filter"][0].items() if k != "function"}
            picked = RegexFilter(**first).apply([[answer]], [{}])[0][0]
            match = exact_match_hf_evaluate(
                predictions=[picked], references=[target], regexes_to_ignore=metric["regexes_to_ignore"],
                ignore_case=metric["ignore_case"], ignore_punctuation=metric["ignore_punctuation"],
            )["exact_match"]
            item[filters["name"]] = float(match)
        found.append(item)
    return found


main()
