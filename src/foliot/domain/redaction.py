"""What must not be shown: secrets by the name of their key, by their form, and where a job says they are. Pure.

Three rules, and whatever one of them finds is shown as `[redacted]`:

    by key     "password", "apiKey", "card-number": in any spelling, at any depth
    by form    bearer tokens, JSON web tokens, private keys, passwords in URLs, card numbers and IBANs that add up, …
    by place   what `@app.job(secret=("card.number",))` names. The value found there is hidden wherever it turns up
               again in what is told of the same run: an error's text often repeats an argument
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from foliot.errors import InvalidInput

REDACTED = "[redacted]"
RESULT = "result"
"""The first step of a path that speaks of what a job returns."""
_SHORTEST = 4
"""Letters. Whatever is shorter stands in too many words to be looked for in a text."""
MOST_KNOWN = 1_000
"""Secret values of one run that a text is searched for; with more of them nothing of the text is shown."""

Path = tuple[str, ...]


class Secrets(NamedTuple):
    """What of a job's data is secret, beside what is secret everywhere."""

    paths: tuple[Path, ...] = ()
    """Where, in its arguments; or, behind the step `result`, in what it returns. Lists are gone through."""
    keys: frozenset[str] = frozenset()
    """Further names of keys, without their spelling; see `plain`."""

    @property
    def of_arguments(self) -> tuple[Path, ...]:
        return tuple(path for path in self.paths if path[0] != RESULT)

    @property
    def of_result(self) -> tuple[Path, ...]:
        return tuple(path[1:] for path in self.paths if path[0] == RESULT)


NO_SECRETS = Secrets()


def stated_secrets(what: str, paths: Any, keys: Iterable[str] = ()) -> Secrets:
    """As a person wrote them: `("card.number", "result.token")`."""
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        raise InvalidInput(f'{what}: secret={paths!r:.80}: name all secret arguments, as in secret=("card.number",)')
    found = []
    for path in paths:
        steps = tuple(path.split(".")) if isinstance(path, str) else ()
        if not steps or not all(steps) or len(path) > 300 or not path.isprintable():
            raise InvalidInput(
                f"{what}: secret={path!r:.80} is not a path; write its steps with dots between them, as in "
                '"card.number"'
            )
        found.append(steps)
    return Secrets(tuple(dict.fromkeys(found)), frozenset(keys))


# ------------------------------------------------------------------------------------------------------------- by key

_WORDS = frozenset(
    "password passwd pwd passphrase passcode secret secrets token authorization credential credentials cookie iban cvv "
    "cvc cvv2 ssn jwt bearer otp".split()
)
"""A key is secret that has one of these among its words. Several tokens are a number of them."""
_WHOLE = frozenset({"auth", "card", "pin", "dsn"})
"""A key is secret that is one of these, and nothing beside."""
_PARTS = (
    *("password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "signingkey", "encryptionkey"),
    *("secretkey", "authorization", "credential", "cardnumber", "creditcard", "sessionid", "connectionstring"),
)
"""A key is secret that holds one of these, however its words are put together."""
_ENDS = ("secret", "token")
_WORD = re.compile(r"[A-Z]?[a-z]+\d?|[A-Z]+(?![a-z])|\d+")


def plain(key: str) -> str:
    """A key without its spelling: `Card-Number`, `card_number` and `cardNumber` are one."""
    return "".join(letter for letter in key.lower() if letter.isalnum())


@lru_cache(maxsize=4_096)
def is_secret_key(key: str, more: frozenset[str] = frozenset()) -> bool:
    together = plain(key)
    if together in _WHOLE or together in more or together.endswith(_ENDS) or any(part in together for part in _PARTS):
        return True
    return not _WORDS.isdisjoint(word.lower() for word in _WORD.findall(key[:200]))


# ------------------------------------------------------------------------------------------------------------ by form

_NAMES = r"(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)"
_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("private key-----",),
        re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.S),
        REDACTED,
    ),
    # Whose password it is may be told, and where it leads.
    (
        ("://",),
        re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s/:@'\"]{0,200}):[^\s/@'\"]{1,500}@"),
        rf"\1:{REDACTED}@",
    ),
    (
        ("authorization",),
        re.compile(r"(?i)(authorization['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:[a-z]{1,20}\s+)?)[^\s'\",;]{4,}"),
        rf"\1{REDACTED}",
    ),
    # Of what a text calls a bearer, that which has a figure in it: bearers of news have none.
    (("bearer",), re.compile(r"(?i)(\bbearer\s+)(?=[^\s]{0,200}\d)[\w.~+/=-]{8,}"), rf"\1{REDACTED}"),
    # Not within another word, and of a bounded length: else every place where one could begin reads on to the end.
    (("eyj",), re.compile(r"(?<![\w-])eyJ[\w-]{6,8000}\.[\w-]{6,8000}\.[\w-]{0,8000}"), REDACTED),
    (("foliot_",), re.compile(r"\bfoliot_(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Z])[\w-]{24,}"), REDACTED),
    (
        ("_live_", "_test_", "sk-", "gh", "xox", "akia", "asia", "glpat-", "aiza"),
        re.compile(
            r"\b(?:(?:sk|pk|rk)_(?:live|test)_\w{10,}|sk-[\w-]{20,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|"
            r"xox[abeoprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{16}\b|glpat-[\w-]{16,}|AIza[\w-]{30,})"
        ),
        REDACTED,
    ),
    (
        ("passw", "passphrase", "pwd", "secret", "token", "key", "credential"),
        re.compile(
            rf"(?i)({_NAMES}['\"]?\s{{0,3}}(?:=>?|:)\s{{0,3}})(?:'[^'\n]*'|\"[^\"\n]*\"|(?!\[redacted)[^\s'\",;&)}}\]]{{2,}})"
        ),
        rf"\1{REDACTED}",
    ),
)
"""Letters, small, of which a text has some if it has the form; the form; and what is shown of it. Most texts have none
of the letters, and to look for these costs a hundredth of looking for the forms."""
_FIGURES = re.compile(r"\d[\d -]{11,}\d")
_CARD = re.compile(r"(?<![\w.])(?:\d[ -]?){12,18}\d(?![\w.]?\d)")
_COUNTRY = re.compile(r"[A-Z]{2}\d\d")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b")
_CARD_BEGINS = ("2", "3", "4", "5", "6")


def redacted_text(text: str, known: Collection[str] = ()) -> str:
    """The text without what has the form of a secret, and without the values that are `known` to be some."""
    if len(known) > MOST_KNOWN:
        return REDACTED  # to look for so many would take long, and what is left of the text says little
    for value in known:
        if value in text:
            text = text.replace(value, REDACTED)
    if len(text) < 8:
        return text
    small = text.lower()
    for hints, form, instead in _FORMS:
        if any(hint in small for hint in hints):
            text = form.sub(instead, text)
    if _FIGURES.search(text):
        text = _CARD.sub(_unless_card, text)
    return _IBAN.sub(_unless_iban, text) if _COUNTRY.search(text) else text


def _unless_card(found: re.Match[str]) -> str:
    return REDACTED if is_card_number(found[0]) else found[0]


def _unless_iban(found: re.Match[str]) -> str:
    return REDACTED if is_iban(found[0]) else found[0]


def is_card_number(text: str) -> bool:
    """By its length, its first figure, and the sum of all (Luhn)."""
    digits = [int(letter) for letter in text if letter.isdigit()]
    if not 13 <= len(digits) <= 19 or not text.startswith(_CARD_BEGINS):
        return False
    if len(digits) == 19 and not text.startswith(("4", "6")):
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    letters = text.replace(" ", "")
    turned = letters[4:] + letters[:4]
    return 15 <= len(letters) <= 34 and int("".join(str(int(letter, 36)) for letter in turned)) % 97 == 1


def _any_of(hints: bytes) -> re.Pattern[bytes]:
    """One look for all of them: hundreds of payloads are looked at for one page."""
    return re.compile(b"|".join(map(re.escape, hints.split())))


_HARM = _any_of(
    b"pass pwd secret token key auth credential cookie iban cvv cvc ssn jwt bearer otp card pin dsn sessionid "
    b"connectionstring"
)
_HARMFUL_FORMS = _any_of(
    b":// eyj foliot_ _live_ _test_ sk- ghp_ gho_ ghu_ ghs_ ghr_ _pat_ xox akia asia glpat- aiza \\"
)
_FIGURES_IN_BYTES = re.compile(rb"\d[\d -]{11,}\d|[A-Z]{2}\d\d")


def is_harmless(data: bytes) -> bool:
    """Whether JSON can have no secret, by key or by form: a quick look, which says no too often. A backslash may write
    any letter otherwise."""
    small = data.lower()
    if _HARMFUL_FORMS.search(small) is not None:
        return False
    together = small.translate(None, b"-_. ")
    return _HARM.search(together) is None and _FIGURES_IN_BYTES.search(data) is None


# ------------------------------------------------------------------------------------------------------ whole values


def redacted(
    value: Any, paths: Collection[Path] = (), more: frozenset[str] = frozenset(), known: Collection[str] = ()
) -> Any:
    """A JSON value without its secrets, in the same shape."""
    if () in paths:
        return _hidden(value)
    if isinstance(value, dict):
        return {
            key: _hidden(inner) if is_secret_key(key, more) else redacted(inner, _inside(paths, key), more, known)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [redacted(inner, paths, more, known) for inner in value]
    if isinstance(value, str):
        return redacted_text(value, known)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return redacted_number(value, known)
    return value


def redacted_number(value: float, known: Collection[str] = ()) -> Any:
    return REDACTED if str(value) in known or (value > 10**12 and is_card_number(str(value))) else value


def _inside(paths: Collection[Path], key: str) -> Collection[Path]:
    return [path[1:] for path in paths if path[0] == key] if paths else ()


def _hidden(value: Any) -> Any:
    """That there is nothing, or yes or no, gives nothing away."""
    return value if value is None or isinstance(value, bool) or value == "" else REDACTED


def redacted_json(
    data: bytes | None, paths: Collection[Path] = (), more: frozenset[str] = frozenset(), known: Collection[str] = ()
) -> bytes | None:
    """The same for a stored value. What is no JSON is taken for a text."""
    if data is None or (not paths and not more and not known and is_harmless(data)):
        return data
    try:
        value = json.loads(data)
        kept = redacted(value, paths, more, known)
    except RecursionError:  # too deep to be looked through, and nothing that was let in is
        return json.dumps(REDACTED).encode()
    except ValueError:
        return redacted_text(data.decode("utf-8", "replace"), known).encode()
    return data if kept == value else json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


def secret_values(payload: bytes, secrets: Secrets) -> tuple[str, ...]:
    """The values in a payload that are secret by key or by place, in every spelling that a text may repeat them in; the
    longest first, so that none is cut in two."""
    if secrets == NO_SECRETS and is_harmless(payload):
        return ()
    try:
        found = set(_secret_leaves(json.loads(payload), secrets.of_arguments, secrets.keys))
    except (ValueError, RecursionError):
        return ()
    spelled = {form for value in found for form in _spellings(value)}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def _secret_leaves(value: Any, paths: Collection[Path], more: frozenset[str], is_secret: bool = False) -> Iterator[str]:
    is_secret = is_secret or () in paths
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secret_leaves(
                inner, _inside(paths, key) if not is_secret else (), more, is_secret or is_secret_key(key, more)
            )
    elif isinstance(value, list):
        for inner in value:
            yield from _secret_leaves(inner, paths, more, is_secret)
    elif is_secret and value is not None and not isinstance(value, bool):
        text = str(value)
        if len(text) >= _SHORTEST:
            yield text


def _spellings(value: str) -> Iterable[str]:
    """As it is, as Python and JSON quote it, and as a URL does."""
    return {
        value,
        repr(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
    }
