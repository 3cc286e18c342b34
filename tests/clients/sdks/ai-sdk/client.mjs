// Does the tasks of contract.py with the AI SDK and one of its providers, and prints what came of them as JSON.
// node client.mjs PROVIDER TASK… < {"url": …, "model": …, "greeting": …, "describe": …, "result": …, "tools": …, "streamed_tools": …}

import { readFileSync } from 'node:fs';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false;
const given = JSON.parse(readFileSync(0, 'utf8'));
const settings = { baseURL: `${given.url}/v1`, apiKey: 'any' };
const compatible = { name: 'unbraid', includeUsage: true, supportsStructuredOutputs: true, ...settings };
const models = {
  chat: () => createOpenAI(settings).chat(given.model),
  responses: () => createOpenAI(settings).responses(given.model),
  compatible: () => createOpenAICompatible(compatible)(given.model),
  anthropic: () => createAnthropic(settings)(given.model),
};
const model = models[process.argv[2]]();
// The provider shows what stands in the summary alone.
const common = { model, maxRetries: 0, providerOptions: { openai: { reasoningSummary: 'auto', forceReasoning: true } } };

function withWeather(question, cities) {
  const execute = async ({ city }) => {
    cities.push(city);
    return given.result;
  };
  const get_weather = tool({ description: 'The weather', inputSchema: z.object({ city: z.string() }), execute });
  return { ...common, prompt: question, tools: { get_weather }, stopWhen: stepCountIs(3) };
}

async function answer() {
  const { text, reasoningText } = await generateText({ ...common, prompt: given.greeting });
  return { text, reasoning: reasoningText ?? null };
}

async function stream() {
  const result = streamText({ ...common, prompt: given.greeting });
  let pieces = 0;
  for await (const part of result.fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') pieces++;
  }
  return { text: await result.text, reasoning: (await result.reasoningText) ?? null, pieces };
}

async function tools() {
  const cities = [];
  const { text } = await generateText(withWeather(given.tools, cities));
  return { text, cities };
}

async function streamed_tools() {
  const cities = [];
  const result = streamText(withWeather(given.streamed_tools, cities));
  for await (const part of result.fullStream) {
    if (part.type === 'error') throw part.error;
  }
  return { text: await result.text, cities };
}

async function structured() {
  const schema = z.object({ city: z.string(), sunny: z.boolean() });
  return (await generateObject({ ...common, prompt: given.describe, schema })).object;
}

const tasks = { answer, stream, tools, streamed_tools, structured };
const found = {};
for (const task of process.argv.slice(3)) {
  try {
    found[task] = await tasks[task]();
  } catch (error) {
    found[task] = { error: `${error.stack}\n${error.responseBody}` };
  }
}
console.log(JSON.stringify(found));
