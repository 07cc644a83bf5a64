#!/usr/bin/env python3
"""Writes reference.safetensors beside this script with the reference implementation (safetensors
0.8.0): one tensor of every type that PyTorch has, one without elements, one without dims. Byte i of
the k-th tensor of TENSORS is (31 i + k) mod 251; of a boolean one, that mod 2.

With a file as argument, reads it and tells whether it holds the same.
"""
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

TENSORS = [
    ("a.weight", torch.float32, (3, 4)),
    ("a.bias", torch.float32, (3,)),
    ("b.weight", torch.bfloat16, (2, 5)),
    ("b.bias", torch.float16, (5,)),
    ("mask", torch.bool, (3,)),
    ("steps", torch.int64, (2,)),
    ("none", torch.float32, (0, 7)),
    ("scalar", torch.float64, ()),
    ("u8", torch.uint8, (5,)),
    ("i8", torch.int8, (3,)),
    ("e5m2", torch.float8_e5m2, (3,)),
    ("e4m3", torch.float8_e4m3fn, (1,)),
    ("i16", torch.int16, (3,)),
    ("u16", torch.uint16, (1,)),
    ("i32", torch.int32, (1,)),
    ("u32", torch.uint32, (2,)),
    ("u64", torch.uint64, (1,)),
    ("z \"quoted\" \u00e9", torch.float32, (1,)),
]
METADATA = {"format": "pt"}


def tensor(k, dtype, shape):
    count = torch.Size(shape).numel() * dtype.itemsize
    data = [(31 * i + k) % 251 for i in range(count)]
    if dtype == torch.bool:
        data = [x % 2 for x in data]
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.tensor(data, dtype=torch.uint8).view(dtype).reshape(shape)


def same(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def main():
    expected = {name: tensor(k, dtype, shape) for k, (name, dtype, shape) in enumerate(TENSORS)}
    if len(sys.argv) > 1:
        with safe_open(sys.argv[1], "pt") as file:
            good = set(file.keys()) == set(expected) and file.metadata() == METADATA
            good = good and all(same(file.get_tensor(n), t) for n, t in expected.items())
        print("the same" if good else "different")
        return 0 if good else 1
    folder = os.path.dirname(os.path.abspath(__file__))
    save_file(expected, os.path.join(folder, "reference.safetensors"), METADATA)
    return 0


if __name__ == "__main__":
    sys.exit(main())
