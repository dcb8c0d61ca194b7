"""Kubernetes objects: names that are taken, versions that are stale, Status documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from once_fakes import Contract
from once_fakes.presets.kubernetes import KUBERNETES, KUBERNETES_UPDATE
from pytest_once import Once, Report, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

MAPS = "/api/v1/namespaces/plant/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/plant/deployments"


def config(name: str = "settings", litres: str = "5", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"litres": litres},
    }


def reason(reply: Any) -> tuple[int, str]:
    status = shown(reply)
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", reply.status)
    return reply.status, status["reason"]


@pytest.fixture
def kubernetes(ledger: Ledger) -> Wire:
    return Wire(ledger, KUBERNETES)


def test_a_name_is_taken_in_its_namespace_and_kind_only(kubernetes: Wire) -> None:
    """409 AlreadyExists says that there is one, not that it is the one that was meant."""
    made = kubernetes.send("POST", MAPS, config())
    assert (made.status, shown(made)["metadata"]["namespace"]) == (201, "plant")
    again = kubernetes.send("POST", MAPS, config(litres="6"))
    assert reason(again) == (409, "AlreadyExists")
    assert shown(again)["message"] == 'configmaps "settings" already exists'
    assert shown(kubernetes.send("GET", f"{MAPS}/settings"))["data"] == {"litres": "5"}

    other = config()
    assert kubernetes.send("POST", MAPS.replace("plant", "farm"), other).status == 201
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "settings"}}
    assert kubernetes.send("POST", DEPLOYMENTS, deployment).status == 201
    items = shown(kubernetes.send("GET", MAPS))["items"]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in items] == [("ConfigMap", "plant")]
    assert len(kubernetes.ledger.effects()) == 3


def test_a_generated_name_is_no_identity(kubernetes: Wire) -> None:
    """Each request with generateName makes an object."""
    generated = {**config(), "metadata": {"generateName": "run-"}}
    names = [shown(kubernetes.send("POST", MAPS, generated))["metadata"]["name"] for _ in range(2)]
    assert len(set(names)) == 2
    assert all(name.startswith("run-") for name in names)
    assert shown(kubernetes.send("GET", f"{MAPS}/{names[1]}"))["metadata"]["name"] == names[1]


def test_refusals_are_status_documents(kubernetes: Wire) -> None:
    """Clients decide by reason and code."""
    assert reason(kubernetes.send("GET", f"{MAPS}/none")) == (404, "NotFound")
    assert reason(kubernetes.send("GET", "/api")) == (404, "NotFound")
    assert reason(kubernetes.send("DELETE", f"{MAPS}/settings")) == (405, "MethodNotAllowed")
    assert reason(kubernetes.send("PUT", f"{MAPS}/settings", config())) == (405, "MethodNotAllowed")
    assert reason(kubernetes.send("POST", MAPS, config("Not A Name"))) == (422, "Invalid")
    assert reason(kubernetes.send("POST", MAPS, config(resourceVersion="1"))) == (422, "Invalid")
    assert reason(kubernetes.send("POST", MAPS, {**config(), "kind": "Secret"})) == (400, "BadRequest")
    assert reason(kubernetes.send("POST", MAPS, config(namespace="farm"))) == (400, "BadRequest")
    assert reason(kubernetes.send("POST", MAPS, b"{")) == (400, "BadRequest")
    assert kubernetes.ledger.effects() == []


def test_an_update_is_for_the_version_it_names(ledger: Ledger) -> None:
    """What has been changed in between is not overwritten."""
    kubernetes = Wire(ledger, KUBERNETES_UPDATE)
    made = kubernetes.send("POST", MAPS, config())
    assert reason(kubernetes.send("POST", MAPS, config())) == (409, "AlreadyExists")
    version = shown(made)["metadata"]["resourceVersion"]
    changed = kubernetes.send("PUT", f"{MAPS}/settings", config(litres="6", resourceVersion=version))
    assert (changed.status, shown(changed)["metadata"]["resourceVersion"]) == (200, "2")
    stale = kubernetes.send("PUT", f"{MAPS}/settings", config(litres="7", resourceVersion=version))
    assert reason(stale) == (409, "Conflict")
    present = shown(kubernetes.send("GET", f"{MAPS}/settings"))
    assert (present["data"]["litres"], present["metadata"]["resourceVersion"]) == ("6", "2")
    assert [one["data"]["litres"] for one in shown(kubernetes.send("GET", MAPS))["items"]] == ["6"]
    assert reason(kubernetes.send("PUT", f"{MAPS}/settings", config())) == (422, "Invalid")
    assert reason(kubernetes.send("PUT", f"{MAPS}/absent", config("absent", resourceVersion="9"))) == (409, "Conflict")


def explored(contract: Contract, act: Callable[[httpx.Client], None]) -> Report:
    def body(once: Once) -> None:
        kubernetes = once.provider("kubernetes", contract=contract)
        with kubernetes.router, httpx.Client(base_url=kubernetes.base_url, verify=False) as client:
            act(client)

    return explore(body, soft_faults=0)


def create_named(client: httpx.Client) -> None:
    answer = client.post(MAPS, json=config())
    if answer.status_code == 409:
        answer = client.get(f"{MAPS}/settings")
    assert answer.raise_for_status().json()["data"] == {"litres": "5"}


def create_generated(client: httpx.Client) -> None:
    client.post(MAPS, json={**config(), "metadata": {"generateName": "settings-"}}).raise_for_status()


def fill_up(client: httpx.Client) -> None:
    """Add a litre to what is there."""
    client.post(MAPS, json=config())
    present = client.get(f"{MAPS}/settings").raise_for_status().json()
    version, litres = present["metadata"]["resourceVersion"], int(present["data"]["litres"])
    client.put(f"{MAPS}/settings", json=config(litres=str(litres + 1), resourceVersion=version)).raise_for_status()


def set_to_six(client: httpx.Client) -> None:
    """What is to be, not what is to be added; and only if it is not so yet."""
    client.post(MAPS, json=config())
    present = client.get(f"{MAPS}/settings").raise_for_status().json()
    if present["data"]["litres"] != "6":
        version = present["metadata"]["resourceVersion"]
        client.put(f"{MAPS}/settings", json=config(litres="6", resourceVersion=version)).raise_for_status()


@pytest.mark.parametrize(
    ("contract", "act", "verdict"),
    [
        (KUBERNETES, create_generated, Verdict.DUPLICATE),
        (KUBERNETES, create_named, Verdict.EXACTLY_ONCE),
        (KUBERNETES_UPDATE, fill_up, Verdict.DUPLICATE),
        (KUBERNETES_UPDATE, set_to_six, Verdict.EXACTLY_ONCE),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", None)),
)
def test_an_identity_of_ones_own_decides(
    contract: Contract, act: Callable[[httpx.Client], None], verdict: Verdict
) -> None:
    """Generated names and increments are done again after a crash; names and states are not."""
    report = explored(contract, act)
    assert report.verdict is verdict, (report.verdict, report.problem)
    assert verdict is not Verdict.EXACTLY_ONCE or report.coverage == "exhausted"
