// slow_page.js URL WIDTH: the page of "keyhole serve --run" in headless Chromium. Prints TAP lines; the caller counts.
const { chromium } = require("playwright-core");
const [url, width] = [process.argv[2], Number(process.argv[3])];
let failed = 0;
const ok = (name, good, seen) => {
  if (!good) failed = 1;
  console.log((good ? "ok" : "not ok") + " - " + name + " at " + width + " px" + (good ? "" : " # saw: " + JSON.stringify(seen)));
};

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  const page = await browser.newPage({ viewport: { width, height: 900 } });
  const outside = [], errors = [];
  page.on("request", r => { if (!r.url().startsWith(url)) outside.push(r.url()); });
  page.on("pageerror", e => errors.push(String(e)));
  page.on("console", m => { if (m.type() === "error") errors.push(m.text()); });
  page.on("dialog", d => { errors.push("dialog: " + d.message()); d.dismiss(); });
  await page.goto(url + "/");
  await page.waitForFunction(() => document.getElementById("about").textContent.includes("Task"));
  ok("the page says what it is", (await page.textContent("#about")).includes("toy"), await page.textContent("#about"));
  ok("the text field has the focus", await page.evaluate(() => document.activeElement.id) === "text");

  await page.keyboard.type("the boats were green");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector("#result:not([hidden])");
  const shares = await page.$$eval("#rows tr", rows => rows.map(r => [r.children[0].textContent, parseFloat(r.children[1].textContent)]));
  const sum = from => from.reduce((a, [, x]) => a + x, 0);
  const classes = shares.filter(([l]) => !l.startsWith("votes")), votes = shares.filter(([l]) => l.startsWith("votes"));
  ok("typing and Ctrl + Enter classify", /“(good|bad)”/.test(await page.textContent("#verdict")), await page.textContent("#verdict"));
  ok("the distribution adds up", classes.length === 2 && Math.abs(sum(classes) - 100) < 0.2, shares);
  ok("the votes add up", votes.length === 2 && Math.abs(sum(votes) - 100) < 0.2, shares);
  ok("a table with row heads for those who listen", await page.$$eval("#rows th[scope=row]", t => t.length) === 4);
  ok("the result is announced", await page.getAttribute("#result", "aria-live") === "polite");

  await page.fill("#text", "<img src=x onerror=alert(1)><script>alert(2)</script>");
  await page.click("#go");
  await page.waitForFunction(() => !document.getElementById("go").disabled);
  ok("hostile text stays text", await page.evaluate(() => !document.querySelector("main img, main script")) && !errors.some(e => e.startsWith("dialog")), errors);

  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  ok("nothing is wider than the window", wide <= width, wide);
  const order = [];
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press("Tab");
    order.push(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
  }
  ok("the keyboard reaches text and button", order.includes("text") && order.includes("go"), order);
  ok("every field has a label", await page.$$eval("textarea, input", f => f.every(x => x.labels.length > 0)));
  ok("nothing is fetched from elsewhere", outside.length === 0, outside);
  ok("no script errors", errors.length === 0, errors);

  await page.route("**/v1/classify", r => r.fulfill({ status: 429, contentType: "application/json", body: '{"error":{"message":"come <b>later</b>"}}' }));
  await page.click("#go");
  await page.waitForSelector("#error:not([hidden])");
  ok("a refusal is shown as it is", await page.textContent("#error") === "come <b>later</b>", await page.textContent("#error"));
  if (process.env.SHOTS) await page.screenshot({ path: process.env.SHOTS + "/page-" + width + ".png" });
  await browser.close();
  process.exit(failed);
})().catch(e => { console.log("not ok - " + e.message.split("\n")[0]); process.exit(1); });
