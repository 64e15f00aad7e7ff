#!/usr/bin/env python3
"""How well a classifier tells two sets of samples apart: 0.5 not at all, 1 always. (Debian: python3-sklearn)

    /usr/bin/python3 tests/c2st.py A.tsv B.tsv

Both files have a header line and as many rows. The classifier is the one of Lueckmann et al. (2021): two layers of 10 ReLU units
a dimension, trained on standardised samples; printed is its accuracy in five-fold cross-validation.
"""
import sys
import warnings

import numpy as np
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neural_network import MLPClassifier

warnings.filterwarnings("ignore")
a, b = (np.loadtxt(f, skiprows=1, ndmin=2) for f in sys.argv[1:3])
n = min(len(a), len(b))
a, b = a[:n], b[:n]
mean, sd = b.mean(0), b.std(0)
x = (np.vstack([a, b]) - mean) / sd
y = np.concatenate([np.zeros(n), np.ones(n)])
d = x.shape[1]
net = MLPClassifier(activation="relu", hidden_layer_sizes=(10 * d, 10 * d), max_iter=1000, solver="adam", random_state=1)
print("%.4f" % cross_val_score(net, x, y, cv=KFold(n_splits=5, shuffle=True, random_state=1), scoring="accuracy").mean())
