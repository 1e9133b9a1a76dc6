"""Callers' keys on their way to a worker: found for their scope, gone after use or in time, never readable."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from pydantic import SecretStr

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.index.credentials import Credentials, MemoryCache, open_credentials
from armarium.capabilities.store.index.envelope import Keks
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import SecuritySettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.settings.file_secrets import FileSecret
from support.redis import everything_in, running_redis
from support.store_calls import Files

CANARY = "sk-canary-51c0ffee"
KEKS = {1: SecretStr("the first key of all")}
SCOPE = Scope("a" * 64, "p")


def opened(redis_url: str | None, keks: dict[int, SecretStr] | None = None) -> AbstractAsyncContextManager[Credentials]:
    address = None if redis_url is None else SecretStr(redis_url)
    security = SecuritySettings(encryption_keks=keks or KEKS, credential_cache_prefix="test:cred")
    return open_credentials(address, security)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as address:
        yield address


@pytest.fixture(params=["memory", "redis"])
async def credentials(request: pytest.FixtureRequest) -> AsyncGenerator[Credentials]:
    address = request.getfixturevalue("redis_url") if request.param == "redis" else None
    async with opened(address) as kept:
        yield kept


async def kept(credentials: Credentials, key: str = CANARY, scope: Scope = SCOPE) -> str:
    reference = await credentials.keep(key, scope)
    assert reference is not None
    return reference


async def test_a_kept_key_is_found_until_it_is_discarded(credentials: Credentials) -> None:
    reference = await kept(credentials)
    assert await credentials.take(reference, SCOPE) == CANARY
    assert await credentials.take(reference, SCOPE) == CANARY
    await credentials.discard(reference)
    assert await credentials.take(reference, SCOPE) is None
    await credentials.discard(reference)


async def test_every_reference_is_new_and_128_bits_long(credentials: Credentials) -> None:
    first, second = await kept(credentials), await kept(credentials)
    assert first != second
    assert len(bytes.fromhex(first)) == 16


async def test_no_key_needs_no_keeping(credentials: Credentials) -> None:
    assert await credentials.keep(None, SCOPE) is None


@pytest.mark.parametrize("other", [Scope("b" * 64, "p"), Scope("a" * 64, "q")])
async def test_a_key_is_not_given_to_another_tenant_or_project(
    credentials: Credentials, other: Scope, caplog: pytest.LogCaptureFixture
) -> None:
    reference = await kept(credentials)
    assert await credentials.take(reference, other) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert CANARY not in caplog.text


async def test_an_envelope_moved_to_another_reference_does_not_open(redis_url: str) -> None:
    from redis import Redis

    async with opened(redis_url) as credentials:
        mine, other = await kept(credentials), await kept(credentials, "another key")
        with Redis.from_url(redis_url) as client:
            client.copy(f"test:cred:{other}", f"test:cred:{mine}", replace=True)
        assert await credentials.take(mine, SCOPE) is None


@pytest.mark.contract("S20-1")
async def test_redis_holds_the_key_encrypted_and_for_a_while_only(redis_url: str) -> None:
    from redis import Redis

    async with opened(redis_url) as credentials:
        reference = await kept(credentials)
    held = everything_in(redis_url)
    assert reference.encode() in held
    assert CANARY.encode() not in held
    with Redis.from_url(redis_url) as client:
        remaining = client.ttl(f"test:cred:{reference}")
    assert isinstance(remaining, int)
    assert 0 < remaining <= 300


async def test_keys_are_rotated_without_losing_what_waits(redis_url: str) -> None:
    async with opened(redis_url, {1: KEKS[1]}) as before:
        reference = await kept(before)
    async with opened(redis_url, {1: KEKS[1], 2: SecretStr("the second key of all")}) as after:
        assert await after.take(reference, SCOPE) == CANARY
        newer = await kept(after)
    async with opened(redis_url, {2: SecretStr("the second key of all")}) as without_old:
        assert await without_old.take(newer, SCOPE) == CANARY
        assert await without_old.take(reference, SCOPE) is None


async def test_the_cache_in_memory_forgets_in_time() -> None:
    now = 0.0
    cache = MemoryCache(ttl_s=300, clock=lambda: now)
    credentials = Credentials(cache, Keks(KEKS), ttl_s=300)
    reference = await kept(credentials)
    now = 299.0
    later = await kept(credentials)
    assert await credentials.take(reference, SCOPE) == CANARY
    now = 300.0
    assert await credentials.take(reference, SCOPE) is None
    assert await credentials.take(later, SCOPE) == CANARY


async def test_an_envelope_that_outlives_its_time_does_not_open() -> None:
    credentials = Credentials(MemoryCache(ttl_s=300), Keks(KEKS), ttl_s=0)
    assert await credentials.take(await kept(credentials), SCOPE) is None


async def test_without_redis_a_write_is_refused_and_a_used_key_is_left_to_expire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running_redis() as address:
        pass
    async with opened(address) as credentials:
        with pytest.raises(ResourceBusy) as refused:
            await credentials.keep(CANARY, SCOPE)
        assert CANARY not in repr((refused.value.args, refused.value.details, refused.value.private))
        with pytest.raises(ResourceBusy):
            await credentials.take("0" * 32, SCOPE)
        await credentials.discard("0" * 32)
    assert "left to expire" in caplog.text


async def test_redis_may_restart_between_calls() -> None:
    with running_redis() as address:
        async with opened(address) as credentials:
            await kept(credentials)
            from redis import Redis

            with Redis.from_url(address) as client:
                client.client_kill_filter(_type="normal", skipme=True)
            assert await credentials.take(await kept(credentials), SCOPE) == CANARY


async def test_a_changed_password_of_redis_applies_to_the_next_connection(tmp_path: Path) -> None:
    file = tmp_path / "redis"
    with running_redis() as address:
        from redis import Redis

        plain = address.removeprefix("unix://")
        file.write_text(f"unix://:canary-1@{plain}")
        with Redis.from_url(address) as admin:
            admin.config_set("requirepass", "canary-1")
            security = SecuritySettings(encryption_keks=KEKS)
            async with open_credentials(FileSecret("store.redis_url", file), security) as credentials:
                reference = await kept(credentials)
                admin.config_set("requirepass", "canary-2")
                file.write_text(f"unix://:canary-2@{plain}")
                admin.client_kill_filter(_type="normal", skipme=True)
                assert await credentials.take(reference, SCOPE) == CANARY


async def test_an_address_that_is_none_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        async with opened("http://:hunter2@somewhere"):
            pass
    assert "hunter2" not in repr((refused.value.args, refused.value.hint, refused.value.private))


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match="redis is not installed"):
        async with opened("redis://127.0.0.1:1"):
            pass


async def test_a_model_without_keys_keeps_none(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, key=CANARY, with_credentials=False)
    await files.put("/a")
    await files.ok("rename", from_path="/a", to_path="/b")
    assert await files.code("write", path="/b", content="x", create_only=True) == "ALREADY_EXISTS"
    assert await files.jobs() == [("UPSERT", "/a", None), ("MOVE", "/b", None)]
