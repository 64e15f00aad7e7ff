#!/usr/bin/python3
"""Expected losses, gradients and AdamW steps from PyTorch, for tests/test_train_backward.c and tests/test_train_adamw.c.

    /usr/bin/python3 tools/make_training_vectors.py > tests/vectors/training.txt        needs python3-torch

The models are written out below with plain tensor operations in double precision; nothing of keyhole is used. Weights, prompts
and ids follow formulas that the tests repeat, so the file holds results only: "name count" and then the numbers.
"""
import math
import torch

torch.set_default_dtype(torch.float64)
L, H, A, I, V, P = 2, 8, 2, 12, 13, 12
LENGTHS = [6, 3, 5]
SLOTS, PREFIX = 2, 2


def wave(n, frequency, shift=0.0):
    return torch.tensor([0.5 * math.sin(frequency * i + 0.3 + shift) for i in range(n)])


def layout(family):
    """Name, shape, whether it is a gain; in the order of the vector of all weights."""
    types = 2 if family == "bert" else 1
    rows = [("word", (V, H)), ("position", (P, H)), ("type", (types, H)), ("ln_g", (H,)), ("ln_b", (H,)), ("head_w", (H, H)),
            ("head_b", (H,)), ("head_ln_g", (H,)), ("head_ln_b", (H,)), ("decoder_b", (V,))]
    for l in range(L):
        rows += [(f"{l}.{n}", s) for n, s in [("q_w", (H, H)), ("k_w", (H, H)), ("v_w", (H, H)), ("o_w", (H, H)), ("up_w", (I, H)),
                 ("down_w", (H, I)), ("q_b", (H,)), ("k_b", (H,)), ("v_b", (H,)), ("o_b", (H,)), ("ln1_g", (H,)), ("ln1_b", (H,)),
                 ("up_b", (I,)), ("down_b", (H,)), ("ln2_g", (H,)), ("ln2_b", (H,))]]
    return rows


def make_weights(family):
    w, at = {}, 0
    for name, shape in layout(family):
        n = math.prod(shape)
        w[name] = torch.tensor([0.5 * math.sin(1.7 * (at + i) + 0.3) for i in range(n)]).reshape(shape)
        if name.endswith("_g"):
            w[name] = w[name] + 1
        w[name].requires_grad_()
        at += n
    return w


def norm(x, g, b, eps):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + eps) * g + b


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def attention(x, w, l, prefix):
    q, k, v = (x @ w[f"{l}.{n}_w"].T + w[f"{l}.{n}_b"] for n in "qkv")
    if prefix is not None:
        k, v = torch.cat([prefix[l, 0], k]), torch.cat([prefix[l, 1], v])
    d = H // A
    out = []
    for h in range(A):
        s = slice(h * d, h * d + d)
        out.append(torch.softmax(q[:, s] @ k[:, s].T / math.sqrt(d), -1) @ v[:, s])
    return torch.cat(out, -1) @ w[f"{l}.o_w"].T + w[f"{l}.o_b"]


def logits_of(family, w, ids, inject, prompt, prefix):
    eps, first = (1e-12, 0) if family == "bert" else (1e-5, 2)
    x = w["word"][torch.tensor(ids)]
    if inject == "embed-prefix":
        x = torch.cat([prompt, x])
    if inject == "embed-inplace":
        x = torch.cat([x[:1], prompt, x[1:]])
    x = norm(x + w["position"][first:first + len(x)] + w["type"][0], w["ln_g"], w["ln_b"], eps)
    if inject == "post-ln-add":
        x = torch.cat([x[:1], x[1:1 + SLOTS] + prompt, x[1 + SLOTS:]])
    for l in range(L):
        x = norm(x + attention(x, w, l, prefix), w[f"{l}.ln1_g"], w[f"{l}.ln1_b"], eps)
        up = gelu(x @ w[f"{l}.up_w"].T + w[f"{l}.up_b"])
        x = norm(x + up @ w[f"{l}.down_w"].T + w[f"{l}.down_b"], w[f"{l}.ln2_g"], w[f"{l}.ln2_b"], eps)
    h = norm(gelu(x @ w["head_w"].T + w["head_b"]), w["head_ln_g"], w["head_ln_b"], eps)
    return h @ w["word"].T + w["decoder_b"]


def put(name, values):
    values = [float(v) for v in values]
    print(name, len(values))
    for i in range(0, len(values), 6):
        print(" ".join("%.17g" % v for v in values[i:i + 6]))


def case(name, family, inject, with_prefix, labels):
    w = make_weights(family)
    prompt = wave(SLOTS * H, 2.3, 1).reshape(SLOTS, H).requires_grad_()
    prefix = wave(L * 2 * PREFIX * H, 1.1, 2).reshape(L, 2, PREFIX, H).requires_grad_() if with_prefix else None
    loss, places = 0, 0
    for s, n in enumerate(LENGTHS):
        ids = [2 + (5 * s + 3 * i) % (V - 2) for i in range(n)]
        logits = logits_of(family, w, ids, inject, prompt, prefix)
        for at in ([1, 4], [], [0, 2])[s]:  # counted in the sequence as the model sees it
            if labels:  # words 5 and 9 of label 0, word 7 of label 1
                z = logits[at]
                pair = torch.stack([torch.logsumexp(z[[5, 9]], 0), z[7]])
                loss = loss - torch.log_softmax(pair, 0)[places % 2]
            else:
                loss = loss - torch.log_softmax(logits[at], 0)[(3 + 4 * places) % V]
            places += 1
    loss = loss / places
    loss.backward()
    put(name + ".loss", [loss])
    put(name + ".weights", torch.cat([w[n].grad.flatten() for n, _ in layout(family)]))
    if inject != "none":
        put(name + ".prompt", prompt.grad.flatten())
    if with_prefix:
        put(name + ".prefix", prefix.grad.flatten())


def adamw():
    """20 steps in f32 on 9 numbers, of which the first 5 decay; the learning rate changes at every step."""
    w = wave(9, 1.3).to(torch.float32)
    decayed, plain = w[:5].clone().requires_grad_(), w[5:].clone().requires_grad_()
    optimiser = torch.optim.AdamW([{"params": [decayed], "weight_decay": 0.1}, {"params": [plain], "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.98), eps=1e-6)
    for step in range(20):
        g = torch.tensor([math.sin(0.7 * i + 1.9 * step) * (1 + i) for i in range(9)], dtype=torch.float32)
        decayed.grad, plain.grad = g[:5].clone(), g[5:].clone()
        for group in optimiser.param_groups:
            group["lr"] = 1e-2 * (1 + step % 3)
        optimiser.step()
        if step in (0, 19):
            put("adamw.%d" % (step + 1), torch.cat([decayed, plain]).detach())


print("# made by tools/make_training_vectors.py with PyTorch " + torch.__version__)
case("bert", "bert", "none", False, False)
case("roberta-added", "roberta", "post-ln-add", False, True)
case("roberta-front", "roberta", "embed-prefix", True, False)
case("bert-inside", "bert", "embed-inplace", True, True)
adamw()
