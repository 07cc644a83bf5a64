#!/usr/bin/env python3
"""Times PyTorch's own memory answer beside ours, in one run on one machine.

PyTorch's answer is torch.distributed._tools.fsdp2_mem_tracker.FSDPMemTracker around one iteration
of Llama-2-7B (transformers, fully_shard on blocks + root, bf16 parameters, fp32 reduction) on fake
tensors in a fake process group of 8; ours is `foreshard predict` on the same model.

usage: tracker_speed.py FORESHARD_BINARY CONFIG_JSON     needs torch >= 2.15 and transformers 5
"""
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def tracker_seconds(config_path):
    start = time.perf_counter()
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    import transformers
    import transformers.masking_utils as masking
    import transformers.modeling_utils as modeling
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    mesh = init_device_mesh("cpu", (8,))
    # No weights are initialised, and no mask is built: fake tensors have no values to look at.
    modeling.PreTrainedModel.init_weights = lambda self, *a, **k: self.tie_weights()
    masking.find_packed_sequence_indices = lambda *a, **k: None
    fields = json.load(open(config_path))
    fields["use_cache"] = False
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with FakeTensorMode():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.train()
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        ids = torch.zeros((1, 2048), dtype=torch.int64)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids,))
        with tracker:
            logits = model(input_ids=ids, use_cache=False).logits.flatten(0, 1).float()
            F.cross_entropy(logits, ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return time.perf_counter() - start


def predict_seconds(binary, config_path, repeats=5):
    command = [binary, "predict", "--model", config_path, "--cluster", "dgx-a100-80g",
               "--world", "8", "--seq", "2048", "--micro-batch", "1"]
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main():
    binary, config_path = sys.argv[1:3]
    theirs = tracker_seconds(config_path)
    ours = predict_seconds(binary, config_path)
    print("FSDPMemTracker, one iteration, with imports: %.2f s" % theirs)
    print("foreshard predict, whole process, median:    %.3f s" % ours)
    print("ratio: %.0f" % (theirs / ours))


if __name__ == "__main__":
    main()
