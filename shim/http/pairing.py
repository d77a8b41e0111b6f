"""Pairing: a one-time link admits a browser or a program without the password. Pure, except for its random codes.

    POST /api/pair            with the password -> {code, expires_in}: valid once, for five minutes
    GET /auth/connect/{code}  without password -> a browser gets a cookie, a program a token, which it uses as the password

    GET /api/pair             lists the valid tokens
    DELETE /api/pair/{id}     revokes a token, and cuts off its open connections

    POST /api/people          {name, role, roots, ...}: a token for a named person (`shim.http.people`), valid for a year
    PATCH /api/people/{name}  changes what the person may do; the token stays
    GET /api/people           lists them; DELETE /api/pair/{id} removes one

A device that a person pairs has the person's name, role and roots. A token contains its end, an id, and a seal made from the
password. So it survives a restart, and a new password revokes it. The store keeps the ids of valid tokens (`restore`); a token
with another id was revoked. Source: the API after OpenCode 2.0.21, which has no people.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from shim.http.people import ANY, OWNER, ROLES, Person, Quota
from universal.lib.jsonvalue import arr, obj, text

CODE_S = 300.0
"""Seconds for which a code is valid."""
TOKEN_S = 30 * 24 * 3600
"""Seconds for which a token is valid."""
PERSON_S = 365 * 24 * 3600
"""Seconds for which the token of a person is valid."""
CODES = 64
"""Maximum unused codes; the oldest is dropped."""
CODE_BYTES = 16
TOKENS = 256
"""Maximum valid tokens; the oldest one of a device is revoked."""
NAME_LIMIT = 100
CHECK_LENGTH = 8
ID_BYTES = 6
FORM = re.compile(r"pair_([0-9a-f]{8,16})_([0-9a-f]{12})_([0-9a-f]{64})")
"""The form of a token: its end in hexadecimal epoch seconds, its id, and the seal over both."""
NAMESPACE = "pairing"
"""The store's namespace for the tokens' ids."""
SALT = b"opencode-shim pairing"
WORK = {"n": 2**14, "r": 8, "p": 1}
"""Parameters of scrypt, which takes some 50 ms, once. Somebody with a token must not find the password by trying."""


@dataclass(frozen=True, slots=True)
class Token:
    """A valid token without its seal. `name`: the client's User-Agent; `created` and `end` in epoch seconds.

    `person` has it; `is_device`: it came by a pairing link, not by `add_person`.
    """

    id: str
    name: str
    created: int
    end: int
    check: str
    """The beginning of the seal, which tells tokens of an earlier password."""
    person: Person = OWNER
    is_device: bool = True


class Use(Protocol):
    """An open request that a token admitted."""

    def cut_off(self) -> None: ...


Save: TypeAlias = Callable[[str, Any], None]
"""Stores a token's record by its id; None removes it."""


class Pairing:
    """The codes and tokens of one server. In: the password's `digest`; if it is empty, tokens end with the process."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._codes: OrderedDict[str, tuple[float, Person]] = OrderedDict()
        self._key = b"" if digest else secrets.token_bytes(32)
        self._tokens: dict[str, Token] = {}
        self._uses: dict[str, list[Use]] = {}
        self._save: Save = lambda _id, _record: None  # without a store, tokens end with the process

    def restore(self, records: Mapping[str, Any], save: Save) -> None:
        """Restore the tokens that an earlier process issued. `save` stores later changes."""
        if not self._digest:
            return
        self._save = save
        for id_, record in sorted(records.items(), key=lambda pair: int(obj(pair[1]).get("created") or 0)):
            self._tokens[id_] = _token_of(id_, record)

    def note(self, id_: str, record: Any) -> None:
        """Note a token that another server of the cluster has issued, or revoked (None)."""
        if record is None:
            self._drop(id_)
        elif self._digest:
            self._put(_token_of(id_, record))

    def code(self, now_s: float, person: Person = OWNER) -> str:
        """Create a code for a device of a person. `now_s`: seconds of any monotonic clock, the same for `redeem`."""
        code = secrets.token_urlsafe(CODE_BYTES)
        self._codes[code] = now_s + CODE_S, person
        while len(self._codes) > CODES:
            self._codes.popitem(last=False)
        return code

    def redeem(self, code: str, now_s: float, epoch_s: float, name: str = "") -> str | None:
        """Exchange a code for a token; None if the code is used, expired or unknown. `name`: the client's User-Agent."""
        end_s, person = self._codes.pop(code, (None, OWNER))
        if end_s is None or end_s < now_s:
            return None
        return self._issue(name, person, epoch_s, TOKEN_S, is_device=True)

    def add_person(self, person: Person, epoch_s: float) -> str:
        """Create the token of a person, which is shown once. Earlier tokens of this name are revoked, those of devices too."""
        for old in [token.id for token in self._tokens.values() if token.person.name == person.name]:
            self.revoke(old)
        return self._issue(person.name, person, epoch_s, PERSON_S, is_device=False)

    def _issue(self, name: str, person: Person, epoch_s: float, lives_s: int, *, is_device: bool) -> str:
        end, id_ = f"{int(epoch_s) + lives_s:08x}", secrets.token_hex(ID_BYTES)
        seal = self._seal(end, id_)
        devices = [token.id for token in self._tokens.values() if token.is_device]
        expired = [token.id for token in self._tokens.values() if token.end <= epoch_s]
        for old in {*expired, *devices[: max(0, len(self._tokens) + 1 - TOKENS)]}:
            self.revoke(old)
        token = Token(id_, name[:NAME_LIMIT], int(epoch_s), int(end, 16), seal[:CHECK_LENGTH], person, is_device)
        self._tokens[id_] = token
        self._save(id_, _record_of(token))
        return f"pair_{end}_{id_}_{seal}"

    def change_person(self, person: Person) -> bool:
        """Change what a person may do, with the same tokens, also those of devices. False if there is none of this name."""
        changed = [replace(token, person=person) for token in self._tokens.values() if token.person.name == person.name]
        for token in changed:
            self._put(token)
            self._save(token.id, _record_of(token))
        return bool(changed)

    def _put(self, token: Token) -> None:
        """Put a token in place of the one with its id. What was begun with other rights is cut off."""
        old = self._tokens.get(token.id, token).person
        self._tokens[token.id] = token
        if old._replace(quota=ANY) != token.person._replace(quota=ANY):
            for use in list(self._uses.get(token.id, ())):
                use.cut_off()

    def quota_of(self, name: str) -> Quota | None:
        """The quota of a person. None: they may use any amount."""
        quota = next((token.person.quota for token in self._tokens.values() if token.person.name == name), ANY)
        return None if quota == ANY else quota

    def person(self, id_: str) -> Person | None:
        """The person whose a valid token is; None for an unknown one."""
        token = self._tokens.get(id_)
        return None if token is None else token.person

    @property
    def has_people(self) -> bool:
        """Whether there are named people."""
        return any(token.person is not OWNER for token in self._tokens.values())

    def identify(self, token: str, epoch_s: float) -> str | None:
        """Return the id of a valid token: of this password, not expired and not revoked. None for any other text."""
        match = FORM.fullmatch(token)
        if match is None or int(match[1], 16) <= epoch_s or match[2] not in self._tokens:
            return None
        return match[2] if hmac.compare_digest(match[3], self._seal(match[1], match[2])) else None

    def is_good(self, id_: str) -> bool:
        return id_ in self._tokens

    @contextmanager
    def used(self, id_: str, use: Use) -> Generator[None]:
        """Register an open request of this token, so that a revocation cuts it off."""
        uses = self._uses.setdefault(id_, [])
        uses.append(use)
        try:
            yield
        finally:
            uses.remove(use)
            if not uses and self._uses.get(id_) is uses:
                del self._uses[id_]

    def tokens(self, epoch_s: float) -> list[Token]:
        """List the valid tokens, newest first."""
        good = [token for token in self._tokens.values() if token.end > epoch_s]
        return [token for token in reversed(good) if self._seal(f"{token.end:08x}", token.id)[:CHECK_LENGTH] == token.check]

    def revoke(self, id_: str, spared: Use | None = None) -> bool:
        """Revoke a token and cut off its requests except `spared`; return False if there is no such token.

        With the token of a person, those of their devices go.
        """
        token = self._tokens.get(id_)
        if not self._drop(id_, spared):
            return False
        self._save(id_, None)
        if token is not None and not token.is_device:
            for device in [other.id for other in self._tokens.values() if other.person.name == token.person.name]:
                self.revoke(device, spared)
        return True

    def _drop(self, id_: str, spared: Use | None = None) -> bool:
        if self._tokens.pop(id_, None) is None:
            return False
        for use in list(self._uses.get(id_, ())):
            if use is not spared:
                use.cut_off()
        return True

    def _seal(self, end: str, id_: str) -> str:
        if not self._key:
            self._key = hashlib.scrypt(self._digest, salt=SALT, dklen=32, **WORK)
        return hmac.new(self._key, f"{end}:{id_}".encode(), "sha256").hexdigest()


def _record_of(token: Token) -> dict[str, Any]:
    record = {"name": token.name, "created": token.created, "end": token.end, "check": token.check}
    return record if token.person == OWNER else {**record, "person": encode_person(token.person), "device": token.is_device}


def _token_of(id_: str, record: Any) -> Token:
    value = obj(record)
    return Token(
        id_,
        text(value.get("name")),
        int(value.get("created") or 0),
        int(value.get("end") or 0),
        text(value.get("check")),
        decode_person(value["person"]) if "person" in value else OWNER,
        value.get("device") is not False,
    )


def encode_person(person: Person) -> dict[str, Any]:
    """A person as a JSON value, for the store and for other servers of a cluster."""
    own = {"ownSessions": True} if person.is_alone else {}
    limits = {} if person.quota == ANY else {"limits": person.quota._asdict()}
    return {"name": person.name, "role": person.role, "roots": list(person.roots), **own, **limits}


def decode_person(value: Any) -> Person:
    """Read a person. One of a role that this version does not know may only look."""
    fields = obj(value)
    role = text(fields.get("role"))
    known = role if role in ROLES else ROLES[0]
    roots = tuple(map(str, arr(fields.get("roots"))))
    limits = obj(fields.get("limits"))
    quota = Quota(*(limits.get(key, default) for key, default in ANY._asdict().items()))
    return Person(text(fields.get("name")), known, roots, fields.get("ownSessions") is True, quota)
