#!/usr/bin/env python3
"""make_site.py KEYHOLE OUT - README, doc/, the other READMEs, the header and the commands as a site: static pages, a search box, no network.

Pages come from Markdown by Debian's python3-markdown; the header's manual and "keyhole help" are shown as they are. Links between
documents become links between pages, and every link of every page is checked: one that leads nowhere is an error. The search is a list of
all sections in search.js and a few lines that look through it.
"""
import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import markdown

keyhole, out = sys.argv[1], Path(sys.argv[2])
SOURCES = [Path("README.md"), Path("python/README.md"), *sorted(Path("doc").glob("*.md")), Path("models/builtin/README.md"),
           Path("examples/README.md"), Path("CONTRIBUTING.md"), Path("SECURITY.md"), Path("CHANGELOG.md")]
NAMES = {Path("README.md"): "index", Path("python/README.md"): "python", Path("models/builtin/README.md"): "builtin-model",
         Path("examples/README.md"): "examples"}
STYLE = """
:root { --ink: #1b1f24; --paper: #fff; --soft: #f3f4f6; --line: #d7dbe0; --link: #0b57a4; --mark: #fff1a8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --paper: #15181c; --soft: #20252b; --line: #363d45; --link: #7db7f5; --mark: #5a4d00 } }
* { box-sizing: border-box } html { scroll-padding-top: 1rem }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; display: grid; grid-template-columns: 16rem minmax(0, 1fr) }
nav { padding: 1.2rem 1rem; border-right: 1px solid var(--line); background: var(--soft); min-height: 100vh }
nav summary { display: none } nav > div { position: sticky; top: 1rem; max-height: calc(100vh - 2rem); overflow: auto }
nav b { display: block; font-size: 1.15rem; margin-bottom: .6rem } nav a { display: block; padding: .12rem 0 } nav a[aria-current] { font-weight: 700; color: var(--ink) }
main { padding: 1.5rem 2.2rem 4rem; max-width: 62rem }
a { color: var(--link); text-decoration: none } a:hover, a:focus { text-decoration: underline }
h1, h2, h3 { line-height: 1.25; margin: 1.8em 0 .5em } h1 { margin-top: 0 }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; font-size: .86rem; line-height: 1.45 }
code { background: var(--soft); padding: .05em .3em; border-radius: 4px; font-size: .9em; overflow-wrap: anywhere } pre code { background: none; padding: 0; font-size: inherit; overflow-wrap: normal }
table { border-collapse: collapse; display: block; overflow-x: auto; max-width: 100% } th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top }
th { background: var(--soft) } img { max-width: 100% }
input { width: 100%; padding: .45rem .6rem; font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line); border-radius: 6px; margin-bottom: .8rem }
#found { margin-bottom: 2rem } #found:empty { display: none } #found article { border-left: 3px solid var(--link); padding: .1rem .9rem; margin: 0 0 1rem }
#found p { margin: .1rem 0; font-size: .92rem } mark { background: var(--mark); color: inherit }
@media (max-width: 50rem) { body { display: block } nav { min-height: 0; border-right: 0; border-bottom: 1px solid var(--line) } nav > div { position: static; max-height: none } nav .pages > div { columns: 2 } nav summary { display: block; color: var(--link) } nav a { break-inside: avoid } body.searching nav .pages { display: none } main { padding: 1.2rem } }
"""
SEARCH = r"""
const box = document.getElementById('search'), found = document.getElementById('found');
function show(parent, text, words) {
  const any = new RegExp('(' + words.map(w => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|') + ')', 'giu');
  for (const piece of text.split(any)) {
    const node = any.test(piece) ? document.createElement('mark') : document.createTextNode('');
    any.lastIndex = 0; node.textContent = piece; parent.append(node);
  }
}
function excerpt(text, at) { // some 220 characters, whole words
  const from = at ? text.indexOf(' ', at) + 1 : 0, last = text.lastIndexOf(' ', at + 220), whole = at + 220 >= text.length;
  return (from ? '\u2026 ' : '') + (whole ? text.slice(from) : text.slice(from, last) + ' \u2026');
}
function look() {
  const words = box.value.toLowerCase().split(/\s+/).filter(w => w.length > 1);
  found.replaceChildren();
  document.body.classList.toggle('searching', words.length > 0); // a phone shows what was found instead of the menu
  if (!words.length) return;
  const scored = SECTIONS.map(s => {
    const title = s.t.toLowerCase(), text = s.x.toLowerCase();
    const all = words.every(w => title.includes(w) || text.includes(w));
    return all ? [s, words.reduce((n, w) => n + 20 * title.includes(w) + text.split(w).length - 1, 0)] : null;
  }).filter(Boolean).sort((a, b) => b[1] - a[1]);
  const head = document.createElement('p');
  head.textContent = scored.length + (scored.length == 1 ? ' section' : ' sections') + ' with "' + box.value + '"';
  found.append(head);
  for (const [s] of scored.slice(0, 20)) {
    const item = document.createElement('article'), link = document.createElement('a'), text = document.createElement('p');
    link.href = s.u; show(link, s.p + ': ' + s.t, words);
    const at = Math.max(0, Math.min(...words.map(w => { const i = s.x.toLowerCase().indexOf(w); return i < 0 ? 1e9 : i; })) - 80);
    show(text, excerpt(s.x, at < 1e8 ? at : 0), words);
    item.append(link, text); found.append(item);
  }
}
box.addEventListener('input', look);
const menu = document.getElementById('pages'); // a phone shows the page first
if (menu && matchMedia('(max-width: 50rem)').matches) menu.open = false;
const asked = new URLSearchParams(location.search).get('q');
if (asked) { box.value = asked; look(); }
"""


def page_name(source: Path) -> str:
    return NAMES.get(source, source.stem.lower())


PAGE_OF = {s.resolve(): page_name(s) + ".html" for s in SOURCES}
PAGE_OF[Path("include/keyhole.h").resolve()] = "header.html"


def relink(text: str, source: Path) -> str:
    """Links to documents become links to pages; to other files of the repository, what they are called; images are copied."""

    def one(m: "re.Match[str]") -> str:
        attribute, target = m.groups()
        if re.match(r"[a-z]+:|#", target):
            return m.group()
        path, _, anchor = target.partition("#")
        file = (source.parent / path).resolve()
        if file in PAGE_OF:
            return f'{attribute}="{PAGE_OF[file]}{"#" + anchor if anchor else ""}"'
        if not file.exists():
            raise SystemExit(f"{source}: links to {target}, which is not there")
        if file.suffix in (".png", ".svg"):
            (out / file.name).write_bytes(file.read_bytes())
            return f'{attribute}="{file.name}"'
        if file.is_file() and file.stat().st_size < 200_000:
            name = str(file.relative_to(Path.cwd())).replace("/", "-") + ".txt"
            (out / name).write_bytes(file.read_bytes())
            return f'{attribute}="{name}"'
        return f'title="{html.escape(target)}"'

    return re.sub(r'\b(href|src)="([^"]+)"', one, text)


def lists_apart(text: str) -> str:
    """What GitHub takes for a list and python-markdown alone does not: one right under a paragraph, one within another by two spaces."""
    lines: "list[str]" = []
    code = in_list = False
    for line in text.split("\n"):
        item = re.match(r"([-*+]|1\.) +\S", line) is not None and not code
        if item and not in_list and lines and lines[-1].strip():
            lines.append("")
        if in_list and not code and re.match(r" {2,3}[-*+] ", line):
            line = "  " + line
        code ^= line.lstrip().startswith("```")
        in_list = bool(line.strip()) and (item or in_list)
        lines.append(line)
    return "\n".join(lines)


def slug(text: str, used: set) -> str:
    base = re.sub(r"[^\w]+", "-", html.unescape(text).lower()).strip("-") or "section"
    name, i = base, 1
    while name in used:
        i, name = i + 1, f"{base}-{i}"
    used.add(name)
    return name


def with_anchors(body: str) -> "tuple[str, list[tuple[str, str, str]]]":
    """Headings get anchors; what stands under each is a section for the search: (anchor, title, text)."""
    used: set = set()
    sections = []

    def anchor(m: "re.Match[str]") -> str:
        return f'<{m[1]} id="{slug(re.sub("<[^>]+>", "", m[2]), used)}">{m[2]}</{m[1]}>'

    body = re.sub(r"<(h[1-6])>(.*?)</\1>", anchor, body, flags=re.S)
    parts = re.split(r'<h[1-6] id="([^"]+)">(.*?)</h[1-6]>', body, flags=re.S)
    for name, title, text in zip(parts[1::3], parts[2::3], parts[3::3]):
        plain = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))).strip()
        sections.append((name, html.unescape(re.sub("<[^>]+>", "", title)), plain))
    return body, sections


def preformatted(title: str, intro: str, parts: "list[tuple[str, str]]") -> str:
    body = f"<h1>{html.escape(title)}</h1><p>{intro}</p>"
    return body + "".join(f"<h2>{html.escape(h)}</h2><pre>{html.escape(t)}</pre>" for h, t in parts)


def header_page() -> str:
    text = Path("include/keyhole.h").read_text(encoding="utf-8")
    pieces = re.split(r"\n/\* -{3,} *(.*?) *(?:-* *\*/|\n \* *(\(.*?\)) \*/)\n", text)
    parts = [("The manual", pieces[0])]
    parts += [((t + " " + (more or "")).strip(), body) for t, more, body in zip(pieces[1::3], pieces[2::3], pieces[3::3])]
    return preformatted("keyhole.h", "The public API of libkeyhole; the header is its manual.", parts)


def command_page() -> str:
    def said(*args: str) -> str:
        return subprocess.run([keyhole, *args], check=True, capture_output=True, text=True).stdout

    commands = re.findall(r'^        "([^"]+)"\) opts=', said("help", "--bash-completion"), flags=re.M)
    parts = [("Overview", said("--help"))] + [(f"keyhole {c}", said("help", *c.split())) for c in commands]
    return preformatted("Every command", "What <code>keyhole COMMAND --help</code> prints.", parts)


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set = set()
        self.links: list = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        for key, value in attrs:
            if key == "id":
                self.ids.add(value)
            if key in ("href", "src") and value and not re.match(r"[a-z]+:", value):
                self.links.append(value)


def check_links() -> int:
    pages = {}
    for file in out.glob("*.html"):
        pages[file.name] = Links()
        pages[file.name].feed(file.read_text(encoding="utf-8"))
    bad = []
    for name, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            target = target or name
            if not (out / target).is_file() or (anchor and target in pages and anchor not in pages[target].ids):
                bad.append(f"{name}: {link} leads nowhere")
    if bad:
        raise SystemExit("\n".join(bad))
    return sum(len(p.links) for p in pages.values())


out.mkdir(parents=True, exist_ok=True)
for old in out.iterdir():
    old.unlink()
bodies = []
for source in SOURCES:
    text = source.read_text(encoding="utf-8")
    body = markdown.markdown(lists_apart(text), extensions=["tables", "fenced_code", "sane_lists"])
    title = re.search(r"^# (.*)", text, flags=re.M)
    bodies.append((page_name(source), title[1] if title else source.stem, relink(body, source)))
bodies.insert(2, ("commands-help", "Every command", command_page()))
bodies.insert(3, ("header", "keyhole.h", header_page()))

index = []
for name, title, body in bodies:
    body, sections = with_anchors(body)
    index += [{"u": f"{name}.html#{a}", "p": title, "t": t, "x": x[:6000]} for a, t, x in sections]
    menu = "".join(
        f'<a href="{n}.html"{" aria-current=page" if n == name else ""}>{html.escape(t)}</a>' for n, t, _ in bodies)
    (out / f"{name}.html").write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><link rel="stylesheet" href="style.css"></head><body><nav><div><b>keyhole</b>'
        f'<input id="search" type="search" placeholder="Search" aria-label="Search"><details id="pages" class="pages" open><summary>Pages ▾</summary>'
        f'<div>{menu}</div></details></div></nav>'
        f'<main><div id="found" role="status"></div>{body}</main><script src="sections.js"></script><script src="search.js"></script></body></html>\n',
        encoding="utf-8")
(out / "style.css").write_text(STYLE, encoding="utf-8")
(out / "search.js").write_text(SEARCH, encoding="utf-8")
(out / "sections.js").write_text("const SECTIONS = " + json.dumps(index, ensure_ascii=False) + ";\n", encoding="utf-8")
conformal = sum("conformal" in (s["t"] + s["x"]).lower() for s in index)
print(f"{out}/index.html: {len(bodies)} pages, {len(index)} sections, {check_links()} links checked; \"conformal\" is in {conformal} sections")
