#!/usr/bin/env python3
"""Updates of one tensor by AdamW in 8 bits, recorded from torchao; see README.md.

usage: make_quantized_update.py [OUT_FOLDER]      needs torch, torchao and safetensors
"""
import os
import sys

import torch
from safetensors.torch import save_file
from torchao.optim import AdamW8bit

STEPS = 3
SHAPE = (16, 256)  # the fewest elements that are kept in 8 bits


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    generator = torch.Generator().manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(SHAPE, generator=generator))
    gradients = torch.randn((STEPS, *SHAPE), generator=generator)
    tensors = {"before": parameter.detach().clone(), "gradients": gradients}
    optimizer = AdamW8bit([parameter], lr=1e-2)
    with torch.compiler.set_stance("force_eager"):  # what it compiles, operator by operator
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
    tensors["after"] = parameter.detach().clone()
    for name in ("exp_avg", "exp_avg_sq"):
        moment = optimizer.state[parameter][name]
        for part in ("codes", "scale", "qmap"):
            tensors[f"{name}/{part}"] = getattr(moment, part).clone()
    save_file(tensors, os.path.join(folder, "quantized_update.safetensors"))


if __name__ == "__main__":
    main()
