// Asks a server with OpenAI's client for JavaScript, and prints what it gets as JSON.
// node client.mjs URL MODEL < {"tools": [...], "schema": {...}}

import { readFileSync } from 'node:fs';
import OpenAI from 'openai';

const [url, model] = process.argv.slice(2);
const { tools, schema } = JSON.parse(readFileSync(0, 'utf8'));
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 });

const capital = [{ role: 'user', content: 'What is the capital of France?' }];
const weather = [{ role: 'user', content: 'What is the weather in Paris?' }];
const forced = { tools, tool_choice: 'required', parallel_tool_calls: false, max_completion_tokens: 80 };

function request(messages, options) {
  return { model, messages, temperature: 0, seed: 1, max_completion_tokens: 24, ...options };
}

async function whole(messages, options) {
  const completion = await client.chat.completions.create(request(messages, options));
  return { choice: completion.choices[0], usage: completion.usage };
}

// By the client's own way to put chunks together.
async function streamed(messages, options) {
  const stream = client.chat.completions.stream(
    request(messages, { stream_options: { include_usage: true }, ...options }),
  );
  let chunks = 0;
  stream.on('chunk', () => chunks++);
  const completion = await stream.finalChatCompletion();
  return { choice: completion.choices[0], usage: completion.usage, chunks };
}

// What the prompt costs is the same for both once it has been seen.
async function both(messages, options = {}) {
  await whole(messages, { ...options, max_completion_tokens: 1 });
  return { whole: await whole(messages, options), streamed: await streamed(messages, options) };
}

async function words() {
  const stream = await client.chat.completions.create(request(capital, { stream: true }));
  const found = [];
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) found.push(chunk.choices[0].delta.content);
  }
  return found;
}

async function severalTurns() {
  const called = (await whole(weather, forced)).choice.message;
  const result = { role: 'tool', tool_call_id: called.tool_calls[0].id, content: 'It is 21 degrees in Paris.' };
  return whole([...weather, called, result], { tools });
}

async function error() {
  try {
    await client.chat.completions.create(request(capital, { model: 'another' }));
  } catch (caught) {
    const { status, code, param } = caught;
    return { status, code, param, kind: caught.constructor.name };
  }
}

const format = { type: 'json_schema', json_schema: { name: 'weather', strict: true, schema } };
const found = {
  chat: await both(capital),
  words: await words(),
  call: await both(weather, forced),
  turns: await severalTurns(),
  json: await both(weather, { response_format: format, max_completion_tokens: 60 }),
  error: await error(),
};
console.log(JSON.stringify(found));
