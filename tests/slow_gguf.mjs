// slow_gguf.mjs MODEL.gguf TEXTS - what llama.cpp (npm: node-llama-cpp, in the folder KH_NPM) says comes next after each line of
// TEXTS: one JSON object a line, {"ids": [...], "top": [[id, log-probability], ...]}, the ten best.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
const npm = path.resolve(process.env.KH_NPM, 'node_modules')
const { getLlama } = await import(pathToFileURL(path.join(npm, 'node-llama-cpp/dist/index.js')))
const [file, texts] = process.argv.slice(2)
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: 2, logLevel: 'error', progressLogs: false })
const model = await llama.loadModel({ modelPath: path.resolve(file) })
const context = await model.createContext({ contextSize: 512, batchSize: 512 })
const sequence = context.getSequence()
for (const text of fs.readFileSync(texts, 'utf8').split('\n').filter(Boolean)) {
  const ids = [model.tokens.bos, ...model.tokenize(text)]
  await sequence.clearHistory()
  const input = ids.map((id, i) => (i + 1 < ids.length ? id : [id, { generateNext: { probabilities: true } }]))
  const out = await sequence.controlledEvaluate(input)
  const probabilities = out.at(-1).next.probabilities
  const top = [...probabilities].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([id, p]) => [id, Math.log(p)])
  console.log(JSON.stringify({ ids, top }))
}
process.exit(0)
