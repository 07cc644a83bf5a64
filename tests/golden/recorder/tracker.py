"""Counts the bytes of storages that are alive, and notes events with them: what a trace is made of.

A storage counts from the operator that made it until its last reference is gone, whoever holds it.
It is filed under one category, the last that it was given; `alive at event e` means a < e <= f.
"""
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MANAGED = ("sharded_param", "unsharded_grad", "bucket", "optimizer_state")


class Storage:
    """One storage while it is alive, and its row afterwards."""

    def __init__(self, tracker, made, operator, tensor, category):
        self.bytes = made.nbytes()
        self.operator = operator.replace("aten.", "").replace(".default", "")
        self.shape, self.dtype = list(tensor.shape), tensor.dtype
        self.module = tracker.module()
        self.phase = tracker.phase
        self.category, self.unit = category, None
        self.born, self.died = len(tracker.events) - 1, None
        self.reference = weakref.ref(made, lambda _: tracker.died(self))
        self.key = made._cdata


class Tracker(TorchDispatchMode):
    def __init__(self, module):
        super().__init__()
        self.module = module  # path of the module that runs, or None
        self.observers = []   # called with (operator, arguments) before an operator runs
        self.events, self.changes, self.storages = [], [], []
        self.alive, self.ignored = {}, set()
        self.bytes = self.most = 0
        self.phase = (-1, None, "init")
        self.phases = []

    # ---- events and phases
    def event(self, kind, **fields):
        self._finish_dying()
        iteration, micro_batch, phase = self.phase
        e = {"i": len(self.events), "it": iteration}
        if micro_batch is not None:
            e["mb"] = micro_batch
        e.update(ph=phase, k=kind, **fields, mem=self.bytes)
        if self.most != self.bytes:
            e["hwm"] = self.most
        self.most = self.bytes
        self.events.append(e)

    def begin(self, iteration, micro_batch, phase):
        self.phase = (iteration, micro_batch, phase)
        self.phases.append({"it": iteration, "mb": micro_batch, "ph": phase, "from": len(self.changes)})

    def end(self):
        self.phases[-1]["to"] = len(self.changes)

    # ---- storages
    def ignore(self, tensor):
        self.ignored.add(tensor.untyped_storage()._cdata)

    def find(self, tensor):
        return self.alive.get(tensor.untyped_storage()._cdata)

    def file(self, tensor, category, unit="<root>"):
        storage = self.find(tensor)
        if storage is not None:
            storage.category, storage.unit = category, unit

    def track(self, tensor, operator, category=None):
        made = tensor.untyped_storage()
        if made._cdata in self.ignored or made._cdata in self.alive or made.nbytes() == 0:
            return
        self._finish_dying()
        category = category or ("activation" if self.phase[2] == "fwd" else "temp")
        storage = Storage(self, made, operator, tensor, category)
        self.alive[storage.key] = storage
        self.storages.append(storage)
        self.changes.append((len(self.events) - 1, storage, 1))
        self.bytes += storage.bytes
        self.most = max(self.most, self.bytes)

    def died(self, storage):
        if self.alive.get(storage.key) is storage:
            del self.alive[storage.key]
        storage.died = len(self.events) - 1
        self.changes.append((storage.died, storage, -1))
        self.bytes -= storage.bytes

    def _finish_dying(self):
        # Python's wrapper of a storage may outlive the storage's last owner until it is looked at.
        for storage in list(self.alive.values()):
            storage.reference()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for observe in self.observers:
            observe(str(function), args, kwargs)
        result = function(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.track(tensor, str(function))
        return result


# ---- what a trace says of memory
def settle_categories(tracker, forward_ends):
    """What a forward made and did not leave is a temporary."""
    for s in tracker.storages:
        if s.category != "activation":
            continue
        end = forward_ends.get(s.phase[:2])
        if end is None or (s.died is not None and s.died < end):
            s.category = "temp"


def _apply(change, bytes_by_category):
    _, storage, sign = change
    category = storage.category
    bytes_by_category[category] = bytes_by_category.get(category, 0) + sign * storage.bytes


def _managed(by_category):
    return sum(by_category.get(category, 0) for category in MANAGED)


def _nonzero(by_category):
    return {k: v for k, v in sorted(by_category.items()) if v}


def phase_rows(tracker):
    rows, now, at = [], {}, 0
    for phase in tracker.phases:
        while at < phase["from"]:
            _apply(tracker.changes[at], now)
            at += 1
        start = sum(now.values())
        row = {k: phase[k] for k in ("it", "mb", "ph")}
        row.update(start=start, end=0, peak=start, peak_after_event=None,
                   peak_by_category=_nonzero(now), end_by_category={}, fsdp_peak=_managed(now),
                   fsdp_peak_after_event=None)
        while at < phase["to"]:
            _apply(tracker.changes[at], now)
            event = tracker.changes[at][0]
            at += 1
            total = sum(now.values())
            if total > row["peak"]:
                row.update(peak=total, peak_after_event=event, peak_by_category=_nonzero(now))
            if _managed(now) > row["fsdp_peak"]:
                row.update(fsdp_peak=_managed(now), fsdp_peak_after_event=event)
        row.update(end=sum(now.values()), end_by_category=_nonzero(now))
        rows.append(row)
    return rows


def buffer_rows(tracker):
    rows = {}
    for s in tracker.storages:
        if s.category == "temp" and s.born == s.died:
            continue
        row = rows.setdefault((s.category, s.unit, s.born, s.died), [0, 0])
        row[0] += 1
        row[1] += s.bytes
    return [[*key, *row] for key, row in sorted(rows.items(), key=lambda r: (r[0][2], str(r[0])))]


def saved_rows(tracker, phase):
    names = {torch.float32: "fp32", torch.int64: "int64", torch.bool: "bool"}
    return [[s.module, s.operator, s.shape, names[s.dtype], s.bytes, s.born, s.died]
            for s in tracker.storages if s.category == "activation" and s.phase == phase]
