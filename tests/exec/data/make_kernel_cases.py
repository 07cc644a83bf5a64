#!/usr/bin/env python3
"""Makes kernel_cases.json and kernel_cases.bin: what PyTorch computes for every row of the op library.

    python3 make_kernel_cases.py [folder]     (torch 2.15)

Expected values come from the operator on float64 copies of the operands, so that they are exact for
any kernel that computes in fp32; where PyTorch's CPU build has no such operator, from its definition
in float64 (rope, fused cross entropy, fused RMS norm) or from the CPU's operator of the same
mathematics (the attention kernels of CUDA). Dropout without attention draws random numbers that are
not PyTorch's and is tested by its properties instead.

The index is a list of cases, one a line:
  {"kernel": row, "attributes": {...}, "in": [tensor...], "out": [tensor...]}
A tensor is {"dtype", "shape", "strides" (elements; row-major if absent)}. The binary file has their
memory in the order of the index, each from a multiple of 8 bytes on: of an operand all elements from
the first to the last, whether or not its strides skip some; of a result the expected values, row-major,
in fp32 or, if it is of integers, in int64. The strides of a result are those that the kernel is to write
with; "tolerance" (1e-6 if absent) is relative to the largest of the expected values, beside one rounding to
its dtype.
"""

import json
import math
import os
import sys

import torch
import torch.nn.functional as F

aten = torch.ops.aten
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.int64: "int64",
         torch.uint64: "uint64", torch.bool: "bool"}
f32, bf16, f16, f64, i64 = torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64

cases, blob = [], bytearray()


def store(flat):
    while len(blob) % 8:
        blob.append(0)
    blob.extend(flat.contiguous().view(torch.uint8).numpy().tobytes())


def described(dtype, shape, strides):
    entry = {"dtype": NAMES[dtype], "shape": list(shape)}
    if tuple(strides) != torch.empty(shape).stride():
        entry["strides"] = list(strides)
    return entry


def operand(t):
    """The memory from the first to the last element, however the tensor lies in it."""
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) if t.numel() else -1
    flat = torch.as_strided(t, (last + 1,), (1,), t.storage_offset())
    return flat, described(t.dtype, t.shape, t.stride())


def result(value, dtype, tolerance, like=None):
    """`like`: a tensor whose strides the result takes."""
    kept = i64 if dtype in (i64, torch.uint64, torch.bool) else f32
    # The gap of permuted strides is closed: only the order of the dimensions counts.
    strides = torch.empty_like(like if like is not None else value.contiguous()).stride()
    entry = described(dtype, value.shape, strides)
    if tolerance != TIGHT:
        entry["tolerance"] = tolerance
    return value.detach().to(kept).contiguous().reshape(-1), entry


def case(kernel, inputs, outputs, **attributes):
    tensors = [operand(t) for t in inputs] + outputs
    for memory, _ in tensors:
        store(memory)
    entries = [entry for _, entry in tensors]
    line = {"kernel": kernel, "in": entries[:len(inputs)], "out": entries[len(inputs):]}
    cases.append(dict(line, attributes=attributes) if attributes else line)


def wide(t):
    return t.detach().to(f64)


def rand(*shape, dtype=f32, low=-2.0, high=2.0):
    return (torch.rand(shape, dtype=f32) * (high - low) + low).to(dtype)


def layouts(*shape, dtype=f32, **range_):
    """The same shape contiguous and transposed; in fp32 also expanded, and as every other element."""
    swapped = list(shape)
    swapped[-1], swapped[-2] = swapped[-2], swapped[-1]
    yield rand(*shape, dtype=dtype, **range_)
    yield rand(*swapped, dtype=dtype, **range_).transpose(-1, -2)
    if dtype != f32:
        return
    yield rand(*shape[:-1], 1, dtype=dtype, **range_).expand(*shape)
    yield rand(*shape[:-1], 2 * shape[-1], dtype=dtype, **range_)[..., ::2]


TIGHT = 1e-6  # fp32 rounding of a few operations
DTYPES = (f32, bf16)  # fp16 goes through the same code, and casts test it


# ---- elementwise
def unary(kernel, function, tolerance=TIGHT, low=-4.0, high=4.0, **attributes):
    for dtype in DTYPES:
        for x in layouts(2, 11, dtype=dtype, low=low, high=high):
            y = function(wide(x))
            like = x if x.stride() == (1, 2) else None
            case(kernel, [x], [result(y, dtype, tolerance, like)], **attributes)


def binary(kernel, function, tolerance=TIGHT):
    pairs = [(f32, f32, f32), (bf16, bf16, bf16), (bf16, f32, f32)]
    for a_type, b_type, out in pairs:
        for a in layouts(2, 11, dtype=a_type):
            b = rand(2, 11, dtype=b_type)
            like = a if a.stride() == (1, 2) else None
            case(kernel, [a, b], [result(function(wide(a), wide(b)), out, tolerance, like)])


def elementwise():
    binary("add", torch.add)
    binary("mul", torch.mul)
    for shapes in [((2, 5, 3, 8), (2, 5, 1, 8)), ((2, 4, 6), (6,)), ((2, 4, 1), (4, 6)), ((), ())]:
        a, b = (rand(*s) for s in shapes)
        case("add", [a, b], [result(wide(a) + wide(b), f32, TIGHT)])
        case("mul", [a, b], [result(wide(a) * wide(b), f32, TIGHT)])
    # more elements than pass through a kernel's buffers at once
    a, b = rand(1030, dtype=bf16), rand(1030, dtype=bf16)
    case("add", [a, b], [result(wide(a) + wide(b), bf16, TIGHT)])
    for dtype in (f32, bf16):
        a, b = rand(4, 9, dtype=dtype), rand(9, 4, dtype=dtype).t()
        case("add_", [a, b], [result(wide(a) + wide(b), dtype, TIGHT)])
    for value in (0.3,):
        unary("add_scalar", lambda x: x + value, scalar=value)
        unary("mul_scalar", lambda x: x * value, scalar=value)
    positions = torch.arange(7) + 2**40
    case("add_scalar", [positions], [result(positions + 3, i64, 0)], scalar=3)
    for exponent in (1, 2, 3):
        unary("pow_scalar", lambda x: aten.pow.Tensor_Scalar(x, exponent), scalar=exponent)
    for exponent in (0.5, -1.5):
        unary("pow_scalar", lambda x: x**exponent, low=0.1, scalar=exponent)
    unary("neg", torch.neg)
    unary("rsqrt", torch.rsqrt, low=0.01)
    unary("cos", torch.cos, low=-300, high=300)
    unary("sin", torch.sin, low=-300, high=300)
    for dtype in (f32, bf16):
        x = rand(2, 3, 1, dtype=dtype)
        case("div_expand", [x], [result((wide(x) / 7).expand(2, 3, 7), dtype, TIGHT)], scalar=7)
    mask = torch.rand(5, 6) < 0.5
    for dtype in (f32, bf16):
        bias = torch.where(mask, 0.0, -math.inf)
        case("mask_to_bias", [mask], [result(bias, dtype, 0)])
    mask = torch.rand(4, 9) < 0.6
    for dtype in (f32, bf16):
        g = rand(4, 9)
        case("dropout_backward", [g.to(dtype), mask], [result(
            aten.native_dropout_backward(wide(g.to(dtype)), mask, 1 / 0.75), dtype, TIGHT)],
             scalar=0.25)


def activations():
    unary("relu", torch.relu)
    unary("gelu", lambda x: aten.gelu(x, approximate="none"))
    unary("gelu_tanh", lambda x: aten.gelu(x, approximate="tanh"))
    unary("tanh", torch.tanh)
    unary("silu", aten.silu)
    unary("silu", aten.silu, low=-100, high=100)
    backwards = {
        "relu_backward": lambda g, y: aten.threshold_backward(g, torch.relu(y), 0),
        "gelu_backward": lambda g, x: aten.gelu_backward(g, x, approximate="none"),
        "gelu_tanh_backward": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
        "silu_backward": aten.silu_backward,
        "tanh_backward": aten.tanh_backward,
    }
    for kernel, function in backwards.items():
        for dtype in DTYPES:
            for x in layouts(2, 11, dtype=dtype):
                g = rand(2, 11, dtype=dtype)
                if kernel == "relu_backward":
                    x = torch.relu(x)
                if kernel == "tanh_backward":
                    x = torch.tanh(x)
                case(kernel, [g, x], [result(function(wide(g), wide(x)), dtype, 2 * TIGHT)])


# ---- copies and fills
def copies():
    for source in (f32, bf16, f16, i64, torch.bool):
        x = (torch.rand(2, 7) * 9 - 4).to(source)
        for target in (f32, bf16, f16, i64, torch.bool):
            exact = x.to(target) if target in (i64, torch.bool) else x.to(f64)
            case("cast", [x.t()], [result(exact.t(), target, 0, x.t())])
            if source == f32:
                case("cast", [x], [result(exact, target, 0, x.t().contiguous().t())])
    # ties, subnormal, infinite and too large numbers
    odd = torch.tensor([1.00390625, 1.01171875, 1e-40, 6e-8, 65519.0, 65520.0, 3.4e38, math.inf,
                        -math.inf, -0.0, 2.98023223876953125e-8])
    for target in (bf16, f16):
        case("cast", [odd], [result(odd.to(target).to(f32), target, 0)])
    for dtype in (f32, bf16, i64, torch.bool):
        x = (torch.rand(2, 3, 2, 5) * 9 - 4).to(dtype)
        for view in (x, x.transpose(1, 2), x[:, :1].expand(2, 4, 2, 5), x.permute(3, 1, 0, 2)):
            case("copy", [view], [result(view.to(f32 if dtype == bf16 else dtype), dtype, 0)])
    for dtype in (f32, bf16):
        a, b, c = rand(2, 3, 4, dtype=dtype), rand(3, 2, 5, dtype=dtype).transpose(0, 1), rand(
            2, 3, 1, dtype=dtype).expand(2, 3, 6)
        case("cat2", [a, b], [result(torch.cat([a, b], -1), dtype, 0)])
        case("cat3", [a, b, c], [result(torch.cat([a, b, c], -1), dtype, 0)])
        for dim, start, length in ((2, 0, 3), (2, 2, 3), (1, 1, 2), (0, 1, 1)):
            shape = [2, 3, 6]
            shape[dim] = length
            for g in layouts(*shape, dtype=dtype):
                y = aten.slice_backward(g.to(f32), [2, 3, 6], dim, start, start + length, 1)
                case("slice_backward", [g], [result(y, dtype, 0)],
                     slice={"dim": dim, "start": start, "length": length})
    for x, value in ((torch.arange(6).view(2, 3), -100), (torch.arange(6).view(3, 2).t(), 7)):
        for count in (0, 1, 4):
            y = F.pad(x, (0, count), value=value)
            case("pad_last", [x], [result(y, i64, 0)], scalar=value)
    for t in (torch.ones(5, 7, dtype=torch.bool), rand(7, 5), rand(4, 9, dtype=bf16)):
        y = torch.tril(t)
        case("tril", [t], [result(y.to(f32) if t.dtype == bf16 else y, t.dtype, 0)])
    case("arange", [], [result(torch.arange(11), i64, 0)])
    case("arange", [], [result(torch.arange(11), f32, 0)])
    for dtype in (f32, bf16, i64, torch.bool):
        like = torch.empty(5, 3).t()
        case("zeros", [], [result(torch.zeros(3, 5), dtype, 0, like)])
        case("ones", [], [result(torch.ones(3, 5), dtype, 0, like)])
        case("ones_like", [rand(3, 5)], [result(torch.ones(3, 5), dtype, 0)])
    case("ones_like", [rand()], [result(torch.ones(()), f32, 0)])


# ---- reductions
def reductions():
    for dtype in (f32, bf16):
        long = [rand(1, 1, 1030, dtype=dtype)] if dtype == bf16 else []
        for x in list(layouts(3, 34, dtype=dtype)) + long:
            case("mean_last", [x], [result(wide(x).mean(-1, keepdim=True), dtype, TIGHT)])
            case("sum_all", [x], [result(wide(x).sum(), dtype, TIGHT)])
        x = rand(2, 3, 4, dtype=dtype)
        views = (x, x.transpose(0, 2), x.transpose(1, 2), x[:, :1].expand(2, 5, 4))
        for view in views if dtype == f32 else views[1:2]:
            for kept in ([0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 1]):
                dims = [d for d in range(3) if kept[d] == 0]
                y = aten.sum.dim_IntList(wide(view), dims, True) if dims else wide(view)
                case("sum_to", [view], [result(y, dtype, TIGHT)])
            for dim in range(3):
                case("sum_dim", [view], [result(wide(view).sum(dim, keepdim=True), dtype, TIGHT)],
                     dim=dim)
        long = rand(130, 2, dtype=dtype)
        case("sum_to", [long], [result(wide(long).sum(0, keepdim=True), dtype, TIGHT)])


def softmaxes():
    for dtype in (f32, bf16):
        inputs = list(layouts(2, 35, dtype=dtype, low=-20.0, high=20.0))
        for x in inputs:
            g = rand(*x.shape, dtype=dtype)
            case("softmax", [x], [result(aten._safe_softmax(wide(x), -1), dtype, TIGHT)])
            case("log_softmax", [x], [result(aten._log_softmax(wide(x), -1, False), dtype, TIGHT)])
            y = torch.softmax(wide(x), -1).to(dtype)
            case("softmax_backward", [g, y], [result(
                aten._softmax_backward_data(wide(g), wide(y), -1, f64), dtype, TIGHT)])
            y = torch.log_softmax(wide(x), -1).to(dtype)
            case("log_softmax_backward", [g, y], [result(
                aten._log_softmax_backward_data(wide(g), wide(y), -1, f64), dtype, TIGHT)])
    x, g = rand(1, 1030, dtype=bf16), rand(1, 1030, dtype=bf16)
    y = torch.log_softmax(wide(x), -1)
    case("log_softmax", [x], [result(y, bf16, TIGHT)])
    y = y.exp().to(bf16)
    case("softmax_backward", [g, y], [result(
        aten._softmax_backward_data(wide(g), wide(y), -1, f64), bf16, TIGHT)])
    masked = rand(4, 6)
    masked[1, 2:] = -math.inf
    masked[2] = -math.inf
    case("softmax", [masked], [result(aten._safe_softmax(wide(masked), -1), f32, TIGHT)])


# ---- matrix products
def products():
    # the error of a sum of k terms grows slower than k
    for m, k, n in ((3, 5, 7), (1, 40, 1), (5, 1, 9), (2, 200, 2), (260, 2, 1), (1, 2, 260)):
        tolerance = 2 * TIGHT
        for dtype in (f32, bf16):
            turned = (0, 1) if m * k * n < 500 else (1,) if dtype == bf16 else ()
            for a in [(rand(m, k, dtype=dtype), rand(k, m, dtype=dtype).t())[i] for i in turned]:
                for b in [(rand(k, n, dtype=dtype), rand(n, k, dtype=dtype).t())[i] for i in turned]:
                    case("mm", [a, b], [result(wide(a) @ wide(b), dtype, tolerance)])
            if not turned:
                continue
            bias = rand(n, dtype=dtype)
            case("addmm", [bias, a, b], [result(
                aten.addmm(wide(bias), wide(a), wide(b)), dtype, tolerance)])
    # strides that BLAS does not take, mixed dtypes, a transposed result
    a, b = rand(6, 10)[:, ::2], rand(5, 1).expand(5, 8)
    case("mm", [a, b], [result(wide(a) @ wide(b), f32, TIGHT)])
    a, b = rand(6, 5, dtype=bf16), rand(5, 8)
    case("mm", [a, b], [result(wide(a) @ wide(b), f32, TIGHT)])
    a, b = rand(6, 5), rand(5, 8)
    case("mm", [a, b], [result(wide(a) @ wide(b), f32, TIGHT, torch.empty(8, 6).t())])
    for dtype in (f32, bf16):
        for a in layouts(3, 4, 5, dtype=dtype):
            for b in (rand(3, 5, 6, dtype=dtype), rand(3, 6, 5, dtype=dtype).transpose(1, 2)):
                case("bmm", [a, b], [result(aten.bmm(wide(a), wide(b)), dtype, 2 * TIGHT)])


# ---- modules
def embeddings():
    indices = torch.tensor([[3, 0, 3], [7, 3, 0]])
    for weight_type, gradient_type in ((f32, f32), (bf16, bf16), (bf16, f32), (f32, bf16)):
        weight, g = rand(9, 5, dtype=weight_type), rand(2, 3, 5, dtype=gradient_type)
        for index in (indices, indices.t().contiguous().t()):
            case("embedding", [weight, index], [result(
                aten.embedding(wide(weight), index), weight_type, 0)])
            case("embedding_backward", [g, index], [result(aten.embedding_dense_backward(
                wide(g), index, 9, -1, False), gradient_type, TIGHT)])
        g = g.transpose(0, 1)
        case("embedding_backward", [g, indices.t()], [result(aten.embedding_dense_backward(
            wide(g), indices.t(), 9, -1, False), weight_type, TIGHT)])


def rms(x, weight, eps):
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * rstd * weight, rstd


def norms():
    eps = 1e-5
    shapes = ((2, 3, 12), (65, 1), (1, 1030))
    for shape in shapes:
        for dtype, stats, weight_type in ((f32, f32, f32), (bf16, bf16, bf16), (bf16, f32, f32)):
            if shape[-1] > 1000 and (dtype, weight_type) != (bf16, bf16):
                continue
            x, g = rand(*shape, dtype=dtype), rand(*shape, dtype=dtype)
            x = x + torch.ones((), dtype=dtype)
            weight, bias = rand(shape[-1], dtype=weight_type), rand(shape[-1], dtype=weight_type)
            long = shape[-1] > 1000
            for b in (bias,) if long else (bias, None):
                name = "layer_norm" if b is not None else "layer_norm_nobias"
                y, mean, rstd = aten.native_layer_norm(
                    wide(x), [shape[-1]], wide(weight), wide(b) if b is not None else None, eps)
                inputs = [x, weight] + ([b] if b is not None else [])
                case(name, inputs, [result(y, dtype, 2 * TIGHT), result(mean, stats, TIGHT),
                                    result(rstd, stats, TIGHT)], eps=eps)
                if long:
                    continue
                mean, rstd = mean.to(stats), rstd.to(stats)
                d = aten.native_layer_norm_backward(
                    wide(g), wide(x), [shape[-1]], wide(mean), wide(rstd), wide(weight),
                    wide(bias), [True, True, True])
                # aten's formula takes the rounded mean for the mean of the row, so that with bf16
                # statistics it and the textbook's differ by that rounding.
                loose = 2 * TIGHT if stats == f32 else 0.02
                name = "layer_norm_backward" + ("_nobias" if b is None else "")
                outs = [result(t, dtype, loose) for t in (d if b is not None else d[:2])]
                case(name, [g, x, mean, rstd, weight], outs)
            y, rstd = rms(wide(x), wide(weight), eps)
            if not long:
                case("rms_norm", [x, weight], [result(y, dtype, 2 * TIGHT), result(rstd, f32, TIGHT)],
                     eps=eps)
            xx, ww = wide(x).requires_grad_(), wide(weight).requires_grad_()
            dx, dw = torch.autograd.grad(rms(xx, ww, eps)[0], (xx, ww), wide(g))
            case("rms_norm_backward", [g, x, rstd.to(f32), weight],
                 [result(dx, dtype, 2 * TIGHT), result(dw, weight_type, 2 * TIGHT)])
    x, weight = rand(24, 3).t(), rand(48)[::2]
    y, mean, rstd = aten.native_layer_norm(wide(x), [24], wide(weight), None, eps)
    case("layer_norm_nobias", [x, weight], [result(y, f32, 2 * TIGHT, x), result(mean, f32, TIGHT),
                                            result(rstd, f32, TIGHT)], eps=eps)


def rope(x, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + rotated * sin


def ropes():
    for dtype in (f32, bf16):
        for batch in (1, 2):
            for x in (rand(2, 3, 2, 6, dtype=dtype), rand(2, 2, 3, 6, dtype=dtype).transpose(1, 2)):
                # unlike cosines and sines, the two halves differ
                cos, sin = rand(batch, 2, 6, dtype=dtype), rand(batch, 2, 6, dtype=dtype)
                y = rope(wide(x), wide(cos), wide(sin))
                case("rope", [x, cos, sin], [result(y, dtype, TIGHT, x)])
                xx = wide(x).requires_grad_()
                g, = torch.autograd.grad(rope(xx, wide(cos), wide(sin)), xx, wide(x))
                case("rope_backward", [x, cos, sin], [result(g, dtype, TIGHT, x)])


def losses():
    labels = torch.tensor([0, 5, -100, 9, 7, -100])
    for dtype in (f32, bf16):
        for logits in layouts(6, 10, dtype=dtype, low=-9.0, high=9.0):
            x = torch.log_softmax(wide(logits), -1).to(dtype)
            loss, weight = aten.nll_loss_forward(wide(x), labels, None, 1, -100)
            case("nll_loss", [x, labels], [result(loss, dtype, TIGHT), result(weight, dtype, 0)])
            g = rand(dtype=dtype)
            dx = aten.nll_loss_backward(wide(g), wide(x), labels, None, 1, -100, weight)
            case("nll_loss_backward", [g, labels, weight.to(dtype)], [result(dx, dtype, TIGHT)])
            xx = wide(logits).requires_grad_()
            loss = F.cross_entropy(xx, labels)
            sums = torch.logsumexp(xx, -1)
            case("cross_entropy", [logits, labels],
                 [result(loss, f32, TIGHT), result(sums, f32, TIGHT)])
            g = rand()
            dx, = torch.autograd.grad(loss, xx, wide(g))
            case("cross_entropy_backward", [g, logits, labels, sums.to(f32)],
                 [result(dx, dtype, 2 * TIGHT)])


# ---- attention
def attend(q, k, v, causal, scale):
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.transpose(-1, -2) * scale
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def attentions():
    # heads, key heads, queries, keys, head size; blocks have 64 queries and 256 keys
    shapes = [(2, 2, 5, 5, 4), (4, 2, 3, 3, 4), (2, 1, 67, 67, 1), (1, 1, 65, 260, 2), (1, 1, 7, 3, 4)]
    variants = {"attention": 0, "flash_attention_cpu": 0, "flash_attention": 2, "efficient_attention": 1}
    for kernel, seeds in variants.items():
        for dtype in (f32, bf16):
            chosen = shapes if kernel == "attention" else shapes[1:2]
            if dtype == bf16:
                chosen = chosen[:3]
            for i, (heads, groups, rows, keys, size) in enumerate(chosen):
                for causal in (True,) if dtype == bf16 else (False, True):
                    attention(kernel, seeds, dtype, heads, groups, rows, keys, size, causal,
                              permuted=i % 2 == 1)


def attention(kernel, seeds, dtype, heads, groups, rows, keys, size, causal, permuted):
    def tensor(h, t):
        x = rand(1, t, h, size, dtype=dtype) if permuted else rand(1, h, t, size, dtype=dtype)
        return x.transpose(1, 2) if permuted else x

    q, k, v, g = tensor(heads, rows), tensor(groups, keys), tensor(groups, keys), tensor(heads, rows)
    scale = 1 / math.sqrt(size)
    qq, kk, vv = (wide(t).requires_grad_() for t in (q, k, v))
    out, sums = attend(qq, kk, vv, causal, scale)
    if heads == groups:  # what PyTorch's kernel does
        theirs = aten._scaled_dot_product_flash_attention_for_cpu(wide(q), wide(k), wide(v), 0.0,
                                                                  causal, scale=scale)
        if rows <= keys:
            assert torch.allclose(theirs[0], out.detach()) and torch.allclose(theirs[1], sums.detach())
    grads = torch.autograd.grad(out, (qq, kk, vv), wide(g))
    padded = sums.detach()
    if kernel == "efficient_attention":
        padded = F.pad(padded, (0, -rows % 32), value=math.inf)
    major = lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)
    seed_type = torch.uint64 if seeds == 2 else i64
    seed = torch.tensor([1234567, 0] if seeds == 2 else 1234567)
    extra = [result(seed, seed_type, 0), result(torch.tensor(0), seed_type, 0)] if seeds else []
    attributes = {"causal": causal, "scale": scale, "dropout": 0.0}
    case(kernel, [q, k, v],
         [result(out, dtype, 2 * TIGHT, major(out)), result(padded, f32, TIGHT)] + extra,
         attention=attributes)
    state = [seed.to(seed_type), torch.tensor(0).to(seed_type)] if seeds else []
    # bf16: the backward reads the rounded output
    rounded = out.detach().to(dtype)
    tolerance = 3 * TIGHT if dtype == f32 else 0.01
    case(kernel + "_backward", [g, q, k, v, rounded, padded.to(f32)] + state,
         [result(d, dtype, tolerance, major(d)) for d in grads], attention=attributes)


def main():
    torch.manual_seed(20)
    for group in (elementwise, activations, copies, reductions, softmaxes, products, embeddings, norms,
                  ropes, losses, attentions):
        before = len(blob)
        group()
        print(group.__name__, len(blob) - before, "bytes", file=sys.stderr)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "kernel_cases.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    with open(os.path.join(folder, "kernel_cases.bin"), "wb") as file:
        file.write(blob)


if __name__ == "__main__":
    main()
