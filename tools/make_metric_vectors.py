#!/usr/bin/env python3
"""Writes tests/vectors/metrics/*.jsonl: sets of answers and what scikit-learn, scipy and plain numpy make of them.

    /usr/bin/python3 tools/make_metric_vectors.py          (Debian: python3-sklearn)

scikit-learn computes accuracy, F1, NLL, Brier (two classes), AUROC, average precision and the ROC curve; scipy the binomial
distribution, its bounds and the optima of the calibration losses. What they lack is written here from the definitions in
doc/judging.md in the most literal way: loops over rows and thresholds, no sorting tricks.
"""
import json
import math
import os
import warnings

import numpy as np
from scipy import optimize, stats
from sklearn import metrics as sk

warnings.filterwarnings("ignore")
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "vectors", "metrics")


def write(name, cases):
    with open(os.path.join(OUT, name), "w") as f:
        for c in cases:
            f.write(json.dumps(c) + "\n")


def plain(x):
    return None if x is None or not np.isfinite(x) else float(x)


# ------------------------------------------------------------------------------------------------ metrics


def binned(conf, good, edges):
    """sum_b n_b/n |mean good - mean conf|; bin b holds edges[b] <= c < edges[b+1]."""
    total = 0.0
    for b in range(len(edges) - 1):
        low = -1 if b == 0 else edges[b]
        high = 9 if b == len(edges) - 2 else edges[b + 1]
        rows = [i for i in range(len(conf)) if low <= conf[i] < high]
        if rows:
            total += len(rows) / len(conf) * abs(np.mean([good[i] for i in rows]) - np.mean([conf[i] for i in rows]))
    return total


def adaptive(conf, good, bins):
    n = len(conf)
    which = [sum(1 for d in conf if d < c) * bins // n for c in conf]
    total = 0.0
    for b in set(which):
        rows = [i for i in range(n) if which[i] == b]
        total += len(rows) / n * abs(np.mean([good[i] for i in rows]) - np.mean([conf[i] for i in rows]))
    return total


def aurrrc(certainty, good):
    """As UQ360's area_under_risk_rejection_rate_curve takes thresholds, its index of -1 for fewer than ten rows included."""
    certainty, good = np.asarray(certainty, float), np.asarray(good, float)
    descending = np.sort(certainty)[::-1]
    step = len(good) // 10
    risks = [1 - np.mean(good[certainty >= descending[b * step - 1]]) for b in range(1, 11)]
    return float(np.mean(risks))


def good_first(good):
    """A score without ties that puts all good rows first: its ranks."""
    order = sorted(range(len(good)), key=lambda i: not good[i])
    rank = np.empty(len(good))
    rank[order] = np.arange(len(good))
    return rank


def aurc(u, good):
    """Mean over i of the expected share of errors among the first i rows, ties in random order."""
    n, total = len(u), 0.0
    for i in range(1, n + 1):
        wrong = 0.0
        for j in range(n):
            below, tied = sum(1 for v in u if v < u[j]), sum(1 for v in u if v == u[j])
            wrong += (not good[j]) * min(1.0, max(0.0, (i - below) / tied))
        total += wrong / i
    return total / n


def auroc(bad, u):
    return sk.roc_auc_score(bad, u) if 0 < sum(bad) < len(bad) else None


def expected(p, y, bins=10):
    n, k = p.shape
    pred = p.argmax(1)
    good = [bool(v) for v in pred == y]
    conf = p.max(1)
    h = np.array([-sum(v * math.log(v) for v in row if v > 0) for row in p])
    h = np.round(h * 2.0**40) / 2.0**40
    u = 1 - conf
    brier = float(np.mean(((p - np.eye(k)[y]) ** 2).sum(1)))
    if k == 2:
        assert abs(brier - 2 * sk.brier_score_loss(y == 1, p[:, 1])) < 1e-12
    return {
        "accuracy": sk.accuracy_score(y, pred),
        "f1": sk.f1_score(y == 1, pred == 1, zero_division=0) if k == 2 else None,
        "macro_f1": sk.f1_score(y, pred, average="macro", zero_division=0),
        "nll": sk.log_loss(y, p, labels=list(range(k)), eps=1e-15),
        "brier": brier,
        "ece": binned(conf, good, np.linspace(0.5 if k == 2 else 0.0, 1, bins + 1)),
        "ece_plain": binned(conf, good, np.linspace(0, 1, bins + 1)),
        "ece_classwise": float(np.mean([binned(p[:, c], y == c, np.linspace(0, 1, bins + 1)) for c in range(k)])),
        "ece_adaptive": adaptive(conf, good, bins),
        "aurrrc": aurrrc(conf, good),
        "aurrrc_entropy": aurrrc(-h, good),
        "aurrrc_oracle": aurrrc(good, good),
        "aurrrc_min": aurrrc(-good_first(good), good),
        "aurc": aurc(u, good),
        "aurc_entropy": aurc(h, good),
        "aurc_min": aurc(good_first(good), good),
        "auroc_error": auroc([not g for g in good], u),
        "auroc_error_entropy": auroc([not g for g in good], h),
        "confidence": float(np.mean(conf)),
        "entropy": float(np.mean(h)),
        "zeros": float(np.mean(p[np.arange(n), y] < 1e-15)),
    }


def softmax(z):
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def draw(rng, n, k, scale=1.5, signal=1.5):
    y = rng.integers(0, k, n)
    z = rng.normal(0, scale, (n, k))
    z[np.arange(n), y] += signal
    return softmax(z), y


def metric_cases():
    rng = np.random.default_rng(1)
    cases = []

    def add(name, p, y, bins=10):
        p, y = np.asarray(p, float), np.asarray(y, int)
        cases.append({"name": name, "bins": bins, "probs": p.tolist(), "labels": y.tolist(),
                      "expected": {key: plain(v) for key, v in expected(p, y, bins).items()}})

    for k in (2, 3, 5, 14):
        add(f"random of {k} classes", *draw(rng, 97, k))
    add("random, seven bins", *draw(rng, 60, 3), bins=7)
    add("random, one bin", *draw(rng, 40, 2), bins=1)
    for n in (1, 2, 5, 9, 10, 11, 19, 20, 21):
        add(f"{n} rows", *draw(rng, n, 2))
    for k, votes in ((2, 10), (3, 5), (4, 100), (2, 1)):
        p, y = draw(rng, 80, k)
        add(f"{votes} votes of {k} classes", [rng.multinomial(votes, row) / votes for row in p], y)
    p, y = draw(rng, 50, 3)
    add("perfect and certain", np.eye(3)[y], y)
    add("certain and wrong", np.eye(3)[(y + 1) % 3], y)
    add("useless", np.full((50, 3), 1 / 3), y)
    add("useless of two", np.full((40, 2), 0.5), np.arange(40) % 2)
    p, y = draw(rng, 45, 2)
    add("labels of class 0 only", p, np.zeros(45, int))
    add("labels of class 1 only", p, np.ones(45, int))
    add("class 1 never predicted", np.column_stack([np.maximum(p[:, 0], p[:, 1]), np.minimum(p[:, 0], p[:, 1])]), y)
    edge = np.arange(0, 21) / 20
    add("confidences on the edges of bins", np.column_stack([edge, 1 - edge]), np.arange(21) % 2)
    edge = np.round(np.linspace(0.34, 1, 34), 2)
    add("edges, three classes", np.column_stack([edge, (1 - edge) / 2, (1 - edge) / 2]), np.arange(34) % 3)
    p, y = draw(rng, 60, 3)
    add("the same distributions in another order of classes", np.concatenate([p[:20], p[:20][:, [1, 2, 0]], p[:20][:, [2, 0,
        1]]]), y)
    return cases


# ---------------------------------------------------------------------------------------------------- OOD


def ood_expected(u_in, u_out):
    u = np.concatenate([u_in, u_out])
    out = np.array([0] * len(u_in) + [1] * len(u_out))
    fpr, tpr, _ = sk.roc_curve(1 - out, -u, drop_intermediate=False)
    return {
        "auroc": sk.roc_auc_score(out, u),
        "aupr_in": sk.average_precision_score(1 - out, -u),
        "aupr_out": sk.average_precision_score(out, u),
        "fpr95": float(fpr[np.argmax(tpr >= 0.95)]),
        "aurrrc": aurrrc(-u, 1 - out),
        "aurrrc_oracle": aurrrc(1 - out, 1 - out),
    }


def ood_cases():
    rng = np.random.default_rng(2)
    pairs = {
        "apart": (rng.uniform(0, 0.4, 60), rng.uniform(0.5, 1, 40)),
        "reversed": (rng.uniform(0.5, 1, 33), rng.uniform(0, 0.4, 21)),
        "the same": (rng.uniform(0, 1, 50), rng.uniform(0, 1, 70)),
        "shifted": (rng.beta(1, 4, 100), rng.beta(2, 3, 80)),
        "ties": (rng.integers(0, 6, 90) / 5, rng.integers(2, 8, 45) / 5),
        "one score": (np.full(20, 0.5), np.full(10, 0.5)),
        "one row each": (np.array([0.1]), np.array([0.2])),
        "twenty rows": (np.arange(20) / 20, np.arange(20) / 20 + 0.025),
        "few outside": (rng.uniform(0, 1, 200), np.array([0.3, 0.9])),
    }
    return [{"name": n, "in": list(map(float, a)), "out": list(map(float, b)), "expected": {k: float(v) for k,
        v in ood_expected(a, b).items()}}
            for n, (a, b) in pairs.items()]


# ---------------------------------------------------------------------------------------------- decisions


def binomial_cases():
    cases = []
    for n, ks in ((1, (0, 1)), (10, (0, 3, 9, 10)), (32, (0, 1, 5, 31)), (200, (0, 7, 100, 199)), (5000, (0, 40, 2600, 4999))):
        for k in ks:
            for p in (0.001, 0.05, 0.1, 0.5, 0.93):
                cases.append({"k": k, "n": n, "p": p, "cdf": float(stats.binom.cdf(k, n, p))})
            for delta in (0.01, 0.1, 0.5):
                cases.append({"k": k, "n": n, "delta": delta, "upper": 1.0 if k == n else float(stats.beta.ppf(1 - delta, k + 1,
                    n - k))})
    return cases


def selector(u, good, r, delta):
    """Fixed-sequence testing from the most certain rows on; thresholds by rank."""
    n, best = len(u), None
    needed = 1
    while (1 - r) ** needed > delta * (1 + 1e-12):
        needed += 1
    start = max(needed, math.ceil(n / 10))
    if start > n:
        return None, needed
    for j in range(21):
        rank = start + j * (n - start) // 20
        limit = sorted(u)[rank - 1]
        taken = [i for i in range(n) if u[i] <= limit]
        wrong = sum(not good[i] for i in taken)
        if stats.binom.cdf(wrong, len(taken), r) > delta:
            break
        rest = [v for v in u if v > limit]
        best = {"accepted": len(taken), "wrong": wrong, "threshold": min(rest) if rest else None}
    return best, needed


def selector_cases():
    rng = np.random.default_rng(3)
    cases = []
    for name, n, ties, r, delta in (("few-shot", 32, 0, 0.1, 0.1), ("votes", 64, 10, 0.2, 0.1), ("hundreds", 400, 0, 0.05, 0.05),
                                    ("hundreds of votes", 300, 20, 0.1, 0.1), ("too few", 8, 0, 0.1, 0.1), ("loose", 100, 0,
                                        0.5, 0.2),
                                    ("strict", 500, 0, 0.01, 0.1)):
        for repeat in range(6):
            u = rng.uniform(0, 0.5, n)
            if ties:
                u = np.round(u * ties) / ties
            good = rng.uniform(0, 1, n) > u * 0.5 * repeat / 2.5
            best, needed = selector(list(u), list(good), r, delta)
            cases.append({"name": f"{name} {repeat}", "u": u.tolist(), "good": [bool(g) for g in good], "max_risk": r,
                "delta": delta,
                          "needed": needed, "best": best})
    return cases


def conformal_cases():
    rng = np.random.default_rng(4)
    cases = []
    for name, n, k, votes, alpha in (("plain", 50, 3, 0, 0.1), ("votes", 40, 2, 10, 0.2), ("whole rank", 19, 3, 0, 0.05),
                                     ("too few", 8, 3, 0, 0.1), ("many classes", 120, 8, 20, 0.15), ("one class missing", 30, 3,
                                         0, 0.2)):
        for per_class in (False, True):
            p, y = draw(rng, n, k)
            q, _ = draw(rng, 12, k)
            if votes:
                p = np.array([rng.multinomial(votes, row) / votes for row in p])
                q = np.array([rng.multinomial(votes, row) / votes for row in q])
            if name == "one class missing":
                y = np.minimum(y, 1)
            rows = []
            for row in q:
                for u in (1.0, float(rng.uniform())):
                    keep = []
                    for c in range(k):
                        scores = [1 - p[i, y[i]] for i in range(n) if not per_class or y[i] == c]
                        s = 1 - row[c]
                        value = (sum(v > s for v in scores) + u * (sum(v == s for v in scores) + 1)) / (len(scores) + 1)
                        keep.append(bool(value > alpha + 1e-12))
                    rows.append({"p": row.tolist(), "u": u, "in": keep})
            counts = [int((y == c).sum()) for c in range(k)] if per_class else [n]
            cases.append({"name": name, "probs": p.tolist(), "labels": y.tolist(), "alpha": alpha, "per_class": per_class,
                          "min_alpha": 1 / (min(counts) + 1), "sets": rows})
    return cases


# -------------------------------------------------------------------------------------------- calibration


def nll_of(z, y):
    m = z.max(1)
    return float(np.sum(m + np.log(np.exp(z - m[:, None]).sum(1)) - z[np.arange(len(y)), y]))


def fit_t(z, y):
    loss = lambda t: nll_of(z / math.exp(t), y) + t * t / 2
    low, high = math.log(0.05), math.log(20)
    grid = np.linspace(low, high, 400)
    start = grid[int(np.argmin([loss(t) for t in grid]))]
    width = (high - low) / 399
    best = optimize.minimize_scalar(loss, bounds=(max(low, start - width), min(high, start + width)), method="bounded",
        options={"xatol": 1e-12})
    return math.exp(best.x)


def fit_vector(x, y, strength=1.0):
    n, k = x.shape
    z = np.maximum(x - x.max(1, keepdims=True), -100)
    z = z - z.mean(1, keepdims=True)

    def loss(theta):
        return nll_of(z * theta[:k] + theta[k:], y) + 0.5 * strength * (
            np.sum((theta[:k] - 1) ** 2) + np.sum(theta[k:] ** 2))

    def grad(theta):
        p = softmax(z * theta[:k] + theta[k:]) - np.eye(k)[y]
        return np.concatenate([(p * z).sum(0) + strength * (theta[:k] - 1), p.sum(0) + strength * theta[k:]])

    best = optimize.minimize(loss, np.r_[np.ones(k), np.zeros(k)], jac=grad, method="BFGS", options={"gtol": 1e-10,
        "maxiter": 10000})
    return best.x[:k], best.x[k:], loss(best.x)


def fit_shared(x, y, strength):
    """One slope for all classes and a bias for each, shrunk to 1 and 0."""
    n, k = x.shape
    z = np.maximum(x - x.max(1, keepdims=True), -100)
    z = z - z.mean(1, keepdims=True)

    def loss(theta):
        return nll_of(z * theta[0] + theta[1:], y) + 0.5 * strength * ((theta[0] - 1) ** 2 + np.sum(theta[1:] ** 2))

    def grad(theta):
        p = softmax(z * theta[0] + theta[1:]) - np.eye(k)[y]
        return np.r_[(p * z).sum() + strength * (theta[0] - 1), p.sum(0) + strength * theta[1:]]

    best = optimize.minimize(loss, np.r_[1.0, np.zeros(k)], jac=grad, method="BFGS", options={"gtol": 1e-10, "maxiter": 10000})
    return np.full(k, best.x[0]), best.x[1:]


def deal_folds(y):
    n = len(y)
    fold = np.zeros(n, int)
    for rank, i in enumerate(sorted(range(n), key=lambda i: (y[i], i))):
        fold[i] = rank % min(5, n)
    return fold


def fit_affine(x, y):
    """One slope and biases whose strength has the least cross-validated NLL (0 stands for no change), less sure if held-out rows say so."""
    n, k = x.shape
    fold = deal_folds(y)
    z = x - x.max(1, keepdims=True)
    z = z - z.mean(1, keepdims=True)
    best = (nll_of(z, y), 0.0)
    for g in range(11 if n > 1 else 0):
        strength = 10 ** (3 - g / 2)
        total = 0
        for f in range(min(5, n)):
            w, b = fit_shared(x[fold != f], y[fold != f], strength)
            total += nll_of(z[fold == f] * w + b, y[fold == f])
        if total < best[0]:
            best = (total, strength)
    if best[1] == 0:
        return 0.0, np.ones(k), np.zeros(k)
    w, b = fit_shared(x, y, best[1])
    held = np.zeros((n, k))
    for f in range(min(5, n)):
        w_f, b_f = fit_shared(x[fold != f], y[fold != f], best[1])
        held[fold == f] = z[fold == f] * w_f + b_f
    t = max(1, fit_t(held, y))
    return best[1], w / t, b / t


def fit_votes(v, y):
    n, k = v.shape
    mean = v.sum() / n
    fold = deal_folds(y)
    best = None
    for g in range(8, -1, -1):
        alpha = mean * 10 ** (-4 + g / 2)
        z = np.log(v + alpha)
        total = sum(nll_of(z[fold == f] / fit_t(z[fold != f], y[fold != f]), y[fold == f]) for f in range(min(5, n)))
        if best is None or total < best[0] - 1e-9:
            best = (total, alpha)
    return best[1], fit_t(np.log(v + best[1]), y)


def fit_votes_affine(v, y):
    """Smoothed votes, or a slope and biases of their logarithms if folds say that these help."""
    n, k = v.shape
    mean = v.sum() / n
    fold = deal_folds(y)
    folds = min(5, n)
    if n == 1:
        return 0.01 * mean, 0.0, np.full(k, 1 / fit_t(np.log(v + 0.01 * mean), y)), np.zeros(k)
    alpha, t = fit_votes(v, y)
    z = np.log(v + alpha)
    best = (sum(nll_of(z[fold == f] / fit_t(z[fold != f], y[fold != f]), y[fold == f]) for f in range(folds)), alpha, 0.0)
    for a in range(5):
        for g in range(4):
            alpha_a, strength, total = mean * 10 ** (-a / 2), 10.0 ** (3 - g), 0
            z = np.log(v + alpha_a)
            for f in range(folds):
                w, b = fit_shared(z[fold != f], y[fold != f], strength)
                zc = z[fold == f] - z[fold == f].mean(1, keepdims=True)
                total += nll_of(zc * w + b, y[fold == f])
            if total < best[0] and fit_shared(z, y, strength)[0][0] > 0:
                best = (total, alpha_a, strength)
    if best[2] == 0:
        return best[1], 0.0, np.full(k, 1 / t), np.zeros(k)
    z = np.log(v + best[1])
    zc = z - z.mean(1, keepdims=True)
    w, b = fit_shared(z, y, best[2])
    held = np.zeros((n, k))
    for f in range(folds):
        w_f, b_f = fit_shared(z[fold != f], y[fold != f], best[2])
        held[fold == f] = zc[fold == f] * w_f + b_f
    t = max(1, fit_t(held, y))
    return best[1], best[2], w / t, b / t


def calibration_cases():
    rng = np.random.default_rng(5)
    cases = []
    for name, n, k, scale in (("over-confident", 200, 3, 6), ("under-confident", 150, 2, 0.3), ("few-shot", 32, 2, 2),
        ("many classes", 140, 14, 4),
                              ("one row", 1, 2, 1)):
        y = rng.integers(0, k, n)
        z = rng.normal(0, 1, (n, k))
        z[np.arange(n), y] += 1.5
        z *= scale
        w, b, loss = fit_vector(z, y)
        cases.append({"name": name, "x": z.tolist(), "labels": y.tolist(), "temperature": fit_t(z - z.max(1, keepdims=True), y),
                      "weight": w.tolist(), "bias": b.tolist(), "vector_loss": loss})
    y = np.arange(32) % 2
    z = np.where(np.eye(2)[y] > 0, 3.0, -3.0)
    w, b, loss = fit_vector(z, y)
    cases.append({"name": "separable", "x": z.tolist(), "labels": y.tolist(), "temperature": fit_t(z, y), "weight": w.tolist(),
        "bias": b.tolist(),
                  "vector_loss": loss})
    y = np.zeros(20, int)
    z = rng.normal(0, 2, (20, 3))
    w, b, loss = fit_vector(z, y)
    cases.append({"name": "one class", "x": z.tolist(), "labels": y.tolist(), "temperature": fit_t(z, y), "weight": w.tolist(),
        "bias": b.tolist(),
                  "vector_loss": loss})
    for name, n, k, votes, sharp in (("votes", 120, 3, 100, 1.0), ("timid votes", 90, 2, 20, 0.4), ("over-confident votes", 100,
        4, 50, 3.0),
                                     ("few votes", 32, 2, 10, 1.0)):
        p, y = draw(rng, n, k)
        q = p**sharp
        q /= q.sum(1, keepdims=True)
        v = np.array([rng.multinomial(votes, row) for row in q]).astype(float)
        alpha, t = fit_votes(v, y)
        cases.append({"name": name, "x": v.tolist(), "labels": y.tolist(), "votes": True, "alpha": alpha, "temperature": t})
    return cases


def affine_cases():
    rng = np.random.default_rng(7)
    cases = []
    for name, n, k, scale, bias in (("over-confident", 60, 3, 4, 0), ("biased few-shot", 32, 2, 1, 2), ("as it should be", 64, 2, 1.5, 0),
        ("under-confident, many classes", 112, 14, 0.2, 0.3), ("noise", 32, 2, 3, 0), ("one row", 1, 2, 1, 0)):
        y = np.arange(n) % k
        z = rng.normal(0, 1, (n, k))
        if name != "noise":
            z[np.arange(n), y] += 1.5
        z = z * scale
        z[:, 0] += bias
        strength, w, b = fit_affine(z, y)
        cases.append({"name": name, "x": z.tolist(), "labels": y.tolist(), "strength": strength, "weight": w.tolist(), "bias": b.tolist()})
    return cases


def votes_affine_cases():
    rng = np.random.default_rng(11)
    cases = []
    for name, n, k, votes, bias in (("a class hardly named", 64, 2, 20, 3), ("two of four hardly named", 64, 4, 40, 2), ("as they should be", 60, 3, 100, 0),
        ("noise", 32, 2, 20, 0), ("turned round", 64, 2, 20, 0), ("one vote a row", 64, 2, 1, 1), ("few rows, many classes", 42, 14, 20, 1.5), ("one row", 1, 2, 10, 0)):
        y = np.arange(n) % k
        z = rng.normal(0, 1, (n, k))
        if name != "noise":
            z[np.arange(n), y] += -2 if name == "turned round" else 2
        z[:, : k // 2] += bias
        q = softmax(z)
        v = np.array([rng.multinomial(votes, row) for row in q]).astype(float)
        alpha, strength, w, b = fit_votes_affine(v, y)
        cases.append({"name": name, "x": v.tolist(), "labels": y.tolist(), "alpha": alpha, "strength": strength, "weight": w.tolist(), "bias": b.tolist()})
    return cases


os.makedirs(OUT, exist_ok=True)
write("answers.jsonl", metric_cases())
write("ood.jsonl", ood_cases())
write("binomial.jsonl", binomial_cases())
write("selector.jsonl", selector_cases())
write("conformal.jsonl", conformal_cases())
write("calibration.jsonl", calibration_cases())
write("affine.jsonl", affine_cases())
write("votes_affine.jsonl", votes_affine_cases())
