#!/usr/bin/env python3
"""Trains tiny models in PyTorch and records what an executor has to reproduce; see README.md.

usage: make_training.py [--noise] [OUT_FOLDER]      needs torch, transformers and safetensors

Writes NAME_config.json, NAME_weights.safetensors and NAME_training.safetensors for each model, beside
this script unless told otherwise. With --noise, trains each model again in ways that should not matter and prints by how
much the results differ.
"""
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

STEPS, BATCH, SEQ, VOCAB = 10, 2, 16, 96
STD = 0.1  # larger than the usual 0.02, so that gradients are not small against rounding
# Of six that were tried the one whose training changes least when weights change by an ulp: with
# others, elements whose gradient happens to be near 0 move AdamW's weights by up to 6e-6.
WEIGHTS_SEED = 4

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
MODELS = {
    "llama": LLAMA,
    # A head tied to the embedding, and frequencies of which some are kept, some blended and some
    # divided: a head of 8 has the wavelengths 2 pi 10000^(0, 1/4, 1/2, 3/4) = 6.3, 63, 628, 6283.
    "llama_tied": {
        **LLAMA,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 32,
        "vocab_size": VOCAB,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
}

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_clipped": lambda p: torch.optim.SGD(p, lr=0.1),
}
MAX_NORM = 0.5  # of sgd_clipped: below every norm of these models


def make_model(fields, attention):
    fields = dict(fields, use_cache=False, attn_implementation=attention)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()


def initial_weights(model):
    """Normal matrices and biases, and normal around 1 for the scales of norms."""
    generator = torch.Generator().manual_seed(WEIGHTS_SEED)
    weights = {}
    for name, parameter in model.named_parameters():
        value = torch.randn(parameter.shape, generator=generator) * STD
        is_scale = parameter.dim() == 1 and name.endswith("weight")
        weights[name] = value + 1 if is_scale else value
    return weights


def make_tokens():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCAB, (STEPS, BATCH, SEQ + 1), generator=generator)


def train(fields, tokens, weights, optimizer, attention="sdpa"):
    """Losses of all steps, gradients of the first, weights after the last, norms of clipped gradients."""
    model = make_model(fields, attention)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    clips = optimizer == "sgd_clipped"
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    losses, norms, gradients = [], [], {}
    for step in range(STEPS):
        logits = model(input_ids=tokens[step, :, :-1]).logits
        loss = F.cross_entropy(logits.float().view(-1, VOCAB), tokens[step, :, 1:].reshape(-1))
        loss.backward()
        if step == 0:
            gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
        if clips:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    final = {n: p.detach().clone() for n, p in model.named_parameters()}
    return torch.stack(losses), gradients, final, norms


def record(name, fields, folder):
    tokens = make_tokens()
    weights = initial_weights(make_model(fields, "sdpa"))
    save_file(weights, os.path.join(folder, name + "_weights.safetensors"))
    tensors = {"tokens": tokens}
    for optimizer in OPTIMIZERS:
        losses, gradients, final, norms = train(fields, tokens, weights, optimizer)
        tensors[optimizer + "/losses"] = losses
        if norms:
            tensors[optimizer + "/norms"] = torch.stack(norms)
        tensors.update({"gradient/" + n: g for n, g in gradients.items()})
        tensors.update({optimizer + "/final/" + n: w for n, w in final.items()})
    with open(os.path.join(folder, name + "_config.json"), "w") as file:
        json.dump(fields, file, indent=2)
        file.write("\n")
    save_file(tensors, os.path.join(folder, name + "_training.safetensors"))


def without_key_bias(name, tensor):
    """GPT-2's key bias adds the same to all scores of a query, which softmax ignores: its gradient is
    rounding, and AdamW makes steps of full length of it."""
    if not name.endswith("c_attn.bias"):
        return tensor
    query, _, value = tensor.chunk(3)
    return torch.cat((query, value))


def difference(a, b, part=lambda name, tensor: tensor):
    """The largest difference of a tensor over its largest value, of all tensors."""
    pairs = [(part(n, a[n]), part(n, b[n])) for n in a]
    return max(float((x - y).abs().max() / x.abs().max()) for x, y in pairs)


def print_noise(name, fields):
    tokens = make_tokens()
    weights = initial_weights(make_model(fields, "sdpa"))
    one_ulp = {n: torch.nextafter(w, torch.full_like(w, torch.inf)) for n, w in weights.items()}
    for optimizer in OPTIMIZERS:
        base = train(fields, tokens, weights, optimizer)
        torch.set_num_threads(2)
        others = {"2 threads": train(fields, tokens, weights, optimizer)}
        torch.set_num_threads(1)
        others["again"] = train(fields, tokens, weights, optimizer)
        others["eager attention"] = train(fields, tokens, weights, optimizer, "eager")
        with sdpa_kernel(SDPBackend.MATH):
            others["math attention"] = train(fields, tokens, weights, optimizer)
        others["weights 1 ulp up"] = train(fields, tokens, one_ulp, optimizer)
        for what, other in others.items():
            loss = float(((base[0] - other[0]) / base[0]).abs().max())
            print(f"| {name} | {optimizer} | {what} | {loss:.1e} | {difference(base[1], other[1]):.1e} "
                  f"| {difference(base[2], other[2], without_key_bias):.1e} "
                  f"| {difference(base[2], other[2]):.1e} |")


def main():
    arguments = sys.argv[1:]
    noise = "--noise" in arguments
    folders = [a for a in arguments if a != "--noise"]
    folder = folders[0] if folders else os.path.dirname(os.path.abspath(__file__))
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for name, fields in MODELS.items():
        if noise:
            print_noise(name, fields)
        else:
            record(name, fields, folder)


if __name__ == "__main__":
    main()
