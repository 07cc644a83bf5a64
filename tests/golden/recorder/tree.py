"""Turns a neutral module tree (planner/families/neutral_tree) into nn.Modules.

Composite modules run the statements of their `forward`; a value is dropped after the last statement
that uses it, as the planner takes for granted.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

entered = []  # paths of the modules that are running, innermost last


class _Scope:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        entered.append(self.path)

    def __exit__(self, *_):
        entered.pop()


class _Leaf:
    def forward(self, x):
        with _Scope(self.path):
            return super().forward(x)


class Linear(_Leaf, nn.Linear):
    pass


class Embedding(_Leaf, nn.Embedding):
    pass


class LayerNorm(_Leaf, nn.LayerNorm):
    pass


def _attention(statement, q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}[statement["backend"]]
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=statement["causal"],
                                              enable_gqa=statement["gqa"])


def _split_heads(statement, x):
    batch, rows, width = x.shape
    heads = statement["heads"]
    return x.view(batch, rows, heads, width // heads).transpose(1, 2)


def _merge_heads(_, x):
    batch, heads, rows, width = x.shape
    return x.transpose(1, 2).reshape(batch, rows, heads * width)


_OPERATIONS = {
    "add": lambda s, a, b: a + b,
    "relu": lambda s, a: F.relu(a),
    "gelu": lambda s, a: F.gelu(a),
    "chunk": lambda s, a: a.chunk(s["n"], dim=s["dim"]),
    "split_heads": _split_heads,
    "merge_heads": _merge_heads,
    "sdpa": _attention,
}


def _last_uses(node):
    last = {}
    for i, statement in enumerate(node["forward"]):
        for name in statement["in"]:
            last[name] = i
    return last


class Composite(nn.Module):
    def forward(self, *inputs):
        with _Scope(self.path):
            values = dict(zip(self.node["inputs"], inputs))
            del inputs
            for i, statement in enumerate(self.node["forward"]):
                self._run(i, statement, values)
            return values.pop(self.node["output"])

    def _run(self, i, statement, values):
        arguments = [values[name] for name in statement["in"]]
        if statement["op"] == "call":
            result = self.get_submodule(statement["module"])(*arguments)
        else:
            result = _OPERATIONS[statement["op"]](statement, *arguments)
        del arguments
        out = statement["out"]
        names = out if isinstance(out, list) else [out]
        values.update(zip(out, result) if isinstance(out, list) else [(out, result)])
        del result
        for name in dict.fromkeys(statement["in"]):
            if self.last[name] == i and name not in names and name != self.node["output"]:
                del values[name]


def _make(node, path):
    shapes = {p["name"]: p["shape"] for p in node["params"]}
    kind = node["class"]
    if kind == "Linear":
        module = Linear(shapes["weight"][1], shapes["weight"][0], bias="bias" in shapes)
    elif kind == "Embedding":
        module = Embedding(*shapes["weight"])
    elif kind == "LayerNorm":
        module = LayerNorm(shapes["weight"][0], bias="bias" in shapes)
    elif kind == "ModuleList":
        module = nn.ModuleList()
    else:
        module = Composite()
        module.node, module.last = node, _last_uses(node)
    for child in node["children"]:
        module.add_module(child["name"], _make(child, f"{path}.{child['name']}".lstrip(".")))
    module.path = path
    return module


def _walk(node, path=""):
    yield path, node
    for child in node["children"]:
        yield from _walk(child, f"{path}.{child['name']}".lstrip("."))


def build(tree):
    root = _make(tree, "")
    parameters = dict(root.named_parameters())
    for path, node in _walk(tree):
        module = root.get_submodule(path)
        for p in node["params"]:
            if p["tie"]:
                setattr(module, p["name"], parameters[p["tie"]])
            else:
                getattr(module, p["name"]).requires_grad_(p["requires_grad"])
    return root
