#!/usr/bin/env python3
"""Writes tests/vectors/flow/maf.jsonl: masked autoregressive flows, log-densities and their gradients, by PyTorch in double.

    /usr/bin/python3 tools/make_flow_vectors.py          (Debian: python3-torch)

The flow is written from its definition (doc/methods.md, S1 to S3) in the most literal way: masks are built entry by entry,
every transform is a loop over coordinates, and gradients are autograd's. Each line also holds the atomic loss (S6) of its pairs
and the gradient of that. ORDERS are the permutations that seed 7 gives.
"""
import json
import math
import os

import torch

torch.set_default_dtype(torch.float64)
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors", "flow", "maf.jsonl")
BOUND = 4.0

CASES = [
    dict(D=5, C=3, T=3, H=8, L=2, orders=[[0, 3, 1, 4, 2], [1, 2, 0, 3, 4], [2, 3, 1, 4, 0]]),
    dict(D=7, C=4, T=2, H=4, L=1, orders=[[0, 5, 1, 4, 2, 6, 3], [6, 2, 0, 3, 4, 5, 1]]),
    dict(D=1, C=2, T=2, H=3, L=3, orders=[[0], [0]]),
]


def degrees(D, H):
    return [math.floor(k * D / H) for k in range(H)]


def mask(rows, cols, allowed):
    m = torch.zeros(rows, cols)
    for r in range(rows):
        for c in range(cols):
            m[r, c] = 1.0 if allowed(r, c) else 0.0
    return m


def draw(case, rng):
    """Random weights as (name, tensor, mask) in the order of the file."""
    D, C, T, H, L = (case[k] for k in "DCTHL")
    deg = degrees(D, H)
    first = mask(H, D, lambda r, c: c < deg[r])
    inner = mask(H, H, lambda r, c: deg[c] <= deg[r])
    last = mask(2 * D, H, lambda r, c: deg[c] <= r % D)
    out = [("context", torch.randn(T * H, C, generator=rng) * 0.7, torch.ones(T * H, C))]
    for t in range(T):
        for layer in range(L + 1):
            m = first if layer == 0 else inner if layer < L else last
            out.append((f"w{t}.{layer}", torch.randn(m.shape, generator=rng) * 0.6 * m, m))
            out.append((f"b{t}.{layer}", torch.randn(m.shape[0], generator=rng) * 0.4, torch.ones(m.shape[0])))
    return out


def unit(a):
    return a / torch.sqrt(1 + a ** 2)


def logq(case, w, z, x, of):
    D, T, H, L = (case[k] for k in "DTHL")
    mean, sd, x_mean, x_sd = (torch.tensor(case[k]) for k in ("z_mean", "z_sd", "x_mean", "x_sd"))
    rows = []
    for i in range(len(z)):
        v = [(z[i][j] - mean[j]) / sd[j] for j in range(D)]
        c = w["context"] @ torch.clamp((x[of[i]] - x_mean) / x_sd, -5, 5)
        total = -torch.log(sd).sum()
        for t in range(T):
            y = torch.stack([v[p] for p in case["orders"][t]])
            h = unit(w[f"w{t}.0"] @ y + w[f"b{t}.0"] + c[t * H:(t + 1) * H])
            for layer in range(1, L):
                h = unit(w[f"w{t}.{layer}"] @ h + w[f"b{t}.{layer}"])
            o = w[f"w{t}.{L}"] @ h + w[f"b{t}.{L}"]
            v = []
            for j in range(D):
                scale = o[j] / torch.sqrt(1 + (o[j] / BOUND) ** 2)
                total = total + scale
                v.append(y[j] * torch.exp(scale) + o[D + j])
        for j in range(D):
            total = total - v[j] ** 2 / 2 - math.log(2 * math.pi) / 2
        rows.append(total)
    return torch.stack(rows)


def flat_grad(loss, weights):
    g = torch.autograd.grad(loss, [t for _, t, _ in weights], retain_graph=True)
    return [float(v) for (_, _, m), d in zip(weights, g) for v in (d * m).flatten()]


def run(case, rng):
    D, C = case["D"], case["C"]
    n, m = 6, 2
    case = dict(case)
    case["z_mean"] = torch.randn(D, generator=rng).tolist()
    case["z_sd"] = (0.5 + torch.rand(D, generator=rng)).tolist()
    case["x_mean"] = torch.randn(C, generator=rng).tolist()
    case["x_sd"] = (0.5 + torch.rand(C, generator=rng)).tolist()
    weights = draw(case, rng)
    for _, t, _ in weights:
        t.requires_grad_(True)
    z = torch.randn(n, D, generator=rng)
    x = torch.randn(m, C, generator=rng).float().double()
    x[0, 0] = 40.0  # held within 5 spreads
    g = torch.randn(n, generator=rng)
    of = [0, 0, 0, 1, 1, 1]
    q = logq(case, {k: t for k, t, _ in weights}, z, x, of)
    # Three atoms for each x, the first of them the true one, under the prior N(0, 2 I).
    prior = (-z ** 2 / 4 - math.log(4 * math.pi) / 2).sum(1)
    r = (q - prior).reshape(m, 3)
    atomic = -(r[:, 0] - torch.logsumexp(r, 1)).mean()
    return dict(case, n=n, m=m, z=z.flatten().tolist(), x=x.flatten().tolist(), of=of, g=g.tolist(),
                weights=[float(v) + 0.0 for _, t, _ in weights for v in t.flatten()], logq=q.tolist(),
                grad=flat_grad((q * g).sum(), weights), prior=prior.tolist(), atomic=float(atomic),
                atomic_grad=flat_grad(atomic, weights))


if __name__ == "__main__":
    rng = torch.Generator().manual_seed(1)
    with open(OUT, "w") as f:
        for c in CASES:
            f.write(json.dumps(run(c, rng)) + "\n")
