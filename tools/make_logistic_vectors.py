#!/usr/bin/env python3
"""make_logistic_vectors.py - tests/vectors/logistic.txt: ridge-penalised multinomial logistic regression by Newton's method with the
whole Hessian, in plain Python: no line search, no approximation, nothing in common with src/train/logistic.c but the formula.

    python3 tools/make_logistic_vectors.py > tests/vectors/logistic.txt

Each case: "case n dim labels ridge", a line a row (label, numbers), then a line a label (weights, bias). Biases are not penalised and
may all be raised by one number, so they are given with mean 0."""
import math
import random


def solve(a, b):
    """a x = b by elimination with pivots."""
    n = len(b)
    a = [row[:] + [b[i]] for i, row in enumerate(a)]
    for i in range(n):
        p = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[p] = a[p], a[i]
        for r in range(i + 1, n):
            f = a[r][i] / a[i][i]
            for c in range(i, n + 1):
                a[r][c] -= f * a[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][c] * x[c] for c in range(i + 1, n))) / a[i][i]
    return x


def newton(rows, labels, n_label, ridge):
    dim = len(rows[0])
    d1 = dim + 1
    size = n_label * d1
    w = [0.0] * size
    n = len(rows)
    for _ in range(60):
        g = [0.0] * size
        h = [[0.0] * size for _ in range(size)]
        for x, y in zip(rows, labels):
            x1 = x + [1.0]
            logit = [sum(w[k * d1 + j] * x1[j] for j in range(d1)) for k in range(n_label)]
            top = max(logit)
            e = [math.exp(v - top) for v in logit]
            p = [v / sum(e) for v in e]
            for k in range(n_label):
                for j in range(d1):
                    g[k * d1 + j] += (p[k] - (k == y)) * x1[j] / n
                    for m in range(n_label):
                        c = p[k] * ((k == m) - p[m]) / n
                        for l in range(d1):
                            h[k * d1 + j][m * d1 + l] += c * x1[j] * x1[l]
        for k in range(n_label):
            for j in range(dim):
                g[k * d1 + j] += ridge * w[k * d1 + j]
                h[k * d1 + j][k * d1 + j] += ridge
            for m in range(n_label):  # biases with mean 0: no other choice of them is as short
                h[k * d1 + dim][m * d1 + dim] += 1.0
            g[k * d1 + dim] += sum(w[m * d1 + dim] for m in range(n_label))
        step = solve(h, g)
        w = [a - b for a, b in zip(w, step)]
        if max(abs(v) for v in step) < 1e-14:
            break
    return w


random.seed(5)
print("# made by tools/make_logistic_vectors.py")
for n, dim, n_label, ridge in [(12, 2, 2, 0.1), (15, 3, 3, 0.01), (9, 4, 3, 1.0), (30, 2, 4, 0.003)]:
    rows, labels = [], []
    for i in range(n):
        y = i % n_label
        labels.append(y)
        rows.append([round(random.gauss((y + 1) * (j + 1) % 3, 1.5), 3) for j in range(dim)])
    w = newton(rows, labels, n_label, ridge)
    print("case", n, dim, n_label, ridge)
    for x, y in zip(rows, labels):
        print(y, *x)
    for k in range(n_label):
        print(*["%.15g" % v for v in w[k * (dim + 1):(k + 1) * (dim + 1)]])
