#!/usr/bin/env python3
"""Times one training step on one CPU thread: PyTorch beside `foreshard run`, in one run on one machine.

The model is cpu_step_config.json (20.2 M parameters), 4 sequences of 256 tokens, fp32, AdamW. PyTorch
runs the same configuration through transformers, with the attention and the AdamW implementations
named by --attention and --optimizer. All contenders take turns, a few steps each per round, so that
whatever else the machine does falls on all of them; the table has medians over all rounds. Which
contender goes first changes from round to round. Compare ratios, not milliseconds.

usage: cpu_step.py FORESHARD_BINARY [--rounds 5] [--steps 4] [--profile torch-cpu ...]
                   [--attention sdpa eager] [--optimizer foreach fused] [--json FILE]

Needs torch >= 2.15 and transformers 5. Keep the machine quiet; `taskset -c 0` pins all of it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

SEQ, BATCH = 256, 4
WARMUP = 2  # steps of each round that are not counted: pages, caches and the optimizer's state
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cpu_step_config.json")


class TorchStep:
    """A model and its optimizer, kept for the whole run."""

    def __init__(self, attention, optimizer):
        import torch
        import transformers

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.name = f"PyTorch, {attention} attention, {optimizer} AdamW"
        with open(CONFIG, encoding="utf-8") as file:
            fields = json.load(file)
        fields.update(use_cache=False, attn_implementation=attention)
        config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
        self.vocab = config.vocab_size
        self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.01, **{optimizer: True})

    def step(self, torch, tokens, labels):
        logits = self.model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.float().view(-1, self.vocab), labels.view(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def seconds(self, steps):
        import torch

        times = []
        for i in range(WARMUP + steps):
            # Other ids each step, drawn before the clock starts, as an executor's inputs are.
            ids = torch.randint(self.vocab, (BATCH, SEQ + 1))
            tokens, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
            start = time.perf_counter()
            self.step(torch, tokens, labels)
            if i >= WARMUP:
                times.append(time.perf_counter() - start)
        return times


class ForeshardStep:
    """A plan; each round is a process of its own, whose report says how long its steps took."""

    def __init__(self, binary, profile, folder):
        self.name = f"foreshard run, {profile}"
        self.binary = binary
        self.plan = os.path.join(folder, profile + ".pb")
        self.report = os.path.join(folder, profile + ".json")
        self.call("plan", "--model", CONFIG, "--world", "1", "--seq", str(SEQ), "--micro-batch", str(BATCH),
                  "--kernel-profile", profile, "--param-dtype", "fp32", "--reduce-dtype", "fp32", "-o", self.plan)

    def call(self, *arguments):
        done = subprocess.run([self.binary, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.binary} {arguments[0]}: {done.stderr.strip()}")

    def seconds(self, steps):
        self.call("run", self.plan, "--steps", str(WARMUP + steps), "--json", self.report)
        with open(self.report, encoding="utf-8") as file:
            report = json.load(file)
        times = report["timing"]["step_ps"]
        times = times if isinstance(times, list) else [times]
        # 64-bit integers are strings in protobuf's JSON. A report with one number has left its
        # warm-up out itself.
        times = [int(t) * 1e-12 for t in times]
        return times[WARMUP:] if len(times) > WARMUP else times


def quartiles(times):
    times = sorted(times)
    return times[len(times) // 4], statistics.median(times), times[(3 * len(times)) // 4]


def matmul_rate(size=1024, repeats=10):
    """GFLOP/s of this thread on a large product: the scale on which steps of two machines compare."""
    import torch

    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - start)
    return 2e-9 * size**3 / statistics.median(times[2:])


def measure(contenders, rounds, steps):
    times = {c.name: [] for c in contenders}
    for r in range(rounds):
        turn = contenders[r % len(contenders):] + contenders[: r % len(contenders)]
        for contender in turn:
            times[contender.name] += contender.seconds(steps)
    return times


def print_table(times, rate):
    import torch

    # The fastest of PyTorch's, so that a ratio below 1 is ahead of all of them.
    best = min(statistics.median(t) for n, t in times.items() if n.startswith("PyTorch"))
    print(f"torch {torch.__version__}, 1 thread, 1024^3 product at {rate:.1f} GFLOP/s")
    print(f"{'':44} {'quartile':>9} {'median':>9} {'quartile':>9} ms  {'of the fastest PyTorch':>22}")
    for name, samples in times.items():
        low, median, high = quartiles(samples)
        print(f"{name:44} {low * 1e3:9.1f} {median * 1e3:9.1f} {high * 1e3:9.1f}     {median / best:22.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="counted steps of each round")
    parser.add_argument("--profile", nargs="*", default=["torch-cpu", "foreshard"])
    parser.add_argument("--attention", nargs="*", default=["sdpa", "eager"])
    parser.add_argument("--optimizer", nargs="*", default=["foreach", "fused"])
    parser.add_argument("--json", help="every measured step, in seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        contenders = [ForeshardStep(arguments.binary, p, folder) for p in arguments.profile]
        contenders += [TorchStep(a, o) for a in arguments.attention for o in arguments.optimizer]
        times = measure(contenders, arguments.rounds, arguments.steps)
    print_table(times, matmul_rate())
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(times, file, indent=1)


if __name__ == "__main__":
    main()
