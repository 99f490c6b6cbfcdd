// OpenAI's client for Node against an API: what it saw, as one JSON object on stdout.
// BASE_URL, API_KEY; MODULES: the folder that holds node_modules.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.MODULES}/`);
const OpenAI = require("openai");
const options = { baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY };
const client = new OpenAI({ ...options, maxRetries: 0 });
const said = (content) => [{ role: "user", content }];
const tools = [
  {
    type: "function",
    function: {
      name: "look_up",
      parameters: { type: "object", properties: { city: { enum: ["Lima"] } }, required: ["city"] },
    },
  },
];
const seen = {};

async function errorOf(work) {
  try {
    await work();
    return null;
  } catch (error) {
    return { name: error.constructor.name, status: error.status ?? null, code: error.code ?? null };
  }
}

const asked = { model: "fake", messages: said("Name three rivers."), max_tokens: 12 };
const whole = await client.chat.completions.create(asked);
seen.whole = whole.choices[0].message.content;
seen.usage = whole.usage.completion_tokens;

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({
  ...asked,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
seen.streamed = streamed;
seen.streamedUsage = usage.completion_tokens;

const helper = client.chat.completions.stream({ model: "fake", messages: said("The weather in Lima?"), tools });
const final = await helper.finalChatCompletion();
seen.call = final.choices[0].message.tool_calls[0].function;
seen.reason = final.choices[0].finish_reason;

const vectors = await client.embeddings.create({ model: "embedder", input: ["a lamp", "a chair"] });
const numbers = await client.embeddings.create({
  model: "embedder",
  input: ["a lamp", "a chair"],
  encoding_format: "float",
});
const flat = (made) => made.data.flatMap((entry) => Array.from(entry.embedding));
seen.sizes = vectors.data.map((entry) => entry.embedding.length);
seen.sameVectors = JSON.stringify(flat(vectors)) === JSON.stringify(flat(numbers));

seen.busy = await errorOf(() => client.chat.completions.create({ model: "fake", messages: said("[busy]") }));
seen.unknown = await errorOf(() => client.chat.completions.create({ ...asked, model: "gpt-9" }));
seen.bad = await errorOf(() => client.chat.completions.create({ ...asked, temperature: 3 }));
seen.stranger = await errorOf(() => new OpenAI({ ...options, apiKey: "nm_wrong", maxRetries: 0 }).chat.completions.create(asked));
seen.broken = await errorOf(async () => {
  const endless = await client.chat.completions.create({ model: "fake", messages: said("[endless]"), stream: true });
  for await (const _ of endless);
});
const patient = new OpenAI({ ...options, maxRetries: 2 });
const again = await patient.chat.completions.create({ model: "fake", messages: said("[busy-once] node"), max_tokens: 4 });
seen.again = again.usage.completion_tokens;

const left = await client.chat.completions.create({ model: "fake", messages: said("[endless]"), stream: true });
for await (const _ of left) break;
seen.left = (await client.chat.completions.create(asked)).usage.completion_tokens;

console.log(JSON.stringify(seen));
