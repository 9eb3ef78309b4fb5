"""Writes sampling.json: what transformers' logits processors leave of rows of logits.

For settings alone and in combination: the ids that survive and their probabilities, in the order in which
`GenerationMixin._get_logits_processor` applies the processors. Needs torch and transformers.
"""

import itertools
import json
import pathlib

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig

VOCAB = 40


def processors(sampling):
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling["temperature"],
        top_k=sampling["top_k"],
        top_p=sampling["top_p"],
        min_p=sampling["min_p"] or None,
        repetition_penalty=sampling["repetition_penalty"],
    )
    mixin = GenerationMixin()
    mixin.config = PreTrainedConfig()
    return mixin._get_logits_processor(config, input_ids_seq_length=8, device="cpu")


def main():
    generator = torch.Generator().manual_seed(11)
    cases = []
    grid = itertools.product(
        [1.0, 0.7, 1.6], [0, 5, 100], [1.0, 0.9, 0.35], [0.0, 0.1], [1.0, 1.4]
    )
    for number, (temperature, top_k, top_p, min_p, penalty) in enumerate(grid):
        if number % 3:
            continue
        sampling = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": penalty,
        }
        logits = torch.randn(1, VOCAB, generator=generator) * 3
        if top_p == 1.0:
            # Ties, which top-k keeps together. Which of them top-p takes first is the sort's own business.
            logits[0, 7] = logits[0, 3] = logits[0].max()
        logits = (logits * 1000).round() / 1000
        prompt = torch.randint(0, VOCAB, (1, 8), generator=generator)
        scores = processors(sampling)(prompt, logits.clone())
        probabilities = scores.softmax(-1)[0]
        kept = [i for i in range(VOCAB) if scores[0, i] != -float("inf")]
        cases.append(
            {
                "sampling": sampling,
                "prompt": prompt[0].tolist(),
                "logits": [round(x, 3) for x in logits[0].tolist()],
                "kept": kept,
                "probabilities": [round(probabilities[i].item(), 7) for i in kept],
            }
        )
    lines = ",\n".join(json.dumps(case) for case in cases)
    path = pathlib.Path(__file__).with_name("sampling.json")
    path.write_text(f"[\n{lines}\n]\n")


main()
