#!/bin/bash
# The report before judges: an HTML validator (html-validate of npm), and a headless Chromium (Debian's) at desktop and phone width, in
# light and dark: every plot is there and has a size, nothing is written to the console, nothing is wider than the window, and hostile
# text is shown as text. Needs node, npm and Debian's chromium and gnuplot-nox, which it installs.
. tests/tap.sh
skip_all() {
    for name in "the page is valid HTML" "the page without plots is valid HTML" "Chromium shows the page as it should be"; do
        n=$((n + 1))
        echo "# skipped: $name: $1"
        echo "ok $n - $name # SKIP $1"
    done
    echo "1..$n"
    exit 0
}
command -v node >/dev/null && command -v npm >/dev/null || skip_all "node and npm are not there"
tools/setup.sh gnuplot-nox chromium >"$here/out" 2>&1 || skip_all "gnuplot-nox and chromium cannot be installed"
npm install --prefix "$here" --ignore-scripts --no-audit --no-fund html-validate playwright-core >"$here/npm.log" 2>&1 ||
    skip_all "npm cannot install html-validate"

data=$here/data toy=$here/toy.json
mkdir "$data" "$here/far"
cat >"$toy" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "<i>bad</i>", "words": ["lower"] }, { "name": "good\"'", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 80); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$data/train.tsv"
{
    printf 'label\ttext\n'
    for i in $(seq 40); do
        printf '%d\t<script>window.hit=1</script><img src=x onerror="window.hit=1"> &amp; "%d" \xe2\x80\xae \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \x01 %s\n' \
            $((i % 2)) "$i" "$(printf 'unbroken%.0s' $(seq 40))"
    done
} >"$data/test.tsv"
cp "$data/test.tsv" "$here/far/"
make_report() {
    run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$here/model" &&
        run 0 tune --effort paper --method elbo --model "$here/model" --task "$toy" --data "$data" --dim 12 --slots 5 --p0 random \
        --budget-generations 4 --dev-every 2 \
            --pop 5 --draws 2 --samples 8 --out "$here/run" &&
        run 0 eval "$here/run" --ood "$toy=$here/far" sst2="$here/far" --bootstrap 100 &&
        mkdir "$here/path" &&
        PATH=$here/path "$(realpath "$KEYHOLE")" eval "$here/run" --bootstrap 0 --out "$here/plain" >"$here/out" 2>"$here/err"
}
ok "a report" make_report
echo '{ "root": true, "extends": ["html-validate:standard"] }' >"$here/validate.json"
valid() { "$here/node_modules/.bin/html-validate" --config "$here/validate.json" "$1" >"$here/out" 2>"$here/err"; }
ok "the page is valid HTML" valid "$here/run/report.html"
ok "the page without plots is valid HTML" valid "$here/plain/report.html"
cat >"$here/look.js" <<'END'
const { chromium } = require('playwright-core');
(async () => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  let bad = 0;
  const check = (good, what) => { if (!good) { bad = 1; console.log('wrong: ' + what); } };
  for (const [width, scheme] of [[1280, 'light'], [1280, 'dark'], [390, 'light'], [390, 'dark']]) {
    const page = await browser.newPage({ viewport: { width, height: 800 }, colorScheme: scheme });
    const said = [];
    page.on('console', m => said.push(m.text()));
    page.on('pageerror', e => said.push(String(e)));
    page.on('request', r => { if (!r.url().startsWith('file:')) said.push('asks for ' + r.url()); });
    await page.goto('file://' + process.argv[2]);
    const found = await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      plots: [...document.querySelectorAll('figure svg')].map(s => {
        const box = s.getBoundingClientRect();
        return box.width > 200 && box.height > 100 && s.querySelectorAll('path').length > 3 && !!s.querySelector('title').textContent &&
          s.getAttribute('role') === 'img';
      }),
      hit: window.hit, ids: [...document.querySelectorAll('[id]')].map(e => e.id), images: document.images.length,
      scripts: document.scripts.length, text: document.body.innerText,
      ink: getComputedStyle(document.querySelector('figure svg')).color, paper: getComputedStyle(document.body).backgroundColor,
      captions: [...document.querySelectorAll('table')].every(t => t.caption), headings: document.querySelectorAll('h2').length,
    }));
    const at = ` at ${width} ${scheme}`;
    check(said.length === 0, 'the console says ' + said.join('; ') + at);
    check(found.wide <= 0, `${found.wide} pixels too wide` + at);
    check(found.plots.length === 7 && found.plots.every(Boolean), 'plots ' + found.plots + at);
    check(found.hit === undefined && found.scripts === 0 && found.images === 0, 'text became code' + at);
    check(new Set(found.ids).size === found.ids.length, 'ids clash' + at);
    check(found.text.includes('<script>window.hit=1</script><img src=x onerror="window.hit=1"> &amp; "') && found.text.includes('[U+202E]') &&
      found.text.includes('[U+0001]') && found.text.includes('<i>bad</i>'), 'hostile text is not shown' + at);
    check(found.ink !== found.paper, 'plots cannot be seen' + at);
    check(found.captions && found.headings === 8, 'captions or headings are missing' + at);
    await page.close();
  }
  await browser.close();
  process.exit(bad);
})().catch(e => { console.log(String(e)); process.exit(1); });
END
look() { NODE_PATH=$here/node_modules node "$here/look.js" "$here/run/report.html" >"$here/out" 2>"$here/err"; }
ok "Chromium shows the page as it should be" look
echo "1..$n"
exit $failed
