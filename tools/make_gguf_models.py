#!/usr/bin/python3
"""make_gguf_models.py - tiny models as llama.cpp's converter writes them (Debian: python3-numpy).

Reads tests/vectors/decoders/NAME and tests/vectors/models/NAME (config.json, model.safetensors) and writes
tests/vectors/gguf/NAME.gguf: other keys, other names, and the changes that the converter makes to numbers (rows of queries and keys
of llama, norms of gemma3, matrices of gpt2). llama is also split into two files, and bert has no head, as the converter drops it.
"""
import json, os, struct
import numpy as np

FROM = "tests/vectors/decoders"
OUT = "tests/vectors/gguf"
TYPES = {"F32": ("<f4", 0, 4), "F16": ("<f2", 1, 2), "BF16": ("<u2", 30, 2)}


def read(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    head = json.loads(b[8:8 + n])
    out = {}
    for name, t in head.items():
        if name != "__metadata__" and t["dtype"] in TYPES:
            a, z = t["data_offsets"]
            dtype = TYPES[t["dtype"]]
            out[name] = (np.frombuffer(b[8 + n + a:8 + n + z], dtype=dtype[0]).reshape(t["shape"]), dtype[1])
    return out


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    if isinstance(v, bool):
        return struct.pack("<IB", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    return struct.pack("<I", 8) + text(v)


def write(path, keys, tensors):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for k, v in keys.items():
        out += text(k) + value(v)
    data = b""
    for name, (a, kind) in tensors.items():
        out += text(name) + struct.pack("<I", a.ndim) + b"".join(struct.pack("<Q", d) for d in reversed(a.shape))
        out += struct.pack("<IQ", kind, len(data))
        data += np.ascontiguousarray(a).tobytes()
        data += b"\0" * (-len(data) % 32)
    open(path, "wb").write(out + b"\0" * (-len(out) % 32) + data)


def pairs(a, heads):
    """Halves of a head become pairs side by side."""
    rest = a.shape[1:]
    return a.reshape(heads, 2, a.shape[0] // heads // 2, *rest).swapaxes(1, 2).reshape(a.shape)


LLAMA = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
GEMMA = {**LLAMA, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
        "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def rename(name, table):
    for prefix in ("model.", "transformer.", "bert."):
        if name.startswith(prefix):
            name = name[len(prefix):]
    body, end = name.rsplit(".", 1)
    if body == "lm_head":
        return "output." + end
    part = body.split(".")
    for start in (["layers"], ["h"], ["encoder", "layer"]):
        if part[:len(start)] == start:
            layer, rest = part[len(start)], ".".join(part[len(start) + 1:])
            return "blk.%s.%s.%s" % (layer, table[rest], end) if rest in table else None
    return "%s.%s" % (table[body], end) if body in table else None


def f32(a, kind):
    return a.astype("<f4") if kind == 1 else (a.astype(np.uint32) << 16).view("<f4") if kind == 30 else a


def make(name, arch, table, folder=FROM):
    c = json.load(open("%s/%s/config.json" % (folder, name)))
    get = lambda *keys: next((c[k] for k in keys if c.get(k) is not None), None)
    layers, hidden = get("num_hidden_layers", "n_layer"), get("hidden_size", "n_embd")
    heads = get("num_attention_heads", "n_head")
    keys = {"general.architecture": arch, "general.name": "tiny " + name, arch + ".block_count": layers, arch + ".embedding_length": hidden,
            arch + ".attention.head_count": heads, arch + ".feed_forward_length": get("intermediate_size", "n_inner") or 4 * hidden,
            arch + ".context_length": get("max_position_embeddings", "n_positions")}
    if arch in ("gpt2", "bert"):
        keys[arch + ".attention.layer_norm_epsilon"] = float(get("layer_norm_epsilon", "layer_norm_eps") or (1e-5 if arch == "gpt2" else 1e-12))
    else:
        kv = get("num_key_value_heads") or heads
        keys[arch + ".attention.head_count_kv"] = kv
        keys[arch + ".attention.layer_norm_rms_epsilon"] = float(get("rms_norm_eps") or 1e-6)
        keys[arch + ".rope.freq_base"] = float(get("rope_theta") or 10000)
        keys[arch + ".attention.key_length"] = get("head_dim") or hidden // heads
        if arch == "gemma3":
            keys[arch + ".attention.sliding_window"] = c["sliding_window"]
    tensors = {}
    for n, (a, kind) in read("%s/%s/model.safetensors" % (folder, name)).items():
        to = rename(n, table)
        if not to:
            assert arch == "bert" or n.endswith((".attn.bias", ".attn.masked_bias")), n
            continue
        if arch == "llama" and (".attn_q." in to or ".attn_k." in to):
            a = pairs(a, heads if ".attn_q." in to else kv)
        if arch == "gemma3" and to.endswith("norm.weight"):
            a, kind = f32(a, kind) + np.float32(1), 0
        if arch == "gpt2" and a.ndim == 2 and to not in ("token_embd.weight", "position_embd.weight", "output.weight"):
            a = a.T
        if a.ndim == 1:
            a, kind = f32(a, kind), 0
        tensors[to] = (a, kind)
    write("%s/%s.gguf" % (OUT, name), keys, tensors)
    return keys, tensors


keys, tensors = make("llama", "llama", LLAMA)
names = list(tensors)
for i in range(2):
    part = {"split.no": i, "split.count": 2, "split.tensors.count": len(names)}
    write("%s/llama-split-%05d-of-00002.gguf" % (OUT, i + 1), {**(keys if i == 0 else {}), **part}, {n: tensors[n] for n in names[i::2]})
make("qwen2", "qwen2", LLAMA)
make("qwen3", "qwen3", LLAMA)
make("gemma3", "gemma3", GEMMA)
make("gpt2", "gpt2", GPT2)
make("bert", "bert", BERT, "tests/vectors/models")
