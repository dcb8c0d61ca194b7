"""A contract in sentences, each with the parameter it is about."""

from __future__ import annotations

from collections.abc import Iterator

from once_fakes.contract import UNSPECIFIED, Contract

UNDOCUMENTED_RETENTION_S = 3600.0
"""A receipt whose retention is not documented is taken to be kept for this long (seconds), then for nothing."""

_MISMATCH = {
    "error": "is refused with {status}",
    "replay": "gets the first reply again",
    "execute": "acts, and the key then belongs to it",
    UNSPECIFIED: "is not documented: refused, replayed and done were tried",
}
_CONCURRENT = {
    "reject": "is refused with {status}",
    "coalesce": "waits and gets its result",
    "race": "acts as well",
    UNSPECIFIED: "is not documented: refused, waiting and acting were tried",
}
_FAILURE = {
    "replay": "is answered with it again",
    "re_execute": "is tried anew",
    UNSPECIFIED: "is not documented: answered again and tried anew were tried",
}
_STORED = {
    "success_and_4xx": "refusals of the business are stored like successes",
    "all": "every outcome is stored, server errors too",
}
_REPLAY_BODY = {
    "current_state": "a repetition is answered with the present state, not the first answer",
    "ack_only": "a repetition is acknowledged without saying what it repeated",
    UNSPECIFIED: "what a repetition is answered is not documented: first answer, present state and bare acknowledgement"
    " were tried",
}
_RECORD = {
    "arrival": "a key is taken on arrival, even by an invalid request",
    "completed": "a key is taken only when the work is completed",
}


def promises(contract: Contract) -> Iterator[tuple[str, str]]:
    """(parameter, sentence) for everything a verdict takes for granted, in the order of a report."""
    yield from _on_repetition(contract)
    yield from _on_work(contract)
    yield from _on_lookup(contract)


def span(seconds: float) -> str:
    """A span as a person says it: "30 s", "5 min", "24 h", "30 d"."""
    for length_s, unit, least in ((86400, "d", 2), (3600, "h", 1), (60, "min", 2)):
        if seconds % length_s == 0 and seconds >= least * length_s:
            return f"{seconds / length_s:g} {unit}"
    return f"{seconds:g} s"


def _on_repetition(contract: Contract) -> Iterator[tuple[str, str]]:
    if contract.dedup == "none":
        yield "dedup", "every request acts; the provider does not recognise repeated ones"
        return
    commit = {
        "atomic": "effect and receipt commit in one transaction",
        "effect_first": "the effect commits before its receipt, and the provider may die between",
        "record_first": "the receipt commits before its effect, and the provider may die between",
    }[contract.atomicity]
    if contract.dedup == "content_window":
        assert contract.window_s is not None
        yield (
            "dedup",
            f"{commit}; the same operation and payload within {span(contract.window_s)} is refused with"
            f" {contract.conflict_status}, and acts anew after that",
        )
        return
    if contract.dedup == "session_sequence":
        yield (
            "dedup",
            f"within one {contract.session_field}, a {contract.sequence_field} that is not new is acknowledged and"
            f" dropped, and one that leaves a gap is refused with {contract.conflict_status}; a new"
            f" {contract.session_field} knows nothing of earlier ones",
        )
    elif contract.dedup == "conditional":
        yield (
            "dedup",
            f"a request is for one version of its object ({contract.version_field}, If-Match, If-None-Match), and is"
            f" refused with {contract.conflict_status} if that is not the present one",
        )
    elif contract.dedup == "natural_key":
        freed = "" if contract.retention_s is None else f" {_lifetime(contract)}"
        yield (
            "dedup",
            f"{commit}; a second request to one operation with the same {contract.natural_key_field} is refused with"
            f" {contract.conflict_status}{freed}",
        )
    else:
        mismatch = _MISMATCH[contract.on_mismatch].format(status=contract.mismatch_status)
        yield "on_mismatch", f"{commit}; {_receipts(contract)}; the same key with another payload {mismatch}"
    missing = "acts" if contract.on_missing_key == "execute" else f"is refused with {contract.missing_key_status}"
    yield "on_missing_key", f"a request without {_key_name(contract)} {missing}"
    if contract.scope:
        yield "scope", f"keys are compared within one {' and '.join(contract.scope)}"


def _key_name(contract: Contract) -> str:
    return {
        "natural_key": contract.natural_key_field,
        "session_sequence": contract.session_field,
        "conditional": contract.version_field,
    }.get(contract.dedup) or (contract.key_field or contract.key_header)


def _receipts(contract: Contract) -> str:
    if contract.retention_s is None:
        return "receipts never expire"
    return f"receipts live {_lifetime(contract)}".replace("live for", "live")


def _lifetime(contract: Contract) -> str:
    kept = contract.retention_s
    if isinstance(kept, tuple):
        least, most = kept
        until = "and may then be forgotten at any time" if most is None else f"and {span(most)} at most"
        return f"for {span(least)} at least {until}; a repetition after that acts anew"
    if isinstance(kept, str):
        return (
            f"for a time that is not documented: {span(UNDOCUMENTED_RETENTION_S)} are taken for granted, after that"
            " kept and forgotten were tried"
        )
    assert kept is not None
    if contract.dedup == "natural_key":
        return f"for {span(kept)}, and acts anew after that"
    return f"for {span(kept)}, and a repetition after that acts anew"


def _on_work(contract: Contract) -> Iterator[tuple[str, str]]:
    if contract.on_concurrent is not None:
        concurrent = _CONCURRENT[contract.on_concurrent].format(status=contract.concurrent_status)
        yield "on_concurrent", f"a repetition while the first is still worked on {concurrent}"
    if contract.stored_outcomes != "success":
        again = _FAILURE[contract.on_retry_after_failure]
        yield "stored_outcomes", f"{_STORED[contract.stored_outcomes]}; a repetition of a failure {again}"
    if contract.record_point in _RECORD:
        yield "record_point", _RECORD[contract.record_point]
    if contract.replay_body in _REPLAY_BODY:
        yield "replay_body", _REPLAY_BODY[contract.replay_body]
    if contract.acceptance == "async202":
        yield (
            "acceptance",
            f"202 means accepted: the effect is done within {span(contract.completes_after_s)}, or fails",
        )
    if contract.webhooks == "at_least_once":
        yield "webhooks", "outcomes are told by webhooks: at least once, in any order, perhaps before the response"
    if contract.request_lifetime_s is not None:
        yield "request_lifetime_s", f"a request held up for more than {span(contract.request_lifetime_s)} is dropped"
    if contract.fencing == "token":
        yield "fencing", f"a {contract.fence_field} lower than one seen before is refused with {contract.fence_status}"


def _on_lookup(contract: Contract) -> Iterator[tuple[str, str]]:
    if contract.lookup == "none":
        return
    found = {
        "by_client_ref": f"effects can be listed, and found by id or by {contract.reference_field}",
        "by_key": f"effects can be listed, and found by id or by {contract.key_field or contract.key_header}",
        "list_only": "effects can be listed, not found by a reference of the client's",
    }[contract.lookup]
    lag_s = contract.visibility_lag_s
    yield "lookup", f"{found}; look-ups show them {f'once they are {span(lag_s)} old' if lag_s else 'at once'}"
