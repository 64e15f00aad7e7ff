// compare_onnx.js MODEL.onnx < features.jsonl - holds hidden states against ONNX Runtime.
//
// Each line is what "keyhole features --pool none --json" prints: {"ids":[...],"features":[[...],...]}. The same ids go
// through the ONNX model (input_ids, attention_mask, token_type_ids -> last_hidden_state). Prints "texts N worst X largest Y": the
// largest difference and the largest number.
// onnxruntime-node is taken from the folder in NODE_PATH.
const ort = require('onnxruntime-node');
const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line);

(async () => {
    const session = await ort.InferenceSession.create(process.argv[2], { intraOpNumThreads: 1 });
    const int64 = (values) => new ort.Tensor('int64', BigInt64Array.from(values.map(BigInt)), [1, values.length]);
    let texts = 0, worst = 0, largest = 0;
    for (const line of lines) {
        const { ids, features } = JSON.parse(line);
        const feeds = { input_ids: int64(ids), attention_mask: int64(ids.map(() => 1)), token_type_ids: int64(ids.map(() => 0)) };
        const theirs = (await session.run(feeds)).last_hidden_state.data;
        const ours = features.flat();
        if (ours.length !== theirs.length)
            throw new Error(`text ${texts + 1}: ${ours.length} numbers, ONNX Runtime gives ${theirs.length}`);
        for (let i = 0; i < ours.length; i++) {
            largest = Math.max(largest, Math.abs(theirs[i]));
            if (!(Math.abs(ours[i] - theirs[i]) <= worst)) // a NaN becomes the worst, too
                worst = Math.abs(ours[i] - theirs[i]);
        }
        texts++;
    }
    console.log(`texts ${texts} worst ${worst} largest ${largest}`);
})();
