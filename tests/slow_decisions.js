// slow_decisions.js RUNS-URL MODEL-URL LABELS-URL KEYED-URL BUSY-URL: the unmodified clients of both formats against "keyhole serve".
// Prints TAP lines; the caller counts.
const OpenAI = require("openai").default;
const ts = require("@typesafe-ai/sdk");
const [runs, model, labels, keyed, busy] = process.argv.slice(2);
let failed = 0;
const ok = (name, good, seen) => {
  if (!good) failed = 1;
  console.log((good ? "ok" : "not ok") + " - " + name + (good ? "" : " # saw: " + JSON.stringify(seen)));
};
const near = (a, b) => Math.abs(a - b) < 1e-9;
const sum = list => list.reduce((a, b) => a + b, 0);
const openai = (url, key, more) => new OpenAI({ baseURL: url + "/v1", apiKey: key || "none", maxRetries: 0, ...more });
const typesafe = (url, key, more) => new ts.TypeSafeClient({ apiKey: key || "none", baseURL: url, logLevel: "off", retry: { maxRetries: 0 }, ...more });
const refused = async promise => { try { await promise; return null; } catch (e) { return e; } };
const TEXT = "the boats were green";

async function openaiRuns() {
  const client = openai(runs), listed = [];
  for await (const m of client.models.list()) listed.push(m.id);
  ok("openai: models are listed", listed.join() === "mood,other", listed);
  const d = await client.decisions.create({ model: "mood", input: TEXT, questions: [
    { type: "choice", name: "c", instructions: "Which?", choices: [{ value: "good", description: "x" }, { value: "bad" }] },
    { type: "predicate", name: "p", instructions: "Is it good?" },
    { type: "score", name: "s", instructions: "How good?", levels: [{ label: "bad" }, { label: "good" }] },
    { type: "choice", instructions: "Which?", choices: [{ value: true }, { value: "true" }] }] });
  const [c, p, s, r] = d.answers, good = c.probabilities.find(x => x.value === "good").probability;
  ok("openai: a choice", c.type === "choice" && c.name === "c" && near(sum(c.probabilities.map(x => x.probability)), 1) &&
    near(c.confidence, Math.abs(2 * good - 1)), c);
  ok("openai: a predicate", p.type === "predicate" && near(p.probability, good), p);
  ok("openai: a score", s.type === "score" && near(s.score, good) && s.probabilities[1].label === "good", s);
  ok("openai: a refusal among answers", r.type === "refusal" && r.name === null && /"bad", "good"/.test(r.keyhole.reason), r);
  ok("openai: what keyhole adds", d.model === "mood" && d.keyhole.label === c.choice && "set" in d.keyhole && d.usage.total_tokens > 0, d);
  ok("openai: the request has an id", /^req-/.test(d._request_id), d._request_id);
  const chat = await client.decisions.create({ model: "mood", input: [{ role: "developer", content: "be brief" },
    { role: "user", content: [{ type: "input_text", text: TEXT }] }], questions: [{ type: "predicate", name: "good", instructions: "" }] });
  ok("openai: messages say what the text says", near(chat.answers[0].probability, good), chat.answers);
  const none = await refused(client.decisions.create({ model: "nobody", input: "x", questions: [{ type: "predicate", instructions: "?" }] }));
  ok("openai: an unknown model is NotFoundError", none instanceof OpenAI.NotFoundError && /"mood", "other"/.test(none.message), none && none.message);
  const bad = await refused(client.decisions.create({ model: "mood", input: "x", questions: [] }));
  ok("openai: no questions is BadRequestError", bad instanceof OpenAI.BadRequestError, bad && bad.message);
  const all = await Promise.all([...Array(64).keys()].map(i => client.decisions.create({ model: i % 2 ? "mood" : "other", input: TEXT + " " + i % 8,
    questions: [{ type: "choice", name: String(i), instructions: "", choices: [{ value: "bad" }, { value: "good" }] }] })));
  ok("openai: 64 at once, each its own answer", all.every((d, i) => d.answers[0].name === String(i) && d.model === (i % 2 ? "mood" : "other") &&
    near(d.answers[0].probabilities[0].probability, all[i % 8].answers[0].probabilities[0].probability)), all.length);
}

async function typesafeRuns() {
  const client = typesafe(runs, "none", { defaultModel: "mood" });
  const cards = await client.models.list();
  ok("typesafe: models are listed", cards.map(m => m.name).join() === "mood,other" && /^\d{4}-\d\d-\d\d$/.test(cards[0].release_date), cards);
  const call = client.systemOne({ state: TEXT, questions: { c: ts.choice("Which?", { bad: null, good: "fine" }), good: ts.noul(),
    n: ts.noul("Is it?", { true: "bad" }), s: ts.score("How?", ["bad", "good"]) } });
  const { data, requestId } = await call.withResponse(), a = data.answers;
  ok("typesafe: a choice", a.c.type === "choice" && near(a.c.probabilities.bad + a.c.probabilities.good, 1), a.c);
  ok("typesafe: a noul by name, and by what true means", near(a.good.noul, a.c.probabilities.good) && near(a.n.noul, a.c.probabilities.bad), a);
  ok("typesafe: a score", near(a.s.score, a.c.probabilities.good) && a.s.legend["1"] === "good", a.s);
  ok("typesafe: the request has an id", /^req-/.test(requestId) && data.keyhole.label === a.c.choice, requestId);
  const bad = await refused(client.systemOne({ state: TEXT, questions: { q: ts.choice("Which?", { a: null, b: null }) } }));
  ok("typesafe: what it does not know is UnprocessableEntityError", bad instanceof ts.UnprocessableEntityError && /"bad", "good"/.test(bad.message), bad && bad.message);
  const none = await refused(client.systemOne({ model: "nobody", state: "x", questions: { q: ts.noul() } }));
  ok("typesafe: an unknown model is NotFoundError", none instanceof ts.NotFoundError, none && none.message);
  const all = await Promise.all([...Array(64).keys()].map(i => client.systemOne({ state: TEXT + " " + i % 8, questions: { ["q" + i]: ts.choice("", { bad: null, good: null }) } })));
  ok("typesafe: 64 at once, each its own answer", all.every((d, i) => near(d.answers["q" + i].probabilities.bad, all[i % 8].answers["q" + i % 8].probabilities.bad)), all.length);
}

async function models() {
  const d = await openai(model).decisions.create({ model: "m", input: TEXT, questions: [
    { type: "choice", name: "c", instructions: "It was", choices: [{ value: "lower" }, { value: "better" }, { value: "more" }] },
    { type: "predicate", name: "p", instructions: "Is it green?" },
    { type: "score", name: "s", instructions: "How?", levels: [{ label: "low" }, { label: "high" }] }] });
  ok("openai: a model answers anything", near(sum(d.answers[0].probabilities.map(x => x.probability)), 1) || Math.abs(sum(d.answers[0].probabilities.map(x => x.probability)) - 1) < 1e-5, d);
  ok("openai: predicate and score of a model", d.answers[1].probability > 0 && d.answers[2].score >= 0 && !("keyhole" in d), d);
  const s = await typesafe(model).systemOne({ state: { a: [1, 2] }, questions: { n: ts.noul("Is it?"), c: ts.choice({ which: 1 }, { low: null, high: null }), s: ts.score(null, ["low", null, "high"]) } });
  ok("typesafe: a model answers anything, JSON included", s.answers.n.noul > 0 && s.answers.s.legend["1"] === null && s.answers.s.score <= 2, s);
  const l = await openai(labels).decisions.create({ model: "m", input: TEXT, questions: [
    { type: "choice", instructions: "", choices: [{ value: "lower" }, { value: "better" }] }, { type: "predicate", instructions: "?" }] });
  ok("openai: labels are labels", ["lower", "better"].includes(l.answers[0].choice) && l.answers[0].confidence === null &&
    l.answers[0].probabilities.length === 0 && l.answers[1].type === "refusal", l);
}

async function trouble() {
  const ask = c => c.decisions.create({ model: "m", input: "x", questions: [{ type: "predicate", instructions: "?" }] });
  const q = { state: "x", questions: { q: ts.noul() } };
  ok("openai: no key is AuthenticationError", await refused(ask(openai(keyed, "wrong"))) instanceof OpenAI.AuthenticationError);
  ok("typesafe: no key is AuthenticationError", await refused(typesafe(keyed, "wrong").systemOne(q)) instanceof ts.AuthenticationError);
  ok("openai: with the key", (await ask(openai(keyed, "open-sesame"))).answers[0].type === "predicate");
  ok("typesafe: with the key", (await typesafe(keyed, "open-sesame").systemOne(q)).answers.q.noul >= 0);
  // A queue of one place: most of many at once get 429 with Retry-After, and the clients' own retries bring them home.
  const many = 24, long = "the boats were green ".repeat(60);
  const once = await Promise.allSettled([...Array(many).keys()].map(i => openai(busy).decisions.create({ model: "m", input: long + i, questions: [{ type: "predicate", instructions: "?" }] })));
  const late = once.filter(r => r.status === "rejected");
  ok("openai: what is too much for now is RateLimitError", late.length > 0 && late.every(r => r.reason instanceof OpenAI.RateLimitError), late.map(r => String(r.reason)));
  const again = await Promise.allSettled([...Array(many).keys()].map(i => openai(busy, "none", { maxRetries: 20 }).decisions.create({ model: "m", input: long + i, questions: [{ type: "predicate", instructions: "?" }] })));
  ok("openai: retries bring all home", again.every(r => r.status === "fulfilled"), again.filter(r => r.reason).map(r => String(r.reason)));
  const more = await Promise.allSettled([...Array(many).keys()].map(i => typesafe(busy, "none", { retry: { maxRetries: 40 } }).systemOne({ state: long + i, questions: { q: ts.noul() } })));
  ok("typesafe: retries bring all home", more.every(r => r.status === "fulfilled"), more.filter(r => r.reason).map(r => String(r.reason)));
}

(async () => {
  for (const part of [openaiRuns, typesafeRuns, models, trouble]) await part();
  process.exit(failed);
})().catch(e => { console.log("not ok - " + String(e.stack).split("\n").slice(0, 2).join(" ")); process.exit(1); });
