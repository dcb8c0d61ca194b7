"""Clients that cannot be given a base URL are explored all the same: by HTTPS, and by their environment."""

from __future__ import annotations

import os
import ssl
from typing import Any

import httpx
import pytest
import requests

from pytest_once import Once, Verdict, explore

HOST = "api.payments.example"


def refund_by_httpx(headers: dict[str, str], **trust: Any) -> None:
    with httpx.Client(**trust) as client:
        client.post(f"https://{HOST}/v1/refunds", json={"order": "o1"}, headers=headers).raise_for_status()


def refund_by_requests(headers: dict[str, str]) -> None:
    requests.post(f"https://{HOST}/v1/refunds", json={"order": "o1"}, headers=headers, timeout=5).raise_for_status()


@pytest.mark.parametrize("refund", [refund_by_httpx, refund_by_requests])
@pytest.mark.parametrize(
    ("headers", "verdict"), [({"Idempotency-Key": "o1"}, Verdict.EXACTLY_ONCE), ({}, Verdict.DUPLICATE)]
)
def test_a_client_with_a_fixed_address_is_explored_by_its_environment(
    refund: Any, headers: dict[str, str], verdict: Verdict
) -> None:
    """The address of a real provider is built into many SDKs; its requests must reach the fake, and be announced."""

    def body(once: Once) -> None:
        os.environ.update(once.provider("pay", contract="client_key").redirect(HOST))
        refund(headers)

    report = explore(body)
    assert not report.problem, report.problem
    assert report.verdict is verdict


def test_a_client_that_insists_on_tls_is_explored() -> None:
    """Some clients refuse a plain address."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract="client_key")
        with httpx.Client(verify=ssl.create_default_context(cafile=pay.ca_file)) as client:
            client.post(f"{pay.https_url}/v1/refunds", json={"order": "o1"}, headers={"Idempotency-Key": "o1"})

    report = explore(body, soft_faults=0)
    assert not report.problem, report.problem
    assert report.verdict is Verdict.EXACTLY_ONCE
