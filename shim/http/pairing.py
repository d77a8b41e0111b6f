"""Pairing: a link that lets a browser or a program in once, and nobody types the password there. Pure but for its own codes.

    POST /api/pair            with the password -> {code, expires_in}: good once, for five minutes
    GET /auth/connect/{code}  without one -> a browser gets a cookie, a program a token, which it uses as the password

Tokens are not kept: each holds its end and a seal made from the password, so they live through a restart and end when the
password is changed. Source: the API after 2.0.21.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict

CODE_S = 300.0
"""How long a code is good."""
TOKEN_S = 30 * 24 * 3600
"""How long what it is exchanged for is."""
CODES = 64
"""Codes that wait at once; the oldest gives way."""
CODE_BYTES = 16
FORM = re.compile(r"pair_([0-9a-f]{8,16})_([0-9a-f]{64})")
"""A token: its end as epoch seconds, and the seal over it."""
SALT = b"opencode-shim pairing"
WORK = {"n": 2**14, "r": 8, "p": 1}
"""scrypt, some 50 ms, once: who finds a token must not find out the password by trying."""


class Pairing:
    """Codes and tokens of one server. In: `digest` of the password; without one (empty), tokens last as long as the process."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._key = b"" if digest else secrets.token_bytes(32)

    def code(self, now_s: float) -> str:
        """A new code. `now_s`: any clock that does not go back, the same for `redeem`."""
        made = secrets.token_urlsafe(CODE_BYTES)
        self._codes[made] = now_s + CODE_S
        while len(self._codes) > CODES:
            self._codes.popitem(last=False)
        return made

    def redeem(self, code: str, now_s: float, epoch_s: float) -> str | None:
        """A token for the code, which is spent; None if it is spent, too old, or none of ours."""
        end_s = self._codes.pop(code, None)
        if end_s is None or end_s < now_s:
            return None
        end = f"{int(epoch_s) + TOKEN_S:08x}"
        return f"pair_{end}_{self._seal(end)}"

    def admits(self, token: str, epoch_s: float) -> bool:
        """Whether it is a token of this password, and not over."""
        found = FORM.fullmatch(token)
        return found is not None and int(found[1], 16) > epoch_s and hmac.compare_digest(found[2], self._seal(found[1]))

    def _seal(self, end: str) -> str:
        if not self._key:
            self._key = hashlib.scrypt(self._digest, salt=SALT, dklen=32, **WORK)
        return hmac.new(self._key, end.encode(), "sha256").hexdigest()
