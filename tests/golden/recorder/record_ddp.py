#!/usr/bin/env python3
"""Records what DistributedDataParallel and ZeroRedundancyOptimizer do: tests/golden/data/ddp.

Real processes over gloo on the CPU, as the library refuses a fake process group. One of them
watches its own memory and operators. Models are those of traces beside the folder.

usage: record_ddp.py DATA_FOLDER [NAME...]     needs torch >= 2.15
"""
import contextlib
import gc
import json
import os
import socket
import sys
import warnings

import torch
import torch._dynamo.convert_frame  # noqa: F401  its import in the first step would keep tensors
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tracker as t
import tree

MIB = 1 << 20
ADAMW = {"kind": "adamw", "foreach": True, "fused": False}
FUSED = {"kind": "adamw", "foreach": False, "fused": True}
SGD = {"kind": "sgd", "momentum": 0.9, "foreach": True}
CLIP = {"max_norm": 1.0, "foreach": True}


# ---- cases
def case(data, model, strategy="ddp", world=2, rank=0, bucket=None, view=False, count=1, sync="each",
         frozen=(), **options):
    """`bucket` bytes is what bucket_cap_mb says, of all buckets; None is the library's default."""
    with open(os.path.join(data, model + ".json")) as file:
        neutral = json.load(file)["case"]["model"]
    for path, node in tree._walk(neutral["tree"]):
        for p in node["params"]:
            p["requires_grad"] = not any(f"{path}.{p['name']}".startswith(name) for name in frozen)
    result = {"kind": "train", "torch": "2.15", "fsdp": 0, "strategy": strategy,
              "world_size": world, "rank": rank, "replicate_size": world, "param_dtype": "fp32",
              "wrap": [], "mixed_precision": {"param": None, "reduce": None},
              "bucket_bytes": bucket or 25 * MIB, "first_bucket_bytes": bucket or MIB,
              "gradient_as_bucket_view": view, "checkpoint": None,
              "microbatches": {"n": count, "sync": sync}, "loss": "sum_fp32", "optimizer": ADAMW,
              "clip": None, "iterations": 3, "model": neutral}
    result.update(options)
    return result


def cases(data):
    small, gpt = "f2_sgd_momentum", "torch-2.15/f2_gpt2_d256_L4"
    tied = "f2_tied_root_L2_W4"
    k = 1024
    return {
        "ddp_buckets": case(data, small, bucket=100 * k),
        "ddp_buckets_view": case(data, small, bucket=100 * k, view=True),
        "ddp_W4": case(data, small, world=4, rank=2, bucket=40 * k, optimizer=FUSED),
        "ddp_accum2_nosync": case(data, small, bucket=100 * k, count=2, sync="last"),
        "ddp_accum2_nosync_view": case(data, small, bucket=100 * k, view=True, count=2, sync="last"),
        "ddp_accum3_each": case(data, small, bucket=100 * k, count=3, optimizer=SGD),
        "ddp_accum3_each_view": case(data, small, bucket=100 * k, view=True, count=3, optimizer=SGD),
        "ddp_frozen": case(data, small, bucket=100 * k, frozen=["emb", "layers.0"], optimizer=FUSED),
        "ddp_tied": case(data, tied, bucket=2 * k, loss="cross_entropy_fp32"),
        "ddp_tied_view": case(data, tied, bucket=2 * k, view=True),
        "ddp_clip": case(data, small, bucket=100 * k, clip=CLIP),
        "ddp_clip_view": case(data, small, bucket=100 * k, view=True, clip=CLIP),
        "ddp_gpt2_default_caps": case(data, gpt, optimizer=FUSED),
        "zero1_W2": case(data, small, "zero1", bucket=100 * k),
        "zero1_W4_rank3": case(data, small, "zero1", world=4, rank=3, bucket=100 * k, view=True),
        "zero1_fused": case(data, tied, "zero1", world=4, bucket=2 * k, optimizer=FUSED),
    }


# ---- one process
def make_optimizer(options, model, strategy):
    parameters = [p for p in model.parameters() if p.requires_grad]
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[options["kind"]]
    arguments = {k: v for k, v in options.items() if k != "kind"}
    if strategy == "zero1":
        return ZeroRedundancyOptimizer(parameters, kind, lr=1e-3, **arguments)
    return kind(parameters, lr=1e-3, **arguments)


class Reducer:
    """Passes everything on, and says when buckets were rebuilt."""

    def __init__(self, reducer, on_rebuilt):
        self._reducer, self._on_rebuilt = reducer, on_rebuilt

    def __getattr__(self, name):
        return getattr(self._reducer, name)

    def _rebuild_buckets(self):
        rebuilt = self._reducer._rebuild_buckets()
        if rebuilt:
            self._on_rebuilt()
        return rebuilt


class Watch:
    """Turns the library's operators into events."""

    def __init__(self, tracker, model):
        self.tracker = tracker
        self.names = {}      # path by storage of a parameter
        self.gradients = {}  # path by storage of a gradient
        self.buckets = {}    # number by storage
        self.arrived = None  # whose gradient autograd has left last
        tracker.observers.append(self.observe)
        for name, parameter in model.named_parameters():
            tracker.track(parameter, "parameter", "sharded_param")
            self.names[parameter.untyped_storage()._cdata] = name
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _, n=name: self.arrive(n))

    def arrive(self, name):
        self.arrived = name

    def rebuilt(self):
        self.buckets.clear()
        self.tracker.event("rebuild_buckets", unit="<root>")

    def bucket(self, tensor):
        self.tracker.file(tensor, "bucket")
        return self.buckets.setdefault(tensor.untyped_storage()._cdata, len(self.buckets))

    def move(self, kind, view, parameter, **fields):
        self.tracker.event(kind, unit="<root>", parameter=parameter, bucket=self.bucket(view),
                           offset=view.storage_offset(), elems_in=view.numel(),
                           elems_out=view.numel(), dtype="fp32", **fields)

    def observe(self, operator, args, kwargs):
        phase = self.tracker.phase[2]
        if operator == "aten.mul.out" and phase == "bwd":
            self.tracker.file(args[0], "unsharded_grad")
            self.gradients[args[0].untyped_storage()._cdata] = self.arrived
            self.move("bucket_copy_in", kwargs["out"], self.arrived, factor=float(args[1]))
        elif operator.startswith("aten.div_") and phase == "bwd":
            self.move("bucket_copy_in", args[0], self.arrived, factor=1 / float(args[1]), in_place=True)
        elif operator == "aten.copy_.default" and phase == "bwd":
            parameter = self.gradients[args[0].untyped_storage()._cdata]
            self.move("bucket_copy_out", args[1], parameter)
        elif operator == "c10d.allreduce_.default":
            self.all_reduce(args)
        elif operator == "c10d.broadcast_.default" and phase == "opt":
            tensor = args[0][0]
            self.tracker.event("broadcast", unit="<root>", root=args[2],
                               parameter=self.names[tensor.untyped_storage()._cdata],
                               elems_in=tensor.numel(), elems_out=tensor.numel(), dtype="fp32",
                               group_size=dist.get_world_size())

    def all_reduce(self, args):
        tensor = args[0][0]
        self.tracker.event("all_reduce", unit="<root>", bucket=self.bucket(tensor),
                           elems_in=tensor.numel(), elems_out=tensor.numel(), dtype="fp32",
                           group_size=dist.get_world_size(), op="SUM")


def loss_of(kind, output, labels):
    if kind == "sum_fp32":
        return output.float().sum()
    return F.cross_entropy(output.flatten(0, 1).float(), labels.flatten())


def inputs_of(model):
    shape = (model["batch"], model["seq"])
    made = []
    for i in model["inputs"]:
        row = torch.arange(model["seq"]) if i["name"] == "p" else torch.zeros(shape, dtype=torch.int64)
        made.append(row.expand(shape).contiguous())
    return made, torch.zeros(shape, dtype=torch.int64)


class Run:
    def __init__(self, options, tracker):
        self.options, self.tracker = options, tracker
        self.model = tree.build(options["model"]["tree"])
        self.inputs, self.labels = inputs_of(options["model"])
        for tensor in [*self.inputs, self.labels]:
            tracker.ignore(tensor)
        self.watch = Watch(tracker, self.model)
        self.base = tracker.bytes
        self.forward_ends = {}

    def wrap(self):
        options = self.options
        megabytes = options["bucket_bytes"] / MIB
        cap = None if options["first_bucket_bytes"] != options["bucket_bytes"] else megabytes
        self.ddp = DistributedDataParallel(
            self.model, bucket_cap_mb=cap,
            gradient_as_bucket_view=options["gradient_as_bucket_view"])
        self.ddp.reducer = Reducer(self.ddp.reducer, self.watch.rebuilt)
        self.optimizer = make_optimizer(options["optimizer"], self.model, options["strategy"])

    def step(self, iteration):
        count = self.options["microbatches"]["n"]
        for micro_batch in range(count):
            last = micro_batch == count - 1
            syncs = last or self.options["microbatches"]["sync"] == "each"
            with contextlib.nullcontext() if syncs else self.ddp.no_sync():
                self.train(iteration, micro_batch)
        if self.options["clip"]:
            self.update(iteration, "clip", self.clip)
        self.update(iteration, "opt", self.optimize)
        self.update(iteration, "zero", self.optimizer.zero_grad)

    def train(self, iteration, micro_batch):
        self.tracker.begin(iteration, micro_batch, "fwd")
        self.tracker.event("fwd_begin")
        loss = loss_of(self.options["loss"], self.ddp(*self.inputs), self.labels)
        self.tracker.event("fwd_end")
        self.tracker.end()
        self.forward_ends[(iteration, micro_batch)] = len(self.tracker.events) - 1
        self.tracker.begin(iteration, micro_batch, "bwd")
        self.tracker.event("bwd_begin")
        loss.backward()
        del loss
        self.tracker.event("bwd_end")
        self.tracker.end()

    def update(self, iteration, phase, work):
        self.tracker.begin(iteration, None, phase)
        self.tracker.event(phase + "_begin")
        work()
        self.tracker.event(phase + "_end")
        self.tracker.end()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), **self.options["clip"])

    def optimize(self):
        self.optimizer.step()
        local = getattr(self.optimizer, "optim", self.optimizer)
        for state in local.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self.tracker.file(value, "optimizer_state")

    def owned(self):
        """Elements that the optimizer of each rank updates."""
        if self.options["strategy"] != "zero1":
            return None
        return [sum(p.numel() for group in groups for p in group["params"])
                for groups in self.optimizer._partition_parameters()]


def unit_of(model):
    paths = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        paths.setdefault(p, []).append(name)
    rows = [{"name": names[0], "shape": list(p.shape), "requires_grad": p.requires_grad,
             "shard_dim": 0, "padded_shard_numel": p.numel(), "local_shape": list(p.shape),
             "shared_with": names[1:]} for p, names in paths.items()]
    numel = sum(p.numel() for p in paths)
    return {"name": "<root>", "params": rows, "numel": numel, "padded_shard_numel": numel,
            "gathered_numel": numel}


def play(rank, name, options, port, path):
    warnings.filterwarnings("ignore")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=options["world_size"])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tracker = t.Tracker(lambda: tree.entered[-1] if tree.entered else None)
    gc.disable()
    run = Run(options, tracker)
    with tracker:
        run.wrap()
        for iteration in range(options["iterations"]):
            run.step(iteration)
    if rank == options["rank"]:
        write(path, {"schema": 1, "name": name, "torch": torch.__version__.split("+")[0], "fsdp": 0,
                     "case": options, "units": [unit_of(run.model)], "updated_elems": run.owned(),
                     "iteration_2": "recorded", **answers(run)})
    dist.barrier()
    dist.destroy_process_group()


def answers(run):
    t.settle_categories(run.tracker, run.forward_ends)
    memory = {"base_sharded_params": run.base, "after_last_zero_grad": run.tracker.bytes,
              "phases": t.phase_rows(run.tracker), "buffers": t.buffer_rows(run.tracker),
              "saved_activations": t.saved_rows(run.tracker, (1, 0, "fwd"))}
    return {"events": run.tracker.events, "memory": memory}


# ---- files
def lines_of(rows, indent):
    texts = [indent + json.dumps(row, separators=(",", ":")) for row in rows]
    return "[\n" + ",\n".join(texts) + "\n" + indent[1:] + "]"


def write(path, record):
    texts = []
    for key, value in record.items():
        if key in ("units", "events"):
            text = lines_of(value, "  ")
        elif key == "memory":
            rows = {k: lines_of(v, "   ") if isinstance(v, list) else str(v) for k, v in value.items()}
            text = "{\n" + ",\n".join(f'  "{k}":{v}' for k, v in rows.items()) + "\n }"
        else:
            text = json.dumps(value, separators=(",", ":"))
        texts.append(f' "{key}":{text}')
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(texts) + "\n}\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    data, names = sys.argv[1], sys.argv[2:]
    os.makedirs(os.path.join(data, "ddp"), exist_ok=True)
    for name, options in cases(data).items():
        if names and name not in names:
            continue
        path = os.path.join(data, "ddp", name + ".json")
        multiprocessing.start_processes(play, (name, options, free_port(), path),
                                        options["world_size"], start_method="fork")
        print(name, flush=True)


if __name__ == "__main__":
    main()
