"""Pairing: a link that lets a browser or a program in once, and nobody types the password there. Pure but for its own codes.

    POST /api/pair            with the password -> {code, expires_in}: good once, for five minutes
    GET /auth/connect/{code}  without one -> a browser gets a cookie, a program a token, which it uses as the password

    GET /api/pair             the tokens that are good
    DELETE /api/pair/{id}     one of them is good no more, and what was opened with it is cut off

A token holds its end, an id, and a seal made from the password, so it lives through a restart and ends when the password is
changed. Ids of good tokens are kept (`restore`): one that is not among them was taken back. Source: the API after 2.0.21.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from universal.jsonvalue import obj, text

CODE_S = 300.0
"""How long a code is good."""
TOKEN_S = 30 * 24 * 3600
"""How long what it is exchanged for is."""
CODES = 64
"""Codes that wait at once; the oldest gives way."""
CODE_BYTES = 16
TOKENS = 256
"""Tokens that are good at once; the oldest gives way."""
NAME_LIMIT = 100
CHECK_LENGTH = 8
ID_BYTES = 6
FORM = re.compile(r"pair_([0-9a-f]{8,16})_([0-9a-f]{12})_([0-9a-f]{64})")
"""A token: its end as epoch seconds, its id, and the seal over both."""
NAMESPACE = "pairing"
"""Where the store keeps the tokens' ids."""
SALT = b"opencode-shim pairing"
WORK = {"n": 2**14, "r": 8, "p": 1}
"""scrypt, some 50 ms, once: who finds a token must not find out the password by trying."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token that is good, without its seal. `name`: what the client called itself; times as epoch seconds."""

    id: str
    name: str
    created: int
    end: int
    check: str
    """The beginning of its seal, by which tokens of an earlier password are known."""


class Use(Protocol):
    """A request that was admitted by a token."""

    def cut_off(self) -> None:
        """End it at once."""
        ...


Save: TypeAlias = Callable[[str, Any], None]
"""Keeps a token's record by its id; None removes it."""


def _save_nothing(_id: str, _record: Any) -> None:
    """Without a store, tokens last as long as the process."""


class Pairing:
    """Codes and tokens of one server. In: `digest` of the password; without one (empty), tokens last as long as the process."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._key = b"" if digest else secrets.token_bytes(32)
        self._tokens: dict[str, Token] = {}
        self._uses: dict[str, list[Use]] = {}
        self._save: Save = _save_nothing

    def restore(self, records: Mapping[str, Any], save: Save) -> None:
        """Take up the tokens that an earlier process gave out. `save` keeps what changes from now on."""
        if not self._digest:
            return
        self._save = save
        for id_, record in sorted(records.items(), key=lambda pair: int(obj(pair[1]).get("created") or 0)):
            value = obj(record)
            self._tokens[id_] = Token(
                id_, text(value.get("name")), int(value.get("created") or 0), int(value.get("end") or 0), text(value.get("check"))
            )

    def code(self, now_s: float) -> str:
        """A new code. `now_s`: any clock that does not go back, the same for `redeem`."""
        made = secrets.token_urlsafe(CODE_BYTES)
        self._codes[made] = now_s + CODE_S
        while len(self._codes) > CODES:
            self._codes.popitem(last=False)
        return made

    def redeem(self, code: str, now_s: float, epoch_s: float, name: str = "") -> str | None:
        """A token for the code, which is spent; None if it is spent, too old, or none of ours. `name`: who gets it."""
        end_s = self._codes.pop(code, None)
        if end_s is None or end_s < now_s:
            return None
        end, id_ = f"{int(epoch_s) + TOKEN_S:08x}", secrets.token_hex(ID_BYTES)
        seal = self._seal(end, id_)
        for old in [*self._expired_ids(epoch_s), *list(self._tokens)[: max(0, len(self._tokens) + 1 - TOKENS)]]:
            self.revoke(old)
        token = self._tokens[id_] = Token(id_, name[:NAME_LIMIT], int(epoch_s), int(end, 16), seal[:CHECK_LENGTH])
        self._save(id_, {"name": token.name, "created": token.created, "end": token.end, "check": token.check})
        return f"pair_{end}_{id_}_{seal}"

    def admits(self, token: str, epoch_s: float) -> bool:
        """Whether it is a token of this password, not over, and not taken back."""
        return self.identify(token, epoch_s) is not None

    def identify(self, token: str, epoch_s: float) -> str | None:
        """The id of a token of this password that is not over and not taken back; None for any other text."""
        found = FORM.fullmatch(token)
        if found is None or int(found[1], 16) <= epoch_s or found[2] not in self._tokens:
            return None
        return found[2] if hmac.compare_digest(found[3], self._seal(found[1], found[2])) else None

    def is_good(self, id_: str) -> bool:
        """Whether the token of this id was not taken back."""
        return id_ in self._tokens

    @contextmanager
    def used(self, id_: str, use: Use) -> Generator[None]:
        """A request that was admitted by this token lasts: it is cut off when the token is taken back meanwhile."""
        uses = self._uses.setdefault(id_, [])
        uses.append(use)
        try:
            yield
        finally:
            uses.remove(use)
            if not uses and self._uses.get(id_) is uses:
                del self._uses[id_]

    def tokens(self, epoch_s: float) -> list[Token]:
        """Those that are good, the newest first."""
        good = [token for token in self._tokens.values() if token.end > epoch_s]
        return [token for token in reversed(good) if self._seal(f"{token.end:08x}", token.id)[:CHECK_LENGTH] == token.check]

    def revoke(self, id_: str, spared: Use | None = None) -> bool:
        """Take a token back, for good, and cut off what uses it but for `spared`; False if there is none of this id."""
        if self._tokens.pop(id_, None) is None:
            return False
        self._save(id_, None)
        for use in list(self._uses.get(id_, ())):
            if use is not spared:
                use.cut_off()
        return True

    def _expired_ids(self, epoch_s: float) -> list[str]:
        return [token.id for token in self._tokens.values() if token.end <= epoch_s]

    def _seal(self, end: str, id_: str) -> str:
        if not self._key:
            self._key = hashlib.scrypt(self._digest, salt=SALT, dklen=32, **WORK)
        return hmac.new(self._key, f"{end}:{id_}".encode(), "sha256").hexdigest()
