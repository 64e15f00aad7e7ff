#!/usr/bin/python3
"""Training speed of PyTorch on the shapes of "keyhole bench train": tokens a second in f32 and in bf16 autocast.

    bench/train_peer.py --layers 6 --hidden 256 --seq 64 --threads 2 [--vocab 30522] [--batch 64] [--reps 5] [--mode f32|bf16]

A post-LayerNorm encoder with a tied masked-language-model head at 15 % of the places, AdamW, fused QKV; the best step counts.
Run it in the same minute as "keyhole bench train" with the same numbers. Needs Debian's python3-torch.
"""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, h, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down, self.ln1, self.ln2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h), nn.LayerNorm(h), nn.LayerNorm(h)

    def forward(self, x):
        b, t, h = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(h, -1))
        p = torch.softmax(q @ k.transpose(-1, -2) / (h / self.heads) ** 0.5, -1)
        x = self.ln1(x + self.out((p @ v).transpose(1, 2).reshape(b, t, h)))
        return self.ln2(x + self.down(F.gelu(self.up(x))))


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        heads = max(1, a.hidden // 64)
        self.word, self.position = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.seq, a.hidden)
        self.ln, self.layers = nn.LayerNorm(a.hidden), nn.ModuleList(Layer(a.hidden, heads) for _ in range(a.layers))
        self.dense, self.head_ln, self.bias = nn.Linear(a.hidden, a.hidden), nn.LayerNorm(a.hidden), nn.Parameter(torch.zeros(a.vocab))

    def forward(self, ids, at):
        x = self.ln(self.word(ids) + self.position.weight)
        for layer in self.layers:
            x = layer(x)
        z = F.gelu(self.dense(x[at])).float()  # LayerNorm of bf16 by f32 weights is refused; in the layers the residual is f32
        return F.linear(self.head_ln(z), self.word.weight, self.bias)


def main():
    p = argparse.ArgumentParser()
    for name, value in [("layers", 6), ("hidden", 256), ("seq", 64), ("batch", 64), ("vocab", 30522), ("threads", 2), ("reps", 5)]:
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--mode", choices=["f32", "bf16"], default="f32")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = Model(a)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, at = torch.randint(0, a.vocab, (a.batch, a.seq)), torch.rand(a.batch, a.seq) < 0.15
    best = float("inf")
    for _ in range(a.reps):
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.mode == "bf16"):
            loss = F.cross_entropy(model(ids, at).float(), ids[at])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        best = min(best, time.perf_counter() - began)
    print(f"PyTorch {torch.__version__} {a.mode}: {a.layers} x {a.hidden}, sequences of {a.seq}, {a.batch} a step, "
          f"{a.threads} threads: {a.batch * a.seq / best:.0f} tokens/s")


if __name__ == "__main__":
    main()
