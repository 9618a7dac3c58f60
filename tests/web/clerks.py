"""Two ways to use the pages without scripts: by a browser, and by the forms that the pages hold.

The full suite does everything in a browser. The short one leaves it to the forms where a browser adds nothing but time.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, Protocol
from xml.etree import ElementTree

import httpx

from tests.web.screen import CANARY

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
WHY = f"because {CANARY}"


class Clerk(Protocol):
    """An operator who opens pages and sends forms."""

    def open(self, path: str) -> int:
        """The status of the answer."""

    def shown(self, selector: str) -> str:
        """The text of the first element of the page with this tag, `.class` or `#id`."""

    def preview(self, path: str, **fields: str) -> str:
        """The text that the form of an action shows before the action is done."""

    def act(self, path: str, **fields: str) -> str:
        """Fills in the form of an action and sends it. Returns the message of the next page."""


class BrowserClerk:
    """A page of a browser that runs no scripts."""

    def __init__(self, page: Any, address: str) -> None:
        self._page = page
        self._address = address

    def open(self, path: str) -> int:
        return int(self._page.goto(f"{self._address}{path}").status)

    def shown(self, selector: str) -> str:
        return str(self._page.locator(selector).first.inner_text())

    def preview(self, path: str, **fields: str) -> str:
        self._fill(path, fields)
        self._page.click("text=Preview")
        return self.shown(".will")

    def act(self, path: str, **fields: str) -> str:
        self._fill(path, {"reason": WHY} | fields)
        self._page.locator("form.stack .actions button").first.click()
        told = self.shown(".told")
        assert "refused" not in self._page.locator(".told").first.get_attribute("class"), told
        return told

    def _fill(self, path: str, fields: dict[str, str]) -> None:
        assert self.open(f"/act/{path}") == 200
        for name, value in fields.items():
            field = self._page.locator(f"form.stack [name='{name}']")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            elif field.evaluate("field => field.type") == "checkbox":
                field.check()
            else:
                field.fill(value)


class FormClerk:
    """Reads the markup of a page and sends its form as a browser would."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(
            base_url=address, follow_redirects=True, headers={"accept": "text/html", "origin": address}
        )
        self._page: ElementTree.Element = ElementTree.Element("html")

    def open(self, path: str) -> int:
        return self._read(self._client.get(path))

    def shown(self, selector: str) -> str:
        return " ".join("".join(self._first(selector).itertext()).split())

    def preview(self, path: str, **fields: str) -> str:
        sent = self._filled(path, fields)
        [button] = [one for one in self._first(".actions").iter("button") if one.get("name") == "preview"]
        assert "formnovalidate" in button.keys()  # noqa: SIM118 - an element is no dict
        self._send(sent | {"preview": str(button.get("value"))})
        return self.shown(".will")

    def act(self, path: str, **fields: str) -> str:
        sent = self._filled(path, {"reason": WHY} | fields)
        for field in self._first(".stack").iter("input"):
            assert "required" not in field.keys() or sent.get(field.get("name", "")), field.attrib  # noqa: SIM118
        self._send(sent)
        told = self.shown(".told")
        assert "refused" not in self._first(".told").get("class", ""), told
        return told

    def close(self) -> None:
        self._client.close()

    def _read(self, answer: httpx.Response) -> int:
        self._page = parsed(answer.text)
        return answer.status_code

    def _send(self, fields: dict[str, str]) -> None:
        form = self._first(".stack")
        assert form.get("method") == "post"
        self._read(self._client.post(form.get("action", ""), data=fields))

    def _filled(self, path: str, fields: dict[str, str]) -> dict[str, str]:
        assert self.open(f"/act/{path}") == 200
        sent: dict[str, str] = {}
        left = dict(fields)
        for field in self._first(".stack").iter():
            name = field.get("name")
            if name is None or field.tag == "button":
                continue
            value = left.pop(name, None)
            if field.tag == "select":
                choices = [one.get("value", "") for one in field.iter("option")]
                chosen = [one.get("value", "") for one in field.iter("option") if "selected" in one.keys()]  # noqa: SIM118
                assert value is None or value in choices
                sent[name] = value if value is not None else (chosen or choices)[0]
            elif field.tag == "textarea":
                sent[name] = value if value is not None else "".join(field.itertext())
            elif field.get("type") != "checkbox" or value is not None or "checked" in field.keys():  # noqa: SIM118
                sent[name] = value if value is not None else field.get("value", "")
        assert not left, f"the form has no fields {sorted(left)}"
        return sent

    def _first(self, selector: str) -> ElementTree.Element:
        for one in self._page.iter():
            found = {"#": [one.get("id", "")], ".": one.get("class", "").split()}.get(selector[0], [str(one.tag)])
            if selector.lstrip("#.") in found:
                return one
        raise AssertionError(f"the page has no {selector}: {self._page.findtext('.//h1')}")


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.builder = ElementTree.TreeBuilder()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        self.open.append(tag)
        if tag in VOID:
            self.handle_endtag(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"
        self.builder.end(tag)

    def handle_data(self, data: str) -> None:
        if self.open:
            self.builder.data(data)


def parsed(text: str) -> ElementTree.Element:
    """The elements of a page. Each of them must be closed."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser.builder.close()
