"""Certificates of a job over its life: there before the driver, renewed in time, mended when somebody deletes or damages them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_CERTIFICATE_FILE
from statefulspark.errors import StatefulSparkError, UnavailableError
from tests.manifests import manifest
from tests.reconcile.cluster import JobWorld

SECRET = ("Secret", "counts-tls")


async def until_stable() -> JobWorld:
    world = JobWorld(manifest())
    await run(world, 12)
    assert world.job is not None
    assert world.job["status"]["lifecycleState"] == "STABLE"
    return world


async def run(world: JobWorld, reconciler: int) -> None:
    for _ in range(reconciler):
        await world.reconcile()
        world.tick()


def stored(world: JobWorld, key: str) -> bytes:
    return base64.b64decode(world.cluster.objects[SECRET]["data"][key])


def trusted(world: JobWorld) -> x509.Certificate:
    """The certificate that is there, which the authority that the operator checks drivers by has signed, and the one beside it."""
    certificate = x509.load_pem_x509_certificate(stored(world, TLS_CERTIFICATE_FILE))
    for authority in (str(world.drivers.asked[-1][1]).encode(), stored(world, TLS_AUTHORITY_FILE)):
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    return certificate


def status(world: JobWorld) -> Any:
    assert world.job is not None
    return world.job["status"]


def told(world: JobWorld, reason: str) -> list[str]:
    return [each["message"] for (kind, _), each in world.cluster.objects.items() if kind == "Event" and each["reason"] == reason]


def test_the_driver_starts_with_certificates_and_is_looked_at_with_their_authority() -> None:
    async def story() -> None:
        world = await until_stable()
        pod = world.cluster.objects["Pod", "counts-driver"]
        (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == "tls")
        assert volume["secret"]["secretName"] == "counts-tls"
        assert {each["key"] for each in volume["secret"]["items"]} == {"tls.crt", "tls.key", "ca.crt"}, "the authority's key is in no pod"
        assert set(world.cluster.objects[SECRET]["data"]) == {"tls.crt", "tls.key", "ca.crt"}, "nor in a Secret"
        assert {url for url, _ in world.drivers.asked} == {"https://10.0.0.1:8480"}
        assert len({authority for _, authority in world.drivers.asked}) == 1
        trusted(world)

    asyncio.run(story())


def test_a_certificate_is_renewed_once_and_in_time() -> None:
    """By the same authority, so whoever has not read it yet trusts those who have; the driver goes on, and nobody is accused."""

    async def story() -> None:
        world = await until_stable()
        before, authority = stored(world, TLS_CERTIFICATE_FILE), stored(world, TLS_AUTHORITY_FILE)
        tokens = world.cluster.objects["Secret", "counts-driver"]
        pod = world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"]
        world.now += timedelta(days=50)
        await run(world, 3)
        assert stored(world, TLS_CERTIFICATE_FILE) == before
        world.now += timedelta(days=20)
        await run(world, 1)
        after = stored(world, TLS_CERTIFICATE_FILE)
        assert after != before
        certificate = trusted(world)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        assert certificate.not_valid_after_utc - world.now > timedelta(days=80)
        await run(world, 3)
        assert stored(world, TLS_CERTIFICATE_FILE) == after
        assert world.cluster.objects["Secret", "counts-driver"] == tokens
        assert world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"] == pod
        assert not told(world, "ChildrenRepaired")

    asyncio.run(story())


def test_certificates_that_are_gone_or_damaged_are_made_anew() -> None:
    async def story() -> None:
        for damage in (_remove, _remove_owner, _spoil_owner, _spoil_all):
            world = await until_stable()
            damage(world.cluster)
            world.now += timedelta(days=70)
            await run(world, 4)
            assert trusted(world).not_valid_after_utc - world.now > timedelta(days=80)

    asyncio.run(story())


@pytest.mark.parametrize("name", ["counts-driver", "counts-tls"])
def test_a_secret_that_somebody_deletes_is_there_again_within_a_quarter_of_an_hour(name: str) -> None:
    """Tokens are the same again: what runs has them."""

    async def story() -> None:
        world = await until_stable()
        before = world.cluster.objects["Secret", name]["data"]
        world.cluster.remove("Secret", name)
        world.now += timedelta(minutes=16)
        await run(world, 2)
        assert (world.cluster.objects["Secret", name]["data"] == before) is (name == "counts-driver")
        world.cluster.remove("ConfigMap", name)
        world.cluster.collect()
        assert ("Secret", name) not in world.cluster.objects
        await run(world, 2)
        assert ("Secret", name) in world.cluster.objects, "an owner that goes is seen at once"
        trusted(world)

    asyncio.run(story())


@pytest.mark.parametrize("renewal", [False, True], ids=["first", "renewal"])
def test_an_operator_that_ends_anywhere_leaves_secrets_that_the_next_one_knows(renewal: bool) -> None:
    """Also between making a Secret and writing that down: it cannot be read, so it is replaced."""

    async def story(last: int) -> bool:
        world = JobWorld(manifest())
        if renewal:
            await run(world, 12)
            world.now += timedelta(days=70)
        calls = 0

        def end(moment: str) -> None:
            nonlocal calls
            calls += 1
            if calls > last:
                raise UnavailableError("the operator ends")

        world.cluster.trouble = end
        for _ in range(3):
            with contextlib.suppress(StatefulSparkError):
                await world.reconcile()
            world.tick()
        world.cluster.trouble = lambda moment: None
        world.restart_operator()
        for _ in range(20):
            with contextlib.suppress(StatefulSparkError):
                await world.reconcile()
            world.tick()
        world.cluster.collect()
        assert status(world)["lifecycleState"] == "STABLE"
        assert "error" not in status(world)
        assert trusted(world).not_valid_after_utc - world.now > timedelta(days=80)
        assert not told(world, "NameTaken")
        return calls <= last

    last = 0
    while not asyncio.run(story(last)):
        last += 1
    assert last > 10


def test_with_another_key_a_driver_gets_new_secrets_and_is_started_again() -> None:
    """The old ones are of no use to an operator that has lost its key. Once, and it goes on from its state."""

    async def story() -> None:
        world = await until_stable()
        before = world.cluster.objects["Secret", "counts-driver"]["data"]
        pod = world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"]
        asked = len(world.drivers.asked)
        world.restart_operator(b"l" * 32)
        await run(world, 1)
        assert len(world.drivers.asked) == asked, "what it does not know it does not call"
        await run(world, 20)
        after = world.cluster.objects["Secret", "counts-driver"]["data"]
        assert not set(after.values()) & set(before.values())
        assert status(world)["lifecycleState"] == "STABLE"
        trusted(world)
        assert len(told(world, "SecretsReplaced")) == 1
        again = world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"]
        assert again != pod
        await run(world, 10)
        assert world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"] == again

    asyncio.run(story())


def test_a_job_of_an_operator_without_a_key_runs_on_until_its_secrets_are_deleted() -> None:
    """They are of the job and can neither be read nor removed: the job names them, and its driver is left alone until it can be followed by one."""

    async def story() -> None:
        world = await until_stable()
        for name in ("counts-driver", "counts-tls"):
            secret, owner = world.cluster.objects["Secret", name], world.cluster.objects["ConfigMap", name]
            secret["metadata"]["ownerReferences"] = owner["metadata"]["ownerReferences"]
            world.cluster.remove("ConfigMap", name)
        pod = world.cluster.objects["Pod", "counts-driver"]
        del pod["metadata"]["annotations"]["statefulspark.io/key-id"]
        before = copy.deepcopy({key: each for key, each in world.cluster.objects.items() if key[0] == "Secret"})
        world.restart_operator()
        await run(world, 12)
        assert {key: each for key, each in world.cluster.objects.items() if key[0] == "Secret"} == before
        assert world.cluster.objects["Pod", "counts-driver"]["metadata"].get("deletionTimestamp") is None
        assert "Secret counts-driver exists in namespace shop" in status(world)["error"]["message"]
        assert len(told(world, "NameTaken")) == 1
        for key in before:
            world.cluster.remove(*key)
        await run(world, 25)
        assert status(world)["lifecycleState"] == "STABLE"
        assert "error" not in status(world)
        assert world.cluster.objects["Pod", "counts-driver"]["metadata"]["uid"] != pod["metadata"]["uid"]
        trusted(world)

    asyncio.run(story())


def _remove(cluster: Any) -> None:
    cluster.remove(*SECRET)


def _remove_owner(cluster: Any) -> None:
    cluster.remove("ConfigMap", "counts-tls")


def _spoil_owner(cluster: Any) -> None:
    cluster.objects["ConfigMap", "counts-tls"]["data"] = {"keyId": "x", "notAfter": "soon"}


def _spoil_all(cluster: Any) -> None:
    cluster.objects[SECRET]["data"] = {"tls.crt": "%%%", "other": "eA=="}


def test_a_job_has_a_network_policy_where_the_operator_makes_them() -> None:
    """And it is repaired like any other child."""

    async def story() -> None:
        world = JobWorld(manifest(), job_api_from=({"podSelector": {}},))
        await run(world, 12)
        assert world.cluster.objects["NetworkPolicy", "counts-driver"]["spec"]["policyTypes"] == ["Ingress"]
        world.cluster.remove("NetworkPolicy", "counts-driver")
        await run(world, 2)
        assert ("NetworkPolicy", "counts-driver") in world.cluster.objects
        assert not any(kind == "NetworkPolicy" for kind, _ in (await until_stable()).cluster.objects)

    asyncio.run(story())
