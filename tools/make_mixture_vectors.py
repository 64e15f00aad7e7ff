#!/usr/bin/python3
"""Writes tests/vectors/metrics/mixture_weights.jsonl: posterior means of mixture weights, by quadrature (Debian: python3-scipy).

    /usr/bin/python3 tools/make_mixture_vectors.py

w ~ Dirichlet(alpha, ..., alpha) of n members; row i has likelihood sum_m w_m l_im. Broken like a stick (w_1 = u_1,
w_2 = (1 - u_1) u_2, ...), w has independent beta-distributed parts, and the likelihood is a polynomial in each of them whose degree
is the number of rows. So Gauss-Jacobi quadrature with more than half as many nodes in each part is exact, but for rounding, for the
evidence and for the mean of w alike. Each line: alpha, like [rows][n], mean [n], log_evidence.
"""
import itertools, json, math, os
import numpy as np
from scipy.special import roots_jacobi

OUT = "tests/vectors/metrics/mixture_weights.jsonl"


def posterior(like, alpha):
    rows, n = like.shape
    nodes = []
    for j in range(n - 1):          # u_j ~ Beta(alpha, (n - 1 - j) alpha), on [0, 1]
        a, b = alpha, (n - 1 - j) * alpha
        x, w = roots_jacobi(rows // 2 + 2, b - 1, a - 1)
        nodes.append(((x + 1) / 2, w / w.sum()))
    total, mean = [], []
    scale = -np.log(like.max(axis=1)).sum()
    for point in itertools.product(*[range(len(x)) for x, _ in nodes]):
        left, weight, w = 1.0, 1.0, []
        for j, k in enumerate(point):
            u = nodes[j][0][k]
            w.append(left * u)
            left *= 1 - u
            weight *= nodes[j][1][k]
        w = np.array(w + [left])
        p = weight * math.exp(np.log(like @ w).sum() + scale)
        total.append(p)
        mean.append(p * w)
    z = math.fsum(total)
    return [math.fsum(m[k] for m in mean) / z for k in range(n)], math.log(z) - scale


def cases():
    rng = np.random.default_rng(27)
    for n, rows, alpha, sharp in [(2, 32, 1, 1), (2, 64, 1, 0.1), (2, 16, 0.5, 2), (3, 32, 1, 1), (3, 32, 2, 3),
                                  (3, 24, 0.5, 1), (4, 24, 1, 2), (4, 20, 1, 0.3), (2, 48, 1, 4), (3, 40, 1, 4)]:
        skill = rng.normal(0.5, 1, n)
        like = 1 / (1 + np.exp(-sharp * (skill + rng.normal(0, 1.5, (rows, n)))))
        yield alpha, np.round(like, 6)


os.makedirs(os.path.dirname(OUT), exist_ok=True)
with open(OUT, "w") as f:
    for alpha, like in cases():
        mean, evidence = posterior(like, alpha)
        f.write(json.dumps({"alpha": alpha, "like": like.tolist(), "mean": mean, "log_evidence": evidence}) + "\n")
