"""The process group of one experiment: a store, torch's groups, DeepSpeed's view of them, the end."""

import contextlib
import datetime
import gc
import glob
import os
import sys

from . import process_state
from .patches import Patches

MAX_CONNECT_S = 20
SHARED = "/dev/shm/deepspeed_allreduce_buffer_*"


class Stores:
    """TCPStores that this process serves, by port, until their group begins."""

    def __init__(self):
        self.open_ = {}
        self.sockets = set()  # inodes of what the stores have connected

    def open(self):
        from torch.distributed import TCPStore
        before = process_state.socket_inodes()
        store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
        self.open_[store.port] = store
        self.sockets = process_state.socket_inodes() - before
        return store.port

    def take(self, host, port, is_leader, timeout):
        if is_leader and port in self.open_:
            return self.open_.pop(port)
        from torch.distributed import TCPStore
        # It was open before anybody was told its port: who does not answer now never will.
        store = TCPStore(host, port, is_master=False, wait_for_workers=False,
                         timeout=min(timeout, datetime.timedelta(seconds=MAX_CONNECT_S)))
        store.set_timeout(timeout)
        return store

    def close(self):
        self.open_.clear()
        self.sockets = set()


def variables_of(order, prepared):
    """Environment of a rank of the group, as DeepSpeed's launcher would set it."""
    local_rank = order["device_index"] if prepared["device"] == "cuda" else order["group_local_rank"]
    return {
        "RANK": order["group_rank"], "WORLD_SIZE": order["group_size"],
        "LOCAL_RANK": local_rank, "LOCAL_SIZE": order["group_local_size"],
        "LOCAL_WORLD_SIZE": order["group_local_size"],
        "CROSS_RANK": order["group_node"], "CROSS_SIZE": order["group_nodes"],
        "NODE_RANK": order["group_node"],
        "MASTER_ADDR": order["store"]["host"], "MASTER_PORT": order["store"]["port"],
        "OMP_NUM_THREADS": prepared["threads"],
    }


class Group:
    """The default process group while an experiment runs."""

    def __init__(self, order, prepared, stores, channel):
        self.order_ = order
        self.prepared_ = prepared
        self.stores_ = stores
        self.channel_ = channel
        self.store_ = None
        self.foreign_ = set(prepared.get("foreign_ports", ()))
        self.before_ = process_state.socket_inodes() - stores.sockets
        self.shared_before_ = set(glob.glob(SHARED))
        self.sockets = []
        self.patches_ = Patches()

    def open(self):
        import torch
        import torch.distributed as distributed
        order = self.order_
        timeout = datetime.timedelta(seconds=max(1.0, float(order["timeout_s"])))
        store = order["store"]
        self.store_ = self.stores_.take(store["host"], store["port"], order["group_rank"] == 0, timeout)
        self.note_sockets()
        device = {}
        if order["backend"] == "nccl" and order["group_size"] > 1:
            # As DeepSpeed does it itself: later groups are split from this one.
            device = {"device_id": torch.device("cuda", order["device_index"])}
        distributed.init_process_group(
            order["backend"], store=distributed.PrefixStore(f"attempt{order['attempt']}", self.store_),
            rank=order["group_rank"], world_size=order["group_size"], timeout=timeout, **device)
        self.note_sockets()
        import deepspeed
        deepspeed.init_distributed(dist_backend=order["backend"], verbose=False)
        self.patches_.wrap(distributed, "new_group", self.new_group_)
        for name in ("init_process_group", "destroy_process_group"):
            self.patches_.set(distributed, name, lambda *_, **__: None)
        if order["backend"] == "nccl":
            self.channel_.on_interrupt.append(abort)

    def new_group_(self, original, *args, **kwargs):
        made = original(*args, **kwargs)
        self.note_sockets()
        return made

    def note_sockets(self):
        """The group's connections, as they are now, are told to the program."""
        found = process_state.connected_since(self.before_, self.foreign_)
        if found != self.sockets:
            self.sockets = found
            self.channel_.note_sockets(found)

    def close(self, failed):
        """Local, also where peers are gone."""
        self.patches_.undo()
        self.channel_.on_interrupt.clear()
        self.channel_.note_sockets([])
        distributed = sys.modules["torch"].distributed
        if distributed.is_initialized():
            if failed and self.order_["backend"] == "nccl":
                abort()
            with contextlib.suppress(Exception):
                distributed.destroy_process_group()
        forget_groups()
        self.store_ = None
        self.stores_.close()
        gc.collect()
        for path in set(glob.glob(SHARED)) - self.shared_before_:
            with contextlib.suppress(OSError):  # peers may have removed it
                if os.stat(path).st_uid == os.getuid() and f"_{self.order_['store']['port']}_" in path:
                    os.unlink(path)


def forget_groups():
    """Groups are numbered; a group that was never complete counts, too, and is not destroyed.

    Ranks whose numbers differ would wait for each other under different names.
    """
    from torch.distributed import distributed_c10d
    world = distributed_c10d._world
    for name in ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag", "tags_to_pg",
                 "pg_coalesce_state"):
        with contextlib.suppress(Exception):
            getattr(world, name).clear()
    with contextlib.suppress(Exception):
        distributed_c10d._unregister_all_process_groups()
    world.group_count = 0


def abort():
    """Frees ranks that wait in NCCL."""
    from torch.distributed import distributed_c10d
    with contextlib.suppress(Exception):
        distributed_c10d._abort_process_group()
