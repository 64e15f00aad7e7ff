#!/usr/bin/python3
"""slow_peft.py MODEL ADAPTER PREDICTIONS ID... - holds the label probabilities of PREDICTIONS (keyhole predict --jsonl, with a key "ids"
beside them) to what PEFT makes of the adapter: its rows in front of the word embeddings of all tokens, through a Llama model. The forward pass
is written from the formulas with numpy, in double precision, and shares nothing with keyhole's. ID...: the label words."""
import json, struct, sys
import numpy as np


def tensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype(float)
            for name, t in head.items() if name != "__metadata__"}


def rms(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def turn(x, base):
    """Rotary positions: x [heads, places, width]; numbers i and i + width / 2 are a point of the plane."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * base ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def last_logits(c, w, x):
    heads, kv, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    n, width = len(x), c.get("head_dim", c["hidden_size"] // heads)
    split = lambda y, h: y.reshape(n, h, width).transpose(1, 0, 2)
    for layer in range(c["num_hidden_layers"]):
        at = lambda name: w[f"model.layers.{layer}.{name}.weight"]
        y = rms(x, at("input_layernorm"), eps)
        q = turn(split(y @ at("self_attn.q_proj").T, heads), c["rope_theta"])
        k = turn(split(y @ at("self_attn.k_proj").T, kv), c["rope_theta"]).repeat(heads // kv, 0)
        v = split(y @ at("self_attn.v_proj").T, kv).repeat(heads // kv, 0)
        s = q @ k.transpose(0, 2, 1) / np.sqrt(width) + np.triu(np.full((n, n), -np.inf), 1)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        x = x + (p @ v).transpose(1, 0, 2).reshape(n, heads * width) @ at("self_attn.o_proj").T
        y = rms(x, at("post_attention_layernorm"), eps)
        gate = y @ at("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ at("mlp.up_proj").T)) @ at("mlp.down_proj").T
    return rms(x[-1], w["model.norm.weight"], eps) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def main(model, adapter, predictions, *words):
    c, w = json.load(open(f"{model}/config.json")), tensors(f"{model}/model.safetensors")
    config = json.load(open(f"{adapter}/adapter_config.json"))
    prompt = tensors(f"{adapter}/adapter_model.safetensors")["prompt_embeddings"]
    assert config["peft_type"] == "PROMPT_TUNING" and config["task_type"] == "CAUSAL_LM"
    assert prompt.shape == (config["num_virtual_tokens"], config["token_dim"])
    words, worst, least = [int(i) for i in words], 0, 1
    for line in open(predictions):
        row = json.loads(line)
        said = list(row["distribution"].values())
        x = np.concatenate([prompt, w["model.embed_tokens.weight"][row["ids"]]])
        logits = last_logits(c, w, x)[words]
        p = np.exp(logits - logits.max())
        worst = max(worst, np.abs(p / p.sum() - said).max())
        alone = last_logits(c, w, x[len(prompt):])[words]
        alone = np.exp(alone - alone.max())
        least = min(least, np.abs(alone / alone.sum() - said).max())
    print(f"# largest difference of a probability {worst:.2g}; without the prompt at least {least:.2g}")
    return 0 if worst < 2e-6 and least > 1e-3 else 1


sys.exit(main(*sys.argv[1:]))
