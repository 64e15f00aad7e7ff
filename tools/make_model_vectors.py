#!/usr/bin/python3
"""Golden vectors for the model room, from an independent implementation in PyTorch (Debian: python3-torch).

    /usr/bin/python3 tools/make_model_vectors.py [MINILM_FOLDER]

Writes tests/vectors/models/NAME/{config.json, model.safetensors (or index and shards), expected.txt} for tiny random BERT,
RoBERTa, DistilBERT, ELECTRA, ALBERT and ModernBERT models, and with MINILM_FOLDER (a BertForMaskedLM folder with vocab.txt) also
tests/vectors/minilm/expected.txt. The models follow Hugging Face's modeling_bert.py, modeling_roberta.py and
modeling_distilbert.py; everything is computed in float64 from the stored weights, so the values are exact to f32.
Nothing here is used by the tests but the files it wrote.

expected.txt is a list of cases, each of lines "key values...":
    case NAME / inject MODE / ids ... / prompt ROWS numbers... / hidden LAYERS TOKENS HIDDEN numbers... /
    logits PLACE numbers... (over the vocabulary; any number of times) / top PLACE id logit id logit ... / end
"""
import json, math, os, struct, sys
import torch
import torch.nn.functional as F

OUT = "tests/vectors"
TYPE = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}


def raw(t):
    t = t.contiguous()
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return t.numpy().tobytes()


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        b = raw(t)
        header[name] = {"dtype": TYPE[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    h = json.dumps(header, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + data)


def read_safetensors(path):
    kind = {"F32": torch.float32, "F16": torch.float16}
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    out = {}
    for name, s in json.loads(b[8:8 + n]).items():
        if name != "__metadata__":
            first, last = s["data_offsets"]
            piece = bytearray(b[8 + n + first:8 + n + last])
            out[name] = torch.frombuffer(piece, dtype=kind[s["dtype"]]).reshape(s["shape"])
    return out


# ---- the model, on a dict of plainly named float64 tensors ------------------------------------------------------------

ACT = {"gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
       "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
       "relu": torch.relu}


def norm(x, w, name, eps):
    return F.layer_norm(x, x.shape[-1:], w[name + ".g"], w[name + ".b"], eps)


def dense(x, w, name):
    return x @ w[name + ".w"].T + w[name + ".b"]


def positions(cfg, ids, length):
    """RoBERTa: create_position_ids_from_input_ids, or ..._from_inputs_embeds when ids is None."""
    if cfg["model_type"] != "roberta":
        return torch.arange(length)
    pad = cfg["pad_token_id"]
    if ids is None:
        return torch.arange(pad + 1, pad + 1 + length)
    real = (ids != pad).long()
    return torch.cumsum(real, 0) * real + pad


def forward(cfg, w, ids, inject, prompt):
    ids = torch.tensor(ids)
    words = w["word"][ids]
    if inject == "embed-prefix":
        words = torch.cat([prompt, words])
    if inject == "embed-inplace":
        words = torch.cat([words[:1], prompt, words[1:]])
    place = positions(cfg, None if inject.startswith("embed") else ids, len(words))
    x = words + w["position"][place]
    if "type" in w:
        x = x + w["type"][0]
    x = norm(x, w, "ln", cfg["eps"])
    if "project.w" in w:
        x = dense(x, w, "project")
    if inject == "post-ln-add":
        x = x.clone()
        x[1:1 + len(prompt)] += prompt
    states = [x]
    heads, width = cfg["heads"], x.shape[1] // cfg["heads"]
    for i in range(cfg["layers"]):
        q, k, v = (dense(x, w, f"{i}.{n}").reshape(len(x), heads, width).transpose(0, 1) for n in "qkv")
        a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(width), -1) @ v
        x = norm(dense(a.transpose(0, 1).reshape(len(x), -1), w, f"{i}.o") + x, w, f"{i}.ln1", cfg["eps"])
        x = norm(dense(ACT[cfg["act"]](dense(x, w, f"{i}.up")), w, f"{i}.down") + x, w, f"{i}.ln2", cfg["eps"])
        states.append(x)
    return torch.stack(states)


def head(cfg, w, x):
    act = ACT["gelu" if cfg["model_type"] in ("roberta", "electra") else cfg["act"]]
    x = norm(act(dense(x, w, "head")), w, "head_ln", cfg["eps"])
    return x @ w.get("decoder", w["word"]).T + w["decoder_bias"]


# ---- random weights, and their names in files -------------------------------------------------------------------------

def random_weights(cfg, seed, separate, with_head):
    """Larger than an initialisation would make them, so that attention, GELU and LayerNorm all have something to do."""
    g = torch.Generator().manual_seed(seed)
    h, inner, w = cfg["hidden"], cfg["inner"], {}

    def normal(name, *shape, std, mean=0.0):
        w[name] = mean + std * torch.randn(*shape, generator=g)

    def linear(name, out, inn):
        normal(name + ".w", out, inn, std=1.2 / math.sqrt(inn))
        normal(name + ".b", out, std=0.3)

    def layer_norm(name):
        normal(name + ".g", h, std=0.2, mean=1.0)
        normal(name + ".b", h, std=0.2)

    normal("word", cfg["vocab"], h, std=0.7)
    normal("position", cfg["positions"], h, std=0.5)
    if cfg["model_type"] != "distilbert":
        normal("type", cfg["types"], h, std=0.3)
    layer_norm("ln")
    for i in range(cfg["layers"]):
        for n in "qkvo":
            linear(f"{i}.{n}", h, h)
        layer_norm(f"{i}.ln1")
        linear(f"{i}.up", inner, h)
        linear(f"{i}.down", h, inner)
        layer_norm(f"{i}.ln2")
    if with_head:
        linear("head", h, h)
        layer_norm("head_ln")
        normal("decoder_bias", cfg["vocab"], std=0.5)
        if separate:
            normal("decoder", cfg["vocab"], h, std=0.7)
    return w


BERT_NAMES = {"word": "embeddings.word_embeddings.weight", "position": "embeddings.position_embeddings.weight",
              "type": "embeddings.token_type_embeddings.weight", "ln": "embeddings.LayerNorm"}
BERT_LAYER = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value", "o": "attention.output.dense",
              "ln1": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense", "ln2": "output.LayerNorm"}
DISTIL_LAYER = {"q": "attention.q_lin", "k": "attention.k_lin", "v": "attention.v_lin", "o": "attention.out_lin",
                "ln1": "sa_layer_norm", "up": "ffn.lin1", "down": "ffn.lin2", "ln2": "output_layer_norm"}
HEAD = {"bert": {"head": "cls.predictions.transform.dense", "head_ln": "cls.predictions.transform.LayerNorm",
                 "decoder": "cls.predictions.decoder.weight", "decoder_bias": "cls.predictions.bias"},
        "roberta": {"head": "lm_head.dense", "head_ln": "lm_head.layer_norm", "decoder": "lm_head.decoder.weight",
                    "decoder_bias": "lm_head.bias"},
        "distilbert": {"head": "vocab_transform", "head_ln": "vocab_layer_norm", "decoder": "vocab_projector.weight",
                       "decoder_bias": "vocab_projector.bias"}}


def file_name(kind, key, prefix, gamma, decoder_bias):
    """The Hugging Face name of one of our plain names."""
    if key == "decoder_bias" and decoder_bias:
        return decoder_bias
    base, _, end = key.rpartition(".") if key[-2:] in (".w", ".b", ".g") else (key, "", "")
    end = {"": "", "w": ".weight", "g": ".gamma" if gamma else ".weight", "b": ".bias"}[end]
    if gamma and "ln" in base and end == ".bias":
        end = ".beta"
    if base in HEAD[kind]:
        return HEAD[kind][base] + end
    if base in BERT_NAMES:
        return prefix + BERT_NAMES[base] + end
    i, part = base.split(".")
    layer, names = ("transformer.layer.", DISTIL_LAYER) if kind == "distilbert" else ("encoder.layer.", BERT_LAYER)
    return prefix + layer + i + "." + names[part] + end


def config_json(cfg, dtype, tied):
    common = {"model_type": cfg["model_type"], "vocab_size": cfg["vocab"], "max_position_embeddings": cfg["positions"],
              "pad_token_id": cfg["pad_token_id"], "tie_word_embeddings": tied, "torch_dtype": str(dtype).split(".")[1]}
    if cfg["model_type"] == "distilbert":
        own = {"dim": cfg["hidden"], "n_layers": cfg["layers"], "n_heads": cfg["heads"], "hidden_dim": cfg["inner"],
               "activation": cfg["act"]}
    else:
        own = {"hidden_size": cfg["hidden"], "num_hidden_layers": cfg["layers"], "num_attention_heads": cfg["heads"],
               "intermediate_size": cfg["inner"], "hidden_act": cfg["act"], "layer_norm_eps": cfg["eps"],
               "type_vocab_size": cfg["types"]}
    return json.dumps({**common, **own}, indent=2) + "\n"


# ---- cases ------------------------------------------------------------------------------------------------------------

def numbers(t):
    return " ".join("%.9g" % x for x in t.reshape(-1).tolist())


def write_case(f, name, cfg, w, ids, inject="none", prompt=None, at=(), with_hidden=True, model=None):
    run, read = model or (forward, head)
    states = run(cfg, w, ids, inject, prompt)
    print("case", name, file=f)
    print("inject", inject, file=f)
    print("ids", *ids, file=f)
    if prompt is not None:
        print("prompt", len(prompt), numbers(prompt), file=f)
    if with_hidden:
        print("hidden", *states.shape, numbers(states), file=f)
    for place in at:
        print("logits", place, numbers(read(cfg, w, states[-1][place])), file=f)
    print("end", file=f)


def make(name, kind, seed, act="gelu", dtype=torch.float32, prefixed=True, gamma=False, separate=False, with_head=True,
         decoder_bias=None, extras=False, shards=1, eps=None, full=True):
    pad = 1 if kind == "roberta" else 0
    cfg = {"model_type": kind, "vocab": 120, "hidden": 32, "layers": 2, "heads": 4, "inner": 56, "positions": 40,
           "types": 1 if kind == "roberta" else 2,
           "pad_token_id": pad, "act": act, "eps": eps or (1e-5 if kind == "roberta" else 1e-12)}
    stored = {k: t.to(dtype) for k, t in random_weights(cfg, seed, separate, with_head).items()}
    prefix = kind + "." if prefixed else ""
    tensors = {file_name(kind, k, prefix, gamma, decoder_bias): t for k, t in stored.items()}
    if extras:
        tensors[prefix + "embeddings.position_ids"] = torch.arange(40).reshape(1, 40)
        tensors[prefix + "pooler.dense.bias"] = torch.zeros(32)
        tensors["cls.seq_relationship.bias"] = torch.zeros(2)
        tensors["cls.predictions.decoder.weight"] = stored["word"]
        tensors["cls.predictions.decoder.bias"] = stored["decoder_bias"]
    folder = f"{OUT}/models/{name}"
    os.makedirs(folder, exist_ok=True)
    open(folder + "/config.json", "w").write(config_json(cfg, dtype, not separate))
    if shards == 1:
        write_safetensors(folder + "/model.safetensors", tensors)
    else:
        where = {n: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, n in enumerate(tensors)}
        for shard in sorted(set(where.values())):
            write_safetensors(f"{folder}/{shard}", {n: t for n, t in tensors.items() if where[n] == shard})
        json.dump({"metadata": {}, "weight_map": where}, open(folder + "/model.safetensors.index.json", "w"), indent=1)

    w = {k: t.to(torch.float64) for k, t in stored.items()}
    g = torch.Generator().manual_seed(seed + 1)

    def ids(n):
        return [2] + torch.randint(5, 120, (n - 1,), generator=g).tolist()

    def soft(n):
        return (0.8 * torch.randn(n, 32, generator=g)).to(torch.float64)

    def places(*p):
        return p if with_head else ()

    with open(folder + "/expected.txt", "w") as f:
        write_case(f, "plain-9", cfg, w, ids(9), at=places(4))
        if not full:
            return
        write_case(f, "plain-1", cfg, w, ids(1), at=places(0))
        write_case(f, "plain-longest", cfg, w, ids(38 if kind == "roberta" else 40), at=places(0, 37), with_hidden=False)
        write_case(f, "post-ln-add", cfg, w, ids(11), "post-ln-add", soft(5), at=places(8))
        write_case(f, "embed-prefix", cfg, w, ids(6), "embed-prefix", soft(4), at=places(7))
        write_case(f, "embed-inplace", cfg, w, ids(6), "embed-inplace", soft(3), at=places(7))
        padded = ids(8)
        padded[3] = padded[4] = pad
        write_case(f, "padding-inside", cfg, w, padded, at=places(5))


# ---- embeddings of a width of their own: ELECTRA's generator and ALBERT -------------------------------------------------

ALBERT_LAYER = {"q": "attention.query", "k": "attention.key", "v": "attention.value", "o": "attention.dense", "ln1": "attention.LayerNorm",
                "up": "ffn", "down": "ffn_output", "ln2": "full_layer_layer_norm"}
FACTORED = {"electra": {"project": "electra.embeddings_project", "head": "generator_predictions.dense", "head_ln": "generator_predictions.LayerNorm",
                        "decoder": "generator_lm_head", "decoder_bias": "generator_lm_head.bias"},
            "albert": {"project": "albert.encoder.embedding_hidden_mapping_in", "head": "predictions.dense", "head_ln": "predictions.LayerNorm",
                       "decoder": "predictions.decoder", "decoder_bias": "predictions.bias"}}


def make_factored(kind, seed, embed, act):
    cfg = {"model_type": kind, "vocab": 120, "hidden": 32, "layers": 3, "heads": 4, "inner": 56, "positions": 40, "types": 2,
           "pad_token_id": 0, "act": act, "eps": 1e-12}
    w = random_weights(cfg, seed, False, True)
    g = torch.Generator().manual_seed(seed + 7)

    def normal(*shape, std, mean=0.0):
        return mean + std * torch.randn(*shape, generator=g)

    for name, rows in (("word", 120), ("position", 40), ("type", 2)):
        w[name] = normal(rows, embed, std=0.6)
    for name in ("ln", "head_ln"):
        w[name + ".g"], w[name + ".b"] = normal(embed, std=0.2, mean=1.0), normal(embed, std=0.2)
    w["project.w"], w["project.b"] = normal(32, embed, std=1.2 / math.sqrt(embed)), normal(32, std=0.3)
    w["head.w"], w["head.b"] = normal(embed, 32, std=1.2 / math.sqrt(32)), normal(embed, std=0.3)
    if kind == "albert":
        for i in range(1, 3):
            for key in [k for k in w if k.startswith("0.")]:
                w[f"{i}" + key[1:]] = w[key]
    tensors = {}
    for key, t in w.items():
        base, _, end = key.rpartition(".") if key[-2:] in (".w", ".b", ".g") else (key, "", "")
        end = {"": "", "w": ".weight", "g": ".weight", "b": ".bias"}[end]
        if base in FACTORED[kind]:
            tensors[FACTORED[kind][base] + end] = t
        elif base in BERT_NAMES:
            tensors[f"{kind}.{BERT_NAMES[base]}{end}"] = t
        elif kind == "electra":
            i, part = base.split(".")
            tensors[f"electra.encoder.layer.{i}.{BERT_LAYER[part]}{end}"] = t
        elif base.startswith("0."):
            tensors["albert.encoder.albert_layer_groups.0.albert_layers.0." + ALBERT_LAYER[base[2:]] + end] = t
    folder = f"{OUT}/models/{kind}"
    os.makedirs(folder, exist_ok=True)
    config = json.loads(config_json(cfg, torch.float32, True))
    config["embedding_size"] = embed
    if kind == "albert":
        config["num_hidden_groups"] = config["inner_group_num"] = 1
    open(folder + "/config.json", "w").write(json.dumps(config, indent=2) + "\n")
    write_safetensors(folder + "/model.safetensors", tensors)
    w = {k: t.to(torch.float64) for k, t in w.items()}
    with open(folder + "/expected.txt", "w") as f:
        ids = lambda n: [2] + torch.randint(5, 120, (n - 1,), generator=g).tolist()
        write_case(f, "plain-9", cfg, w, ids(9), at=(4,))
        write_case(f, "plain-1", cfg, w, ids(1), at=(0,))
        write_case(f, "plain-longest", cfg, w, ids(40), at=(0, 37), with_hidden=False)
        prompt = (0.8 * torch.randn(5, 32, generator=g)).to(torch.float64)
        write_case(f, "post-ln-add", cfg, w, ids(11), "post-ln-add", prompt, at=(8,))


# ---- ModernBERT: rotary positions, norms before the parts, GeGLU, attention in windows, hardly any bias ------------------


def turned(x, theta):
    """x [heads, T, D]: numbers i and i + D / 2 of a head are a point that place t turns by t theta^(-2 i / D)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def plain_norm(x, g, eps):
    return F.layer_norm(x, x.shape[-1:], g, None, eps)


def modern_forward(cfg, w, ids, inject, prompt):
    words = w["embeddings.tok_embeddings"][torch.tensor(ids)]
    if inject == "embed-prefix":
        words = torch.cat([prompt, words])
    if inject == "embed-inplace":
        words = torch.cat([words[:1], prompt, words[1:]])
    x = plain_norm(words, w["embeddings.norm"], cfg["norm_eps"])
    if inject == "post-ln-add":
        x = x.clone()
        x[1:1 + len(prompt)] += prompt
    states, heads, places = [x], cfg["num_attention_heads"], torch.arange(len(words))
    near = (places[:, None] - places[None]).abs() <= cfg["local_attention"] // 2
    for i in range(cfg["num_hidden_layers"]):
        everywhere = i % cfg["global_attn_every_n_layers"] == 0
        y = plain_norm(x, w[f"layers.{i}.attn_norm"], cfg["norm_eps"]) if i > 0 else x
        q, k, v = (y @ w[f"layers.{i}.attn.Wqkv"].T).reshape(len(x), 3, heads, -1).permute(1, 2, 0, 3)
        theta = cfg["global_rope_theta" if everywhere else "local_rope_theta"]
        score = turned(q, theta) @ turned(k, theta).transpose(1, 2) / math.sqrt(q.shape[-1])
        if not everywhere:
            score = score.masked_fill(~near, -math.inf)
        a = (torch.softmax(score, -1) @ v).transpose(0, 1).reshape(len(x), -1)
        x = x + a @ w[f"layers.{i}.attn.Wo"].T
        part, gate = (plain_norm(x, w[f"layers.{i}.mlp_norm"], cfg["norm_eps"]) @ w[f"layers.{i}.mlp.Wi"].T).chunk(2, -1)
        x = x + (ACT[cfg["hidden_activation"]](part) * gate) @ w[f"layers.{i}.mlp.Wo"].T
        states.append(x)
    return torch.stack(states)


def modern_head(cfg, w, x):
    x = plain_norm(x, w["final_norm"], cfg["norm_eps"])
    x = plain_norm(ACT[cfg["classifier_activation"]](x @ w["head.dense"].T), w["head.norm"], cfg["norm_eps"])
    return x @ w["embeddings.tok_embeddings"].T + w["decoder"]


def make_modern(seed):
    cfg = {"model_type": "modernbert", "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
           "intermediate_size": 40, "max_position_embeddings": 60, "norm_eps": 1e-5, "hidden_activation": "gelu",
           "classifier_activation": "relu", "pad_token_id": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
           "local_attention": 9, "global_attn_every_n_layers": 3, "attention_bias": False, "mlp_bias": False, "norm_bias": False,
           "classifier_bias": False, "decoder_bias": True, "position_embedding_type": "absolute", "torch_dtype": "float32"}
    H, I, g = 32, 40, torch.Generator().manual_seed(seed)

    def normal(*shape, std=None, mean=0.0):
        return mean + (std or 1.2 / math.sqrt(shape[-1])) * torch.randn(*shape, generator=g)

    w = {"embeddings.tok_embeddings": normal(120, H, std=0.6)}
    for name in ["embeddings.norm", "final_norm", "head.norm"]:
        w[name] = normal(H, std=0.2, mean=1.0)
    for i in range(cfg["num_hidden_layers"]):
        for name in ["attn_norm", "mlp_norm"][i == 0:]:
            w[f"layers.{i}.{name}"] = normal(H, std=0.2, mean=1.0)
        for name, rows, cols in (("attn.Wqkv", 3 * H, H), ("attn.Wo", H, H), ("mlp.Wi", 2 * I, H), ("mlp.Wo", H, I)):
            w[f"layers.{i}.{name}"] = normal(rows, cols)
    w["head.dense"], w["decoder"] = normal(H, H), normal(120, std=0.3)
    folder = f"{OUT}/models/modernbert"
    os.makedirs(folder, exist_ok=True)
    open(folder + "/config.json", "w").write(json.dumps(cfg, indent=2) + "\n")
    write_safetensors(folder + "/model.safetensors", {("" if n.startswith(("head", "decoder")) else "model.") + n +
                                                      (".bias" if n == "decoder" else ".weight"): t for n, t in w.items()})
    w = {k: t.to(torch.float64) for k, t in w.items()}
    ids = lambda n: [2] + torch.randint(5, 120, (n - 1,), generator=g).tolist()
    soft = lambda n: (0.8 * torch.randn(n, H, generator=g)).to(torch.float64)
    with open(folder + "/expected.txt", "w") as f:
        for name, n, inject, rows, at, shown in (
                ("plain-9", 9, "none", 0, (4,), True), ("plain-1", 1, "none", 0, (0,), True), ("plain-5", 5, "none", 0, (2,), True),
                ("plain-longest", 60, "none", 0, (0, 5, 37, 59), False), ("post-ln-add", 14, "post-ln-add", 5, (8,), True),
                ("embed-prefix", 6, "embed-prefix", 4, (7,), True), ("embed-inplace", 12, "embed-inplace", 3, (7,), True)):
            write_case(f, name, cfg, w, ids(n), inject, soft(rows) if rows else None, at, shown, (modern_forward, modern_head))


# ---- the real model ---------------------------------------------------------------------------------------------------

SENTENCES = ["the capital of france is [MASK] .", "the movie was great , i really [MASK] it .",
             "he went to the [MASK] to buy some milk and bread ."]


def minilm(folder):
    c = json.load(open(folder + "/config.json"))
    cfg = {"model_type": "bert", "layers": c["num_hidden_layers"], "heads": c["num_attention_heads"], "act": c["hidden_act"],
           "eps": c["layer_norm_eps"]}
    t = read_safetensors(folder + "/model.safetensors")
    w = {}
    names = ["word", "position", "type", "ln.g", "ln.b", "head.w", "head.b", "head_ln.g", "head_ln.b", "decoder_bias"]
    for i in range(cfg["layers"]):
        names += [f"{i}.{n}.{e}" for n in ("q", "k", "v", "o", "up", "down") for e in "wb"]
        names += [f"{i}.{n}.{e}" for n in ("ln1", "ln2") for e in "gb"]
    for n in names:
        w[n] = t[file_name("bert", n, "bert.", False, None)].to(torch.float64)
    vocab = {line.rstrip("\n"): i for i, line in enumerate(open(folder + "/vocab.txt", encoding="utf-8"))}
    os.makedirs(OUT + "/minilm", exist_ok=True)
    with open(OUT + "/minilm/expected.txt", "w") as f:
        for s in SENTENCES:
            ids = [vocab[x] for x in ["[CLS]"] + s.split() + ["[SEP]"]]
            place = ids.index(vocab["[MASK]"])
            states = forward(cfg, w, ids, "none", None)
            logits = head(cfg, w, states[-1][place])
            top = torch.topk(logits, 10)
            print("case", s, file=f)
            print("inject none\nids", *ids, file=f)
            print("top", place, " ".join("%d %.9g" % x for x in zip(top.indices.tolist(), top.values.tolist())), file=f)
            print("end", file=f)


make("bert", "bert", 1, extras=True)
make("bert-old-names", "bert", 2, act="gelu_new", gamma=True, separate=True, decoder_bias="cls.predictions.decoder.bias",
     full=False)
make("bert-no-head", "bert", 3, act="relu", prefixed=False, with_head=False, full=False)
make("roberta", "roberta", 4)
make("roberta-f16", "roberta", 4, dtype=torch.float16, full=False)
make("roberta-bf16", "roberta", 4, dtype=torch.bfloat16, full=False)
make("roberta-shards", "roberta", 5, act="relu", prefixed=False, separate=True, decoder_bias="lm_head.decoder.bias", shards=3,
     full=False)
make("distilbert", "distilbert", 6, full=False)
make_factored("electra", 8, 48, "relu")
make_factored("albert", 9, 20, "gelu_new")
make_modern(10)
if len(sys.argv) > 1:
    minilm(sys.argv[1])
