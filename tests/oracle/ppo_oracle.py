"""PPO on fixed answers in plain torch, for crates/spec/src/methods/ppo_tests.rs: token rewards, GAE, whitening, both losses, gradients.

    python -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch numpy
    /tmp/oracle/bin/python tests/oracle/ppo_oracle.py tests/oracle

Written from the equations (Schulman et al. 2015 and 2017, Ziegler et al. 2019) on padded (B, T) tensors with masks, the way
TRL's PPO lays them out; gradients by log-probabilities, entropies and values are torch's autograd. A second file has one
decoder of which both losses are: a value head on the policy's trunk, the gradient of their sum by every weight.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

ROWS, TOKENS = 6, 7


def answers():
    rng = np.random.default_rng(11)
    lengths = [7, 2, 5, 1, 4, 6]
    mask = np.array([[int(t < n) for t in range(TOKENS)] for n in lengths])
    old = -np.abs(rng.normal(1.5, 1.0, (ROWS, TOKENS)))
    values = rng.normal(0.3, 0.4, (ROWS, TOKENS))
    noise = lambda size: rng.normal(0.0, size, (ROWS, TOKENS))
    return dict(
        mask=mask, old=old, reference=old + noise(0.3), logps=old + noise(0.3), old_values=values, values=values + noise(0.3),
        entropies=np.abs(noise(1.0)), scores=rng.normal(0.5, 1.0, ROWS), ended=np.array([1, 1, 0, 1, 0, 1]),
    )


def whiten(x, mask, shift):
    mean = x[mask].mean()
    white = (x - mean) * torch.rsqrt(x[mask].var(unbiased=True) + 1e-8)
    return torch.where(mask, white if shift else white + mean, 0.0)


def run(data, beta=0.05, kl="k1", gamma=1.0, lam=0.95, eps=0.2, eps_v=0.2, c_v=0.1, c_e=0.0, white=True, white_rewards=False, penalty=0.0):
    t = {name: torch.tensor(x, dtype=torch.float64) for name, x in data.items()}
    mask = t["mask"].bool()
    last = mask.sum(1) - 1
    apart = t["old"] - t["reference"]
    distance = {"k1": apart, "k2": apart**2 / 2, "k3": torch.exp(-apart) - 1 + apart}[kl]
    rewards = torch.where(mask, -beta * distance, 0.0)
    rewards[torch.arange(ROWS), last] += t["scores"] - penalty * (1 - t["ended"])
    if white_rewards:
        rewards = whiten(rewards, mask, shift=False)
    old_values = torch.where(mask, t["old_values"], 0.0)
    carry, reversed_advantages = torch.zeros(ROWS, dtype=torch.float64), []
    for at in reversed(range(TOKENS)):
        following = old_values[:, at + 1] if at + 1 < TOKENS else 0.0
        delta = rewards[:, at] + gamma * following - old_values[:, at]
        carry = torch.where(mask[:, at], delta + gamma * lam * carry, 0.0)
        reversed_advantages.append(carry)
    advantages = torch.stack(reversed_advantages[::-1], 1)
    returns = torch.where(mask, advantages + old_values, 0.0)
    if white:
        advantages = whiten(advantages, mask, shift=True)

    logps, entropies, values = (t[name].clone().requires_grad_(True) for name in ["logps", "entropies", "values"])
    ratio = torch.exp(logps - t["old"])
    free, bound = -advantages * ratio, -advantages * ratio.clamp(1 - eps, 1 + eps)
    policy = torch.maximum(free, bound)[mask].mean()
    (policy - c_e * entropies[mask].mean()).backward()
    near = t["old_values"] + (values - t["old_values"]).clamp(-eps_v, eps_v)
    squares, clipped = (values - returns) ** 2, (near - returns) ** 2
    value = 0.5 * torch.maximum(squares, clipped)[mask].mean()
    (c_v * value).backward()
    zero = torch.zeros(ROWS, TOKENS, dtype=torch.float64)
    flat = lambda x: (zero if x is None else x.detach()).flatten().tolist()
    return dict(
        advantages=flat(advantages), returns=flat(returns), loss=(policy - c_e * entropies[mask].mean()).item(), value_loss=(c_v * value).item(),
        dlogp=flat(logps.grad), dentropy=flat(entropies.grad), dvalue=flat(values.grad),
        readings={
            "loss/policy_avg": policy.item(), "loss/value_avg": value.item(),
            "policy/approxkl_avg": (0.5 * (logps - t["old"]) ** 2)[mask].mean().item(),
            "policy/clipfrac_avg": (bound > free)[mask].double().mean().item(),
            "val/clipfrac_avg": (clipped > squares)[mask].double().mean().item(),
            "val/ratio": ratio[mask].mean().item(),
        },
        rollout={
            "objective/kl": torch.where(mask, apart, 0.0).sum(1).mean().item(),
            "objective/entropy": torch.where(mask, -t["old"], 0.0).sum(1).mean().item(),
            "objective/non_score_reward": torch.where(mask, -beta * distance, 0.0).sum(1).mean().item(),
            "objective/scores": (t["scores"] - penalty * (1 - t["ended"])).mean().item(),
            "val/num_eos_tokens": t["ended"].sum().item(),
        },
    )


CASES = [
    (dict(), dict()),
    (dict(kl="k3", beta=0.2), dict(kl="k3", beta=0.2)),
    (dict(kl="k2", gamma=0.9, lambda_=0.5), dict(kl="k2", gamma=0.9, lam=0.5)),
    (dict(whiten_rewards=True, whiten_advantages=False), dict(white_rewards=True, white=False)),
    (dict(missing_eos_penalty=1.5, clip=0.1, value_clip=0.05), dict(penalty=1.5, eps=0.1, eps_v=0.05)),
    (dict(entropy_coef=0.01, value_coef=1.0, lambda_=1.0), dict(c_e=0.01, c_v=1.0, lam=1.0)),
]


D, F, VOCAB = 8, 12, 11


def weights():
    """A decoder of one block without positions, RMSNorm, ReLU, a head of its own and a value head (TRL's `v_head.summary`)."""
    rng = np.random.default_rng(5)
    layer = "model.layers.0."
    matrices = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (D, D), "self_attn.v_proj": (D, D), "self_attn.o_proj": (D, D),
                "mlp.up_proj": (F, D), "mlp.down_proj": (D, F)}
    shapes = {"model.embed_tokens.weight": (VOCAB, D), "lm_head.weight": (VOCAB, D), "v_head.summary.weight": (1, D),
              **{f"{layer}{name}.weight": shape for name, shape in matrices.items()}}
    found = {name: rng.normal(0.0, 0.4, shape) for name, shape in shapes.items()}
    for name in [layer + "input_layernorm", layer + "post_attention_layernorm", "model.norm"]:
        found[name + ".weight"] = 1 + rng.normal(0.0, 0.2, D)
    return found


def decoder(w, ids):
    """(B, T) tokens to log-probabilities (B, T, V) and values (B, T)."""
    norm = lambda x, name: x * torch.rsqrt((x**2).mean(-1, keepdim=True) + 1e-5) * w[name + ".weight"]
    of = lambda x, name: x @ w[f"model.layers.0.{name}.weight"].T
    x = w["model.embed_tokens.weight"][ids]
    h = norm(x, "model.layers.0.input_layernorm")
    q, k, v = (of(h, f"self_attn.{part}_proj") for part in "qkv")
    past = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
    scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(~past, -torch.inf)
    x = x + of(scores.softmax(-1) @ v, "self_attn.o_proj")
    x = x + of(of(norm(x, "model.layers.0.post_attention_layernorm"), "mlp.up_proj").relu(), "mlp.down_proj")
    hidden = norm(x, "model.norm")
    return (hidden @ w["lm_head.weight"].T).log_softmax(-1), (hidden @ w["v_head.summary.weight"].T)[..., 0]


def shared(eps=0.2, eps_v=0.2, c_v=0.1, c_e=0.0):
    """Policy loss plus c_v times value loss of one batch, and its gradient by every weight of the decoder."""
    rng = np.random.default_rng(7)
    w = {name: torch.tensor(x, dtype=torch.float64, requires_grad=True) for name, x in weights().items()}
    ids, targets = (torch.tensor(rng.integers(0, VOCAB, (ROWS, TOKENS))) for _ in range(2))
    lengths = np.array([7, 2, 5, 1, 4, 6])
    mask = torch.tensor(np.arange(TOKENS)[None] < lengths[:, None])
    logits, values = decoder(w, ids)
    logps = logits.gather(-1, targets[..., None])[..., 0]
    entropies = -(logits.exp() * logits).sum(-1)
    noise = lambda size: torch.tensor(rng.normal(0.0, size, (ROWS, TOKENS)))
    old, old_values = logps.detach() + noise(0.3), values.detach() + noise(0.3)
    advantages, returns = noise(1.0), old_values + noise(0.5)
    ratio = torch.exp(logps - old)
    policy = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - eps, 1 + eps))[mask].mean()
    near = old_values + (values - old_values).clamp(-eps_v, eps_v)
    value = 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2)[mask].mean()
    loss = policy - c_e * entropies[mask].mean() + c_v * value
    loss.backward()
    flat = lambda x: x.detach().flatten().tolist()
    return dict(
        rows=ROWS, tokens=TOKENS, ids=flat(ids), targets=flat(targets), mask=flat(mask.int()), old=flat(old), old_values=flat(old_values),
        advantages=flat(advantages), returns=flat(returns), weights={name: flat(x) for name, x in w.items()},
        loss=loss.item(), values=flat(values), gradients={name: flat(x.grad) for name, x in w.items()},
        readings={"loss/policy_avg": policy.item(), "loss/value_avg": value.item()},
    )


SHARED = [dict(), dict(entropy_coef=0.01, value_coef=1.0, value_clip=0.05)]
THEIRS = dict(entropy_coef="c_e", value_coef="c_v", value_clip="eps_v")


def main(folder):
    of = lambda ours: shared(**{THEIRS[name]: value for name, value in ours.items()})
    trunks = [dict(method={"ppo": dict(critic="shared", **ours)}, **of(ours)) for ours in SHARED]
    (Path(folder) / "ppo_shared.json").write_text(json.dumps(trunks) + "\n")
    data = answers()
    named = lambda ours: {name.rstrip("_"): value for name, value in ours.items()}
    cases = [dict(method={"ppo": named(ours)}, **run(data, **theirs)) for ours, theirs in CASES]
    fixed = {name: values.flatten().tolist() for name, values in data.items()}
    (Path(folder) / "ppo.json").write_text(json.dumps(dict(rows=ROWS, tokens=TOKENS, **fixed, cases=cases)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
