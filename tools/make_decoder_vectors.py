#!/usr/bin/python3
"""Golden vectors for decoders, from an independent implementation in PyTorch (Debian: python3-torch).

    /usr/bin/python3 tools/make_decoder_vectors.py

Writes tests/vectors/decoders/NAME/{config.json, model.safetensors, expected.txt} for tiny random models of every decoder
architecture. The formulas are those of the publications (Radford et al. 2019; Touvron et al. 2023; Jiang et al. 2023; Qwen2 and
Qwen3 reports; Gemma 3 report; Su et al. 2021 for rotary positions) and of Hugging Face's documentation of the config keys;
everything is computed in float64 from the stored weights, so the values are exact to f32. Nothing here is used by the tests but the
files it wrote. expected.txt is as tools/make_model_vectors.py says.
"""
import json, math, os, struct
import torch

OUT = "tests/vectors/decoders"
TYPE = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        t = t.contiguous()
        b = (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()
        header[name] = {"dtype": TYPE[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(b)]}
        data += b
    h = json.dumps(header, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + data)


# ---- the pass, on a dict of plainly named float64 tensors -------------------------------------------------------------

def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + torch.exp(-x))


ACT = {"gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "silu": silu}


def norm(c, w, name, x):
    g = w[name + ".g"]
    if c["norm"] == "layer":
        m = x.mean(-1, keepdim=True)
        v = ((x - m) ** 2).mean(-1, keepdim=True)
        return (x - m) / torch.sqrt(v + c["eps"]) * g + w[name + ".b"]
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["eps"])
    return x * (1 + g if c["norm"] == "rms1" else g)


def dense(w, name, x):
    y = x @ w[name + ".w"].T
    return y + w[name + ".b"] if name + ".b" in w else y


def frequencies(c, local):
    """Radians per position of each pair of numbers."""
    d, theta, s = c["head_dim"], c["local_theta"] if local else c["theta"], c.get("scaling")
    f = [theta ** (-2 * i / d) for i in range(d // 2)]
    if s is None or local:
        return f
    kind = s.get("rope_type", s.get("type"))
    if kind == "linear":
        return [x / s["factor"] for x in f]
    assert kind == "llama3"
    out = []
    for x in f:
        length, low, high = 2 * math.pi / x, s["low_freq_factor"], s["high_freq_factor"]
        turns = s["original_max_position_embeddings"] / length
        if turns < low:
            out.append(x / s["factor"])
        elif turns > high:
            out.append(x)
        else:
            smooth = (turns - low) / (high - low)
            out.append((1 - smooth) * x / s["factor"] + smooth * x)
    return out


def rotate(x, f):
    """x [heads, T, D]: numbers i and i + D/2 are a point in the plane, turned by position * f[i]."""
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * torch.tensor(f, dtype=torch.float64)
    cos, sin, half = torch.cos(angle), torch.sin(angle), x.shape[2] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def split(x, heads):
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1)


def window(c, layer):
    """How many places a token sees, itself included; None: all before it."""
    if c.get("window") is None or (c.get("pattern") and (layer + 1) % c["pattern"] == 0):
        return None
    return c["window"]


def attend(c, w, i, x):
    q, k, v = (split(dense(w, f"{i}.{n}", x), h) for n, h in (("q", c["heads"]), ("k", c["kv"]), ("v", c["kv"])))
    if c.get("qk_norm"):
        q, k = norm(c, w, f"{i}.qn", q), norm(c, w, f"{i}.kn", k)
    limit = window(c, i)
    if c["theta"]:
        f = frequencies(c, c.get("local_theta") is not None and limit is not None)
        q, k = rotate(q, f), rotate(k, f)
    group = c["heads"] // c["kv"]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    s = q @ k.transpose(1, 2) * c["scale"]
    t = torch.arange(len(x))
    seen = t[None, :] <= t[:, None]
    if limit:
        seen &= t[None, :] > t[:, None] - limit
    a = torch.softmax(s.masked_fill(~seen, -math.inf), -1) @ v
    return dense(w, f"{i}.o", a.transpose(0, 1).reshape(len(x), -1))


def forward(c, w, ids, inject, prompt):
    words = w["word"][torch.tensor(ids)] * c.get("embed_scale", 1)
    if inject == "embed-prefix":
        words = torch.cat([prompt, words])
    if inject == "embed-inplace":
        words = torch.cat([words[:1], prompt, words[1:]])
    x = words + w["position"][:len(words)] if "position" in w else words
    states = [x]
    for i in range(c["layers"]):
        a = attend(c, w, i, norm(c, w, f"{i}.ln1", x))
        x = x + (norm(c, w, f"{i}.post1", a) if c.get("post") else a)
        y = norm(c, w, f"{i}.ln2", x)
        act = ACT[c["act"]]
        y = act(dense(w, f"{i}.gate", y)) * dense(w, f"{i}.up", y) if c["gated"] else act(dense(w, f"{i}.up", y))
        y = dense(w, f"{i}.down", y)
        x = x + (norm(c, w, f"{i}.post2", y) if c.get("post") else y)
        states.append(x)
    return torch.stack(states)


def head(c, w, x):
    return norm(c, w, "final", x) @ w.get("decoder", w["word"]).T


# ---- random weights, and their names in files -------------------------------------------------------------------------

def random_weights(c, seed):
    """Larger than an initialisation would make them, so that attention and activations have something to do."""
    g = torch.Generator().manual_seed(seed)
    h, inner, w = c["hidden"], c["inner"], {}

    def normal(name, *shape, std, mean=0.0):
        w[name] = mean + std * torch.randn(*shape, generator=g)

    def linear(name, out, inn, bias):
        normal(name + ".w", out, inn, std=1.2 / math.sqrt(inn))
        if bias:
            normal(name + ".b", out, std=0.3)

    def gain(name, n):
        normal(name + ".g", n, std=0.2, mean=0.0 if c["norm"] == "rms1" else 1.0)
        if c["norm"] == "layer":
            normal(name + ".b", n, std=0.2)

    normal("word", c["vocab"], h, std=0.7)
    if not c["theta"]:
        normal("position", c["positions"], h, std=0.5)
    for i in range(c["layers"]):
        gain(f"{i}.ln1", h)
        for n, heads in (("q", c["heads"]), ("k", c["kv"]), ("v", c["kv"])):
            linear(f"{i}.{n}", heads * c["head_dim"], h, c.get("qkv_bias"))
        linear(f"{i}.o", h, c["heads"] * c["head_dim"], c.get("o_bias"))
        if c.get("qk_norm"):
            gain(f"{i}.qn", c["head_dim"])
            gain(f"{i}.kn", c["head_dim"])
        gain(f"{i}.ln2", h)
        if c.get("post"):
            gain(f"{i}.post1", h)
            gain(f"{i}.post2", h)
        if c["gated"]:
            linear(f"{i}.gate", inner, h, c.get("mlp_bias"))
        linear(f"{i}.up", inner, h, c.get("mlp_bias"))
        linear(f"{i}.down", h, inner, c.get("mlp_bias"))
    gain("final", h)
    if not c["tied"]:
        normal("decoder", c["vocab"], h, std=0.7)
    return w


LLAMA_LAYER = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
               "qn": "self_attn.q_norm", "kn": "self_attn.k_norm", "ln1": "input_layernorm", "ln2": "post_attention_layernorm",
               "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
GEMMA_LAYER = {**LLAMA_LAYER, "post1": "post_attention_layernorm", "ln2": "pre_feedforward_layernorm",
               "post2": "post_feedforward_layernorm"}
GPT2_LAYER = {"o": "attn.c_proj", "ln1": "ln_1", "ln2": "ln_2", "up": "mlp.c_fc", "down": "mlp.c_proj"}
END = {"w": ".weight", "g": ".weight", "b": ".bias"}


def file_tensors(c, w, prefixed):
    gpt2, out = c["type"] == "gpt2", {}
    prefix = ("transformer." if gpt2 else "model.") if prefixed else ""
    top = {"word": "wte.weight", "position": "wpe.weight", "final.g": "ln_f.weight", "final.b": "ln_f.bias"} if gpt2 else {
        "word": "embed_tokens.weight", "final.g": "norm.weight"}
    names = GPT2_LAYER if gpt2 else GEMMA_LAYER if c.get("post") else LLAMA_LAYER
    for key, t in w.items():
        if key == "decoder":
            out["lm_head.weight"] = t
        elif key in top:
            out[prefix + top[key]] = t
        else:
            i, part, end = key.split(".")
            if gpt2 and part in "qkv":
                continue
            turned = gpt2 and end == "w"  # Conv1D keeps [in, out]
            out[f"{prefix}{'h' if gpt2 else 'layers'}.{i}.{names[part]}{END[end]}"] = t.T if turned else t
    for i in range(c["layers"] if gpt2 else 0):
        out[f"{prefix}h.{i}.attn.c_attn.weight"] = torch.cat([w[f"{i}.{n}.w"] for n in "qkv"]).T
        out[f"{prefix}h.{i}.attn.c_attn.bias"] = torch.cat([w[f"{i}.{n}.b"] for n in "qkv"])
        out[f"{prefix}h.{i}.attn.bias"] = torch.tril(torch.ones(8, 8)).reshape(1, 1, 8, 8)  # old files carry their mask
    return out


# ---- cases ------------------------------------------------------------------------------------------------------------

def numbers(t):
    return " ".join("%.9g" % x for x in t.reshape(-1).tolist())


def write_case(f, name, c, w, ids, inject="none", prompt=None, at=()):
    states = forward(c, w, ids, inject, prompt)
    print("case", name, file=f)
    print("inject", inject, file=f)
    print("ids", *ids, file=f)
    if prompt is not None:
        print("prompt", len(prompt), numbers(prompt), file=f)
    print("hidden", *states.shape, numbers(states), file=f)
    for place in at:
        print("logits", place, numbers(head(c, w, states[-1][place])), file=f)
    print("end", file=f)


def make(name, seed, keys, dtype=torch.float32, prefixed=True, **own):
    c = {"type": keys["model_type"], "vocab": 64, "hidden": 24, "layers": 2, "heads": 4, "kv": 4, "head_dim": 6, "inner": 40,
         "positions": 48, "norm": "rms", "gated": True, "act": "silu", "theta": 10000.0, "eps": 1e-6, "tied": False, **own}
    c.setdefault("scale", c["head_dim"] ** -0.5)
    stored = {k: t.to(dtype) for k, t in random_weights(c, seed).items()}
    folder = f"{OUT}/{name}"
    os.makedirs(folder, exist_ok=True)
    if c["type"] == "gpt2":
        sizes = {"n_layer": c["layers"], "n_embd": c["hidden"], "n_head": c["heads"], "n_inner": c["inner"],
                 "n_positions": c["positions"], "activation_function": c["act"], "layer_norm_epsilon": c["eps"]}
    else:
        sizes = {"num_hidden_layers": c["layers"], "hidden_size": c["hidden"], "num_attention_heads": c["heads"],
                 "num_key_value_heads": c["kv"], "intermediate_size": c["inner"], "max_position_embeddings": c["positions"],
                 "hidden_activation" if c.get("post") else "hidden_act": c["act"], "rms_norm_eps": c["eps"],
                 "rope_theta": c["theta"], "tie_word_embeddings": c["tied"]}
    config = {"vocab_size": c["vocab"], **sizes, "bos_token_id": 1, "eos_token_id": 2,
              "torch_dtype": str(dtype).split(".")[1], **keys}
    open(folder + "/config.json", "w").write(json.dumps(config, indent=2) + "\n")
    write_safetensors(folder + "/model.safetensors", file_tensors(c, stored, prefixed))

    w = {k: t.to(torch.float64) for k, t in stored.items()}
    g = torch.Generator().manual_seed(seed + 1)

    def ids(n):
        return [1] + torch.randint(3, c["vocab"], (n - 1,), generator=g).tolist()

    def soft(n):
        return (0.8 * torch.randn(n, c["hidden"], generator=g)).to(torch.float32).to(torch.float64)

    with open(folder + "/expected.txt", "w") as f:
        write_case(f, "plain-11", c, w, ids(11), at=(0, 4, 10))
        write_case(f, "embed-prefix", c, w, ids(5), "embed-prefix", soft(3), at=(7,))
        write_case(f, "embed-inplace", c, w, ids(5), "embed-inplace", soft(3), at=(7,))


GPT2 = dict(norm="layer", gated=False, act="gelu_new", theta=0, eps=1e-5, tied=True, qkv_bias=True, o_bias=True, mlp_bias=True)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
make("gpt2", 21, {"model_type": "gpt2"}, **GPT2)
make("gpt2-no-prefix", 22, {"model_type": "gpt2"}, torch.float16, prefixed=False, **GPT2)
make("llama", 23, {"model_type": "llama"}, kv=2, eps=1e-5)
make("llama-linear", 24, {"model_type": "llama", "head_dim": 8, "rope_scaling": {"type": "linear", "factor": 2.5}},
     torch.bfloat16, tied=True, head_dim=8, scaling={"type": "linear", "factor": 2.5})
make("llama3", 25, {"model_type": "llama", "rope_scaling": LLAMA3, "attention_bias": True, "mlp_bias": True}, torch.bfloat16,
     heads=4, kv=1, theta=500.0, scaling=LLAMA3, qkv_bias=True, o_bias=True, mlp_bias=True)
make("mistral", 26, {"model_type": "mistral", "sliding_window": 4}, torch.bfloat16, kv=2, window=4)
make("qwen2", 27, {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1}, torch.bfloat16,
     kv=2, qkv_bias=True, theta=1000000.0, tied=True)
make("qwen3", 28, {"model_type": "qwen3", "head_dim": 8, "attention_bias": False}, torch.bfloat16, kv=2, head_dim=8, qk_norm=True,
     theta=1000000.0, tied=True)
make("gemma3", 29, {"model_type": "gemma3_text", "head_dim": 8, "query_pre_attn_scalar": 10, "sliding_window": 4,
                    "sliding_window_pattern": 3, "rope_local_base_freq": 10000.0, "attn_logit_softcapping": None,
                    "final_logit_softcapping": None}, torch.bfloat16, layers=3, kv=1, head_dim=8, qk_norm=True, norm="rms1",
     post=True, act="gelu_pytorch_tanh", theta=1000000.0, local_theta=10000.0, window=4, pattern=3, scale=10 ** -0.5,
     embed_scale=math.sqrt(24), tied=True)
