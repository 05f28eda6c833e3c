"""The blocking face as users of `threading.Lock` know it."""

import asyncio

import pytest
from support.clock import until

import redlock
from redlock import asyncio as aio
from redlock.testing import lose


def test_a_loss_is_noted_on_what_the_body_raises(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name, ttl=0.1, auto_renew=False)

    @client.locked(lambda: name, ttl=0.1, auto_renew=False, pass_lock=True)
    def work(lock: redlock.Lock) -> None:
        until(lambda: not lock.held, "it is lost")
        raise KeyError

    for raises in (work, lambda: lost_in(lock, KeyError())):
        with pytest.raises(KeyError) as raised:
            raises()
        (note,) = raised.value.__notes__
        assert f'lock "{name}": the lock expired while it was held, ' in note
        assert note.endswith(" before its release")
    # This one says it itself.
    with pytest.raises(redlock.LockLost) as lost, client.lock(name, ttl=0.1, auto_renew=False) as own:
        until(lambda: not own.held, "it is lost")
        own.check()
    assert not hasattr(lost.value, "__notes__")


def test_a_block_that_lost_the_lock_ends_before_its_object_acquires_again(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    with pytest.raises(redlock.LockLost) as lost, lock:
        lose(lock, "taken")
        for again in (lock.acquire, lock.__enter__):
            with pytest.raises(redlock.LockAlreadyHeld, match="its block has not ended"):
                again()
    assert lost.value.reason == "taken"
    with lock:
        assert lock.held


async def test_a_block_does_not_go_on_with_another_hold_than_the_attached_one(
    client: redlock.Redlock, aclient: aio.Redlock, name: str
) -> None:
    lock = client.lock(name)
    lock.acquire()
    attached = client.attach(lock.detach())
    lose(attached, "taken")
    with pytest.raises(redlock.LockLost, match="held by another"), attached:
        pytest.fail("it was entered")
    with attached:
        awaited = await aclient.attach(attached.detach())
    lose(awaited, "deleted")
    with pytest.raises(redlock.LockLost, match="deleted"):
        async with awaited:
            pytest.fail("it was entered")
    async with awaited:
        awaited = await aclient.attach(await awaited.detach())
    asyncio.get_running_loop().call_soon(lose, awaited, "taken")
    with pytest.raises(redlock.LockLost, match="held by another"):
        async with awaited:
            pytest.fail("it was lost while its block was entered")
    async with awaited:
        assert awaited.held


def lost_in(lock: redlock.Lock, error: Exception) -> None:
    with lock:
        until(lambda: not lock.held, "it is lost")
        raise error
