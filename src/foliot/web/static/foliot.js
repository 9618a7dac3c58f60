// What makes a page live. Without it everything can still be read, and every action still has a page of its own.

const root = document.documentElement;

// The theme: what the system says, unless somebody said otherwise here.
const remembered = localStorage.getItem("theme");
if (remembered) root.dataset.theme = remembered;
for (const button of document.querySelectorAll("[data-theme-switch]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

// Times: how long ago, or how long until, counted on. The absolute time stands beside it, or in its title.
const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function spoken(seconds) {
  const far = Math.abs(seconds);
  if (far < 1) return "now";
  const at = units.findIndex(([, size]) => far >= size);
  const [unit, size] = units[at];
  const count = Math.floor(far / size);
  const next = units[at + 1];
  const rest = next && count < 10 && unit !== "min" ? Math.floor((far % size) / next[1]) : 0;
  const text = `${count} ${unit}` + (rest ? ` ${rest} ${next[0]}` : "");
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}
let ahead = 0; // how far the server's clock is ahead of this one
function tell(where = document) {
  const now = Date.now() + ahead;
  for (const one of where.querySelectorAll("time[data-relative]")) {
    const text = spoken((now - Date.parse(one.dateTime)) / 1000);
    if (one.textContent !== text) one.textContent = text;
  }
}
// The picture of a run that is at work ends now: what is over moves to the left.
function moveTimelines() {
  const now = Date.now() + ahead;
  for (const drawing of document.querySelectorAll("svg[data-from]")) {
    const [from, to] = [Number(drawing.dataset.from), Number(drawing.dataset.to)];
    const [left, wide] = drawing.dataset.x.split(" ").map(Number);
    const scale = (to - from) / Math.max(now - from, to - from);
    for (const one of drawing.querySelectorAll("[data-start]")) {
      const x = left + one.dataset.start * scale * wide;
      if (one.tagName === "line") { one.setAttribute("x1", x); one.setAttribute("x2", x); continue; }
      const end = left + (one.dataset.end === "now" ? 1 : one.dataset.end * scale) * wide;
      one.setAttribute("x", x);
      one.setAttribute("width", Math.max(end - x, 3));
    }
    drawing.querySelector("[data-clock]").textContent = new Date(Math.max(now, to)).toISOString().slice(11, 23);
  }
}
const stated = document.querySelector("meta[name=now]");
if (stated) ahead = Date.parse(stated.content) - Date.now();
setInterval(() => { tell(); moveTimelines(); }, 1000);

// What was told after an action is told once: not again when the page is loaded again.
const address = new URL(location.href);
if (address.searchParams.has("told")) {
  address.searchParams.delete("told");
  address.searchParams.delete("mark");
  history.replaceState(null, "", address);
}

const dialog = document.querySelector("dialog");

// Live parts: when the store has changed, the page is asked for again, and parts that differ are put in place. What
// somebody has selected, typed into or opened is left alone.
function isInUse(part) {
  if (part.querySelector("input[type=checkbox]:checked, details[open]")) return true;
  const selection = getSelection();
  if (selection && !selection.isCollapsed && selection.containsNode(part, true)) return true;
  return part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
}
function put(part, other) {
  if (part.className !== other.className) part.className = other.className;
  if (part.innerHTML === other.innerHTML) return;
  // Whoever goes by keys stays where they were: on the same link, in its new place.
  const held = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.replaceChildren(...other.childNodes);
  if (held) part.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
}
let asking = false;
let again = false;
async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = fresh.querySelector("meta[name=now]");
    if (now) ahead = Date.parse(now.content) - Date.now();
    tell();
    tell(fresh); // so that parts that say the same are the same
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (other && !isInUse(part)) put(part, other);
    }
    begin(document);
    soon();
  } catch { /* the server is away; the light says so, and the next event asks again */ } finally {
    asking = false;
    if (again) { again = false; setTimeout(refresh, 500); }
  }
}
// What is being worked out on the server is asked for again without waiting for a change.
let later = null;
function soon() {
  if (!document.querySelector("[data-soon]")) return;
  later ??= setTimeout(() => { later = null; if (document.hidden) soon(); else refresh(); }, 800);
}
soon();
const light = document.querySelector("[data-light]");
function shine(on) {
  if (!light) return;
  light.classList.toggle("on", on);
  light.classList.toggle("off", !on);
  light.textContent = on ? "live" : "not connected";
}
if (document.querySelector("[data-live]") && window.EventSource) {
  let source = null, waiting = null;
  const disconnect = () => { source?.close(); source = null; };
  const connect = () => {
    // A browser has six connections to a host, for all of its pages together: a page that is not seen takes none.
    if (source || document.hidden) return;
    source = new EventSource("/live");
    source.addEventListener("open", () => shine(true));
    source.addEventListener("error", () => {
      shine(false);
      // A browser does not ask again after a refusal, such as 429 where the token has too many pages open.
      if (source?.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 30000); }
    });
    source.addEventListener("changed", () => {
      waiting ??= setTimeout(() => { waiting = null; if (!document.hidden && !dialog?.open) refresh(); }, 700);
    });
  };
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { disconnect(); return; }
    refresh();
    connect();
  });
  addEventListener("pagehide", disconnect);
}

// Actions open beside the page: the same form that the link leads to, in a dialog.
async function open(address, body = null) {
  let form = null;
  try {
    const asked = { headers: { Accept: "text/html" }, credentials: "same-origin" };
    const answer = await fetch(address, body ? { ...asked, method: "POST", body } : asked);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    form = page.querySelector("[data-act]");
  } catch { /* its own page says what is wrong */ }
  if (!form) { if (!body) location.href = address; return false; }
  show(form);
  return true;
}
function show(form) {
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
  form.querySelector("[aria-invalid], [autofocus], input:not([type=hidden]), textarea")?.focus();
}
// A form in the dialog is sent from there. If it is refused, the answer is the same form with what was typed; else the
// answer leads to a page that says what was done.
async function send(form, button) {
  const buttons = [...form.querySelectorAll("button")];
  const body = new URLSearchParams(new FormData(form, button));
  for (const one of buttons) one.disabled = true;
  let problem = "The server does not answer. Check whether the action was done before you send it again.";
  try {
    const asked = { method: "POST", body, headers: { Accept: "text/html" }, credentials: "same-origin" };
    const answer = await fetch(form.action, asked);
    if (answer.redirected) { location.href = answer.url; return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const again = page.querySelector("[data-act]");
    if (again) { show(again); return; }
    problem = [...page.querySelectorAll("#page h1, #page p")].map((one) => one.textContent).join(" ") || problem;
  } catch { /* nothing came back */ }
  for (const one of buttons) one.disabled = false;
  form.parentElement.querySelector(".told.refused")?.remove();
  const told = Object.assign(document.createElement("p"), { className: "told refused", textContent: problem });
  told.setAttribute("role", "alert");
  form.before(told);
}
dialog?.addEventListener("close", () => { dialog.replaceChildren(); refresh(); });
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-opens]");
  if (link && dialog && !event.metaKey && !event.ctrlKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    open(link.href);
  }
  if (event.target === dialog || event.target.closest("[data-close]") && dialog?.open) {
    event.preventDefault();
    dialog.close();
  }
});

// A list with boxes: how many are chosen, and all of them at once.
function begin(where) {
  for (const form of where.querySelectorAll("form[data-many]")) {
    const boxes = () => [...form.querySelectorAll("tbody input[type=checkbox]")];
    const all = form.querySelector("thead input[type=checkbox]");
    const told = form.querySelector("[data-chosen]");
    const count = () => {
      const chosen = boxes().filter((box) => box.checked).length;
      if (told) told.textContent = chosen ? `${chosen} selected` : "none selected";
      for (const button of form.querySelectorAll(".bulk button")) button.disabled = !chosen;
    };
    if (!form.dataset.begun) {
      form.dataset.begun = "yes";
      form.addEventListener("change", (event) => {
        if (event.target === all) for (const box of boxes()) box.checked = all.checked;
        count();
      });
    }
    count();
  }
}
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (dialog?.open && dialog.contains(form)) {
    event.preventDefault();
    send(form, event.submitter);
    return;
  }
  if (!form.matches("form[data-many]") || !dialog) return;
  event.preventDefault();
  const chosen = new URLSearchParams(new FormData(form, event.submitter));
  if (!await open(form.action, chosen)) form.submit();
});
begin(document);
tell();

// On a phone places are a row that scrolls: where one is shall be seen.
const row = document.querySelector(".side nav");
const here = row?.querySelector("a[aria-current]");
if (here && row.scrollWidth > row.clientWidth) row.scrollLeft = here.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;

// Keys: / searches, g and a letter goes somewhere.
let led = false;
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (event.key === "g") {
    led = true;
    setTimeout(() => { led = false; }, 1200);
  } else if (led) {
    const place = document.querySelector(`.places a[data-key="${CSS.escape(event.key)}"]`);
    if (place) location.href = place.href;
  }
});
