"""Ray: the extra is missing, or there is no cluster at an address."""

import socket
import sys
from types import SimpleNamespace

import pytest

from regard.comparison.config import RayConfig
from regard.comparison.ray_tasks import connect_to_ray
from regard.errors import UserError


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a stand-in for Ray was asked to join."""
    addresses: list[str] = []
    ray = SimpleNamespace(
        is_initialized=lambda: False, init=lambda address, **_: addresses.append(address)
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return addresses


@pytest.fixture
def port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[ray\]'"):
        connect_to_ray(RayConfig())


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_at_which_nothing_listens(joined: list[str], port: int, scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{port}"
    with pytest.raises(UserError, match=f"there is no Ray cluster at {address}; start one"):
        connect_to_ray(RayConfig(address=address))
    assert not joined


def test_the_address_of_the_environment(
    joined: list[str], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(UserError, match=f"there is no Ray cluster at 127.0.0.1:{port}"):
        connect_to_ray(RayConfig())
    assert not joined


@pytest.mark.parametrize("address", ["", "nowhere", "10.0.0.1:", "10.0.0.1:port", ":6379", "[::1"])
def test_a_malformed_address(joined: list[str], address: str) -> None:
    with pytest.raises(UserError, match="write HOST:PORT"):
        connect_to_ray(RayConfig(address=address))
    assert not joined


def test_a_cluster_is_joined(joined: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        connect_to_ray(RayConfig(address=address))
    connect_to_ray(RayConfig())
    assert joined == [address, "auto"]
