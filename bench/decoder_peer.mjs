// decoder_peer.mjs MODEL.gguf THREADS CASE... - llama.cpp (npm: node-llama-cpp, in the folder KH_NPM) on random tokens, one JSON object a case:
//
//   pp      32 sequences of 15 tokens in one batch, or one of 480, whichever is faster: {"case": "pp", "tokens_per_second": ...}
//   script  a soft prompt's candidate as a person would script it: each row (10 + 60 + 5 tokens) evaluated for itself, from its first
//           token on; 8 rows are timed and 32 reckoned: {"case": "script", "candidates_per_second": ...}, the best of two
import path from "node:path";
import { pathToFileURL } from "node:url";

const [file, threads, ...cases] = process.argv.slice(2);
const index = path.resolve(process.env.KH_NPM, "node_modules/node-llama-cpp/dist/index.js");
const { getLlama } = await import(pathToFileURL(index));
const llama = await getLlama({ gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error", progressLogs: false });
const model = await llama.loadModel({ modelPath: path.resolve(file) });
let seed = 1;
const token = () => 5 + ((seed = (seed * 48271) % 2147483647) % 30000);
const tokens = (n) => [model.tokens.bos, ...Array.from({ length: n - 1 }, token)];
// Only the last token's answer is wanted, as for a label word.
const last = (ids) => ids.map((id, i) => (i + 1 < ids.length ? id : [id, { generateNext: { token: true } }]));

async function best(reps, run) {
    let least = Infinity;
    for (let i = 0; i < reps; i++) {
        const start = performance.now();
        await run();
        least = Math.min(least, (performance.now() - start) / 1000);
    }
    return least;
}

const run = {
    async pp() {
        const context = await model.createContext({ sequences: 32, contextSize: 64, batchSize: 512, threads: Number(threads) });
        const sequences = Array.from({ length: 32 }, () => context.getSequence());
        const rows = sequences.map(() => tokens(15));
        const seconds = await best(3, async () => {
            await Promise.all(sequences.map((s) => s.clearHistory()));
            await Promise.all(sequences.map((s, i) => s.controlledEvaluate(last(rows[i]))));
        });
        await context.dispose();
        const long = await model.createContext({ contextSize: 512, batchSize: 512, threads: Number(threads) });
        const sequence = long.getSequence(), row = tokens(480);
        const whole = await best(2, async () => {
            await sequence.clearHistory();
            await sequence.controlledEvaluate(last(row));
        });
        await long.dispose();
        return { tokens_per_second: 480 / Math.min(seconds, whole) };
    },
    async script() {
        const context = await model.createContext({ contextSize: 256, batchSize: 256, threads: Number(threads) });
        const sequence = context.getSequence();
        const rows = Array.from({ length: 8 }, () => tokens(75));
        const seconds = await best(2, async () => {
            for (const row of rows) {
                await sequence.clearHistory();
                await sequence.controlledEvaluate(last(row));
            }
        });
        await context.dispose();
        return { candidates_per_second: rows.length / 32 / seconds };
    },
};
for (const name of cases)
    console.log(JSON.stringify({ case: name, ...(await run[name]()) }));
process.exit(0);
