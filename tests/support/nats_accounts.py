"""Accounts of NATS for tests: an operator, an account with JetStream, and a user's `.creds` file, all in memory of the server.

What `nsc` writes is written here, with nkeys, a dependency of NATS's client: a token is a JSON that its issuer has signed.
"""

from __future__ import annotations

import base64
import json
import secrets
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

import nkeys

ACCOUNT, USER, OPERATOR = nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER, nkeys.PREFIX_BYTE_OPERATOR
UNLIMITED = {
    name: -1 for name in ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage")
}


def new_key(kind: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(secrets.token_bytes(32), kind))


def public(key: nkeys.KeyPair) -> str:
    return key.public_key.decode()


def text64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def token(issuer: nkeys.KeyPair, subject: str, claims: dict[str, Any], *, expires: int = 0) -> str:
    """A token about a subject (its public key)."""
    body: dict[str, Any] = {
        "iss": public(issuer),
        "sub": subject,
        "name": "test",
        "iat": int(time()),
        "nats": {**claims, "version": 2},
    }
    if expires:
        body["exp"] = expires
    body["jti"] = base64.b32encode(sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    head = text64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signed = f"{head}.{text64(json.dumps(body).encode())}"
    return f"{signed}.{text64(issuer.sign(signed.encode()))}"


class Accounts:
    """An operator with one account for sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._operator, self._account, self._system = new_key(OPERATOR), new_key(ACCOUNT), new_key(ACCOUNT)

    def configuration(self) -> Path:
        """The configuration of a NATS server that knows them."""
        system = public(self._system)
        operator = token(self._operator, public(self._operator), {"type": "operator", "system_account": system})
        limits = {"type": "account", "limits": {**UNLIMITED, "wildcards": True}}
        accounts = {public(key): token(self._operator, public(key), limits) for key in (self._account,)}
        accounts[system] = token(
            self._operator, system, {"type": "account", "limits": {"subs": -1, "conn": -1, "data": -1, "payload": -1}}
        )
        preload = "\n".join(f"  {key}: {value}" for key, value in accounts.items())
        file = self._folder / "accounts.conf"
        text = f"operator: {operator}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
        file.write_text(text)
        return file

    def credentials(self, name: str = "user", *, expires: int = 0, is_known: bool = True) -> Path:
        """A `.creds` file of a new user. In: `is_known`, whether its account is one of the server."""
        user = new_key(USER)
        limits = {"type": "user", "subs": -1, "data": -1, "payload": -1}
        issuer = self._account if is_known else new_key(ACCOUNT)
        jwt = token(issuer, public(user), limits, expires=expires)
        file = self._folder / f"{name}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return file
