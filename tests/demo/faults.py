"""Faults of nodes and workers, and their times: one after the other, each long enough to be seen."""

from __future__ import annotations

from demo.fight import TTL_S
from demo.stage import Stage

KEEPER, FROZEN, VICTIM = "rust-1", "python-1", "node-2"
"""The workers that hold the lock for long, and are frozen or killed meanwhile."""

AS_LONG_AS_IT_TAKES_S = 600.0


async def commit(stage: Stage) -> None:
    """Goes through all of them, in about 15 s."""
    await stage.until(1.0)
    await _freeze_node(stage, 1)
    await stage.until(4.0)
    await _kill_node_under_holder(stage, 3)
    await stage.until(8.0)
    await _kill_holder(stage)
    await stage.pause(0.8)
    await _freeze_holder(stage)
    await stage.pause(1.0)


async def _freeze_node(stage: Stage, i: int) -> None:
    fault = stage.freeze_node(i)
    await stage.pause(2.0)
    stage.thaw_node(i, fault)


async def _kill_node_under_holder(stage: Stage, i: int) -> None:
    """One holder keeps the lock for longer than the ttl, while a node dies and comes back without its key."""
    hold = await stage.keep(KEEPER, TTL_S + 0.6)
    stage.fight.note(hold.since_ns, f"{KEEPER} keeps the lock for longer than its ttl")
    await stage.pause(0.4)
    fault = stage.kill_node(i)
    await stage.pause(1.2)
    stage.restart_node(i, fault)
    await stage.over(hold)


async def _kill_holder(stage: Stage) -> None:
    """The lock of a dead holder is free after one ttl."""
    hold = await stage.keep(VICTIM, AS_LONG_AS_IT_TAKES_S)
    await stage.pause(0.3)
    fault = await stage.kill_holder(hold)
    await stage.followed(hold)
    following = stage.fight.after(hold)
    assert following
    fault.to_ns = following.since_ns
    stage.fight.note(following.since_ns, f"{following.worker.name} has the lock of the dead holder")


async def _freeze_holder(stage: Stage) -> None:
    """A holder sleeps through the end of its lock and wakes up when others have it."""
    hold = await stage.keep(FROZEN, AS_LONG_AS_IT_TAKES_S)
    await stage.pause(0.3)
    fault = stage.freeze_holder(hold)
    await stage.followed(hold)
    following = stage.fight.after(hold)
    assert following
    stage.fight.note(following.since_ns, f"{following.worker.name} has the lock of the frozen holder")
    await stage.pause(0.6)
    stage.thaw_holder(fault)
    await stage.over(hold)
