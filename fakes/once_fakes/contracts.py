"""The contracts that have a name: simple ones, and those of published providers."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields

from once_fakes.contract import Contract
from once_fakes.presets.adyen import ADYEN
from once_fakes.presets.braintree import BRAINTREE
from once_fakes.presets.ec2 import EC2
from once_fakes.presets.github import GITHUB_ISSUES
from once_fakes.presets.google import GOOGLE_REQUEST_ID
from once_fakes.presets.ietf_draft import IETF_DRAFT
from once_fakes.presets.kafka import KAFKA_PRODUCER
from once_fakes.presets.kubernetes import KUBERNETES, KUBERNETES_UPDATE
from once_fakes.presets.paypal import PAYPAL_ORDERS, PAYPAL_PAYMENTS, PAYPAL_VAULT
from once_fakes.presets.postmark import POSTMARK
from once_fakes.presets.resend import RESEND
from once_fakes.presets.sendgrid import SENDGRID
from once_fakes.presets.ses import SES
from once_fakes.presets.shopify import SHOPIFY
from once_fakes.presets.slack import SLACK
from once_fakes.presets.smtp import SMTP
from once_fakes.presets.sqs import SQS_FIFO, SQS_FIFO_BY_CONTENT, SQS_STANDARD
from once_fakes.presets.square import SQUARE
from once_fakes.presets.stripe import STRIPE_V1
from once_fakes.presets.stripe_v2 import STRIPE_V2
from once_fakes.presets.twilio import TWILIO
from once_fakes.presets.warehouse import WAREHOUSE_DEDUP, WAREHOUSE_NO_DEDUP

NONE = Contract(name="none", dedup="none")
"""No promise at all: every request acts."""

CLIENT_KEY = Contract(name="client_key")
"""The client's key is remembered for ever; another payload under it is refused."""

CLIENT_KEY_24H = Contract(name="client_key_24h", retention_s=86400.0)
"""The client's key is remembered for 24 h; a repetition after that acts anew."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """The contracts that have a name."""

    none: Contract = NONE
    client_key: Contract = CLIENT_KEY
    client_key_24h: Contract = CLIENT_KEY_24H
    ec2: Contract = EC2
    sqs_fifo: Contract = SQS_FIFO
    sqs_fifo_by_content: Contract = SQS_FIFO_BY_CONTENT
    sqs_standard: Contract = SQS_STANDARD
    ses: Contract = SES
    resend: Contract = RESEND
    sendgrid: Contract = SENDGRID
    postmark: Contract = POSTMARK
    twilio: Contract = TWILIO
    slack: Contract = SLACK
    stripe_v1: Contract = STRIPE_V1
    stripe_v2: Contract = STRIPE_V2
    paypal_payments: Contract = PAYPAL_PAYMENTS
    paypal_orders: Contract = PAYPAL_ORDERS
    paypal_vault: Contract = PAYPAL_VAULT
    adyen: Contract = ADYEN
    square: Contract = SQUARE
    braintree: Contract = BRAINTREE
    github_issues: Contract = GITHUB_ISSUES
    google_request_id: Contract = GOOGLE_REQUEST_ID
    ietf_draft: Contract = IETF_DRAFT
    kafka_producer: Contract = KAFKA_PRODUCER
    kubernetes: Contract = KUBERNETES
    kubernetes_update: Contract = KUBERNETES_UPDATE
    shopify: Contract = SHOPIFY
    smtp: Contract = SMTP
    warehouse_dedup: Contract = WAREHOUSE_DEDUP
    warehouse_no_dedup: Contract = WAREHOUSE_NO_DEDUP


contracts = Contracts()

BY_PROVIDER = {"stripe": "stripe_v1"}
"""A provider's own name, where one of its contracts is what everybody means."""


def contract_names() -> tuple[str, ...]:
    """The names of all contracts that have one."""
    return tuple(field.name for field in fields(Contracts))


def contract_named(name: str) -> Contract:
    """The contract of that name, or of that provider. Raises ValueError, naming the valid ones, if there is none."""
    name = BY_PROVIDER.get(name, name)
    if name not in contract_names():
        near = [known for known in contract_names() if name and known.startswith(name)]
        near = near or difflib.get_close_matches(name, contract_names())
        meant = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise ValueError(f"there is no contract {name!r}{meant}; valid names are {', '.join(contract_names())}")
    contract: Contract = getattr(contracts, name)
    return contract
