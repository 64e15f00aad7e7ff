#!/bin/bash
# cli_site.sh - the documents as a site (make doc): every document is a page, every link leads somewhere, the search has its sections.
. tests/tap.sh
: >"$here/out"; : >"$here/err"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import markdown' 2>/dev/null || { echo "# skipped: cli_site: no python3-markdown"; echo "ok 1 - the site # SKIP no python3-markdown"; echo "1..1"; exit 0; }
make_site() { "$python" tools/make_site.py "$KEYHOLE" "$here/site" >"$here/out" 2>"$here/err"; }
ok "the site is made, its links checked" make_site
pages() { for f in doc/*.md; do [ -s "$here/site/$(basename "$f" .md | tr 'A-Z' 'a-z').html" ] || return 1; done; [ -s "$here/site/index.html" ]; }
ok "every document is a page" pages
ok "the search knows of conformal sets" grep -q '"u": "judging.html#[^"]*conformal' "$here/site/sections.js"
# The search itself, with a stand-in for the page: what it lists for two words. Skipped where there is no node.
cat >"$here/ask.js" <<'JS'
const fs = require('fs'), [, , site, words] = process.argv;
const node = () => ({ children: [], textContent: '', append(...n) { this.children.push(...n); }, replaceChildren() { this.children = []; },
  addEventListener() {} });
const parts = { search: Object.assign(node(), { value: '' }), found: node() };
const page = { getElementById: i => parts[i], createElement: t => Object.assign(node(), { tag: t }), createTextNode: () => node(),
  body: { classList: { toggle() {} } } };
new Function('document', 'location', fs.readFileSync(site + '/sections.js', 'utf8') + fs.readFileSync(site + '/search.js', 'utf8'))(
  page, { search: '?q=' + encodeURIComponent(words) });
const text = n => n.textContent + n.children.map(text).join('');
for (const article of parts.found.children.slice(1)) console.log(article.children[0].href, text(article.children[0]), '|', text(article.children[1]));
JS
finds() { # finds WORDS PAGE: among the first five
    command -v node >/dev/null || { echo "# skipped: cli_site: no node"; return 0; }
    node "$here/ask.js" "$here/site" "$1" >"$here/out" 2>"$here/err" && head -n 5 "$here/out" | grep -q "$2"
}
ok "the search finds one word" finds conformal judging.html
ok "the search finds sections with both of two words that do not stand together" finds "sets conformal" judging.html
whole_words() { grep -q '| ….* …$' "$here/out"; }
ok "what it shows begins and ends at spaces" whole_words
ok "the search takes signs as they are" finds "--max-risk (" commands
# GitHub begins a list at "- " right under a paragraph; python-markdown alone wants an empty line first.
lists() { ! grep -nE '^ *([-*]|[0-9]+\.) ' "$here"/site/{index,judging,methods,model,results,serving,training,packages,python,changelog}.html >"$here/out"; }
ok "what begins with a dash is in a list" lists
outside() { ! grep -lE '(src|href)="https?://[^"]*\.(js|css|png|woff)' "$here"/site/*.html; }
ok "nothing is loaded from elsewhere" outside
broken() { (mkdir "$here/tree" && cp -R README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md doc python examples include tools "$here/tree" &&
    mkdir -p "$here/tree/models/builtin" && cp models/builtin/README.md "$here/tree/models/builtin/" && k=$(realpath "$KEYHOLE") && cd "$here/tree" &&
    echo '[nowhere](doc/nowhere.md)' >>README.md && ! "$python" tools/make_site.py "$k" "$here/broken" >"$here/out" 2>"$here/err" && err_has "nowhere.md"); }
ok "a link that leads nowhere is an error" broken
echo "1..$n"
exit $failed
