// Makes calls with openai-node; see ../README.md for the protocol.

import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import OpenAI from "openai";
import { ChatCompletionStream } from "openai/lib/ChatCompletionStream";

const { values: options } = parseArgs({
  options: {
    "base-url": { type: "string" },
    "api-key": { type: "string", default: "none" },
    jobs: { type: "string", default: "1" },
  },
});
if (!options["base-url"]) {
  console.error("usage: run.mjs --base-url URL [--api-key KEY] [--jobs N] < requests.jsonl");
  process.exit(2);
}

const client = new OpenAI({ baseURL: options["base-url"], apiKey: options["api-key"], maxRetries: 0 });

const emptyAnswer = (request) => ({
  id: request.id,
  ok: false,
  status: null,
  error: null,
  message: null,
  tool_calls: [],
  finish_reason: null,
  usage: null,
  headers: {},
  chunks: 0,
  cancelled: false,
  body: null,
});

function takeResponse(answer, response) {
  answer.status = response.status;
  answer.headers = Object.fromEntries(response.headers);
}

// takeCompletion takes over a chat completion, whole or as far as it has been
// accumulated.
function takeCompletion(answer, completion) {
  answer.usage = completion.usage ?? null;
  const choice = completion.choices?.[0];
  if (!choice) return;
  answer.finish_reason = choice.finish_reason ?? null;
  answer.message = choice.message;
  answer.tool_calls = (choice.message.tool_calls ?? []).map((call) => ({
    id: call.id,
    name: call.function.name,
    arguments: call.function.arguments,
  }));
}

const requestOptions = (request) => ({
  headers: request.headers,
  timeout: 1000 * (request.timeout ?? 120),
});

async function chat(request, answer) {
  const params = request.params ?? {};
  if (!request.stream) {
    const { data, response } = await client.chat.completions.create(params, requestOptions(request)).withResponse();
    takeResponse(answer, response);
    takeCompletion(answer, data);
    return;
  }
  const { data, response } = await client.chat.completions
    .create({ ...params, stream: true }, requestOptions(request))
    .withResponse();
  takeResponse(answer, response);
  // The library's own accumulator reads the counted chunks as a readable stream of
  // JSON lines, its way of passing one on.
  const stream = ChatCompletionStream.fromReadableStream(lines(counted(data, request, answer)));
  let failure = null;
  try {
    takeCompletion(answer, await stream.finalChatCompletion());
  } catch (error) {
    failure = error;
    const snapshot = stream.currentChatCompletionSnapshot;
    if (snapshot) takeCompletion(answer, snapshot);
  }
  // What went wrong below the accumulator is the cause; and a stream that we left
  // has not gone wrong.
  if (answer.below) failure = answer.below;
  delete answer.below;
  if (failure && !answer.cancelled) throw failure;
}

// counted passes a stream's chunks on until the request wants to leave; an error
// of the stream is kept in answer.below.
async function* counted(stream, request, answer) {
  try {
    for await (const chunk of stream) {
      answer.chunks++;
      yield chunk;
      if (answer.chunks === request.cancel_after) {
        answer.cancelled = true;
        stream.controller.abort();
        return;
      }
    }
  } catch (error) {
    answer.below = error;
    throw error;
  }
}

function lines(chunks) {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { value, done } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(encoder.encode(JSON.stringify(value) + "\n"));
      } catch (error) {
        controller.error(error);
      }
    },
  });
}

async function completions(request, answer) {
  const params = { ...(request.params ?? {}), ...(request.stream ? { stream: true } : {}) };
  const { data, response } = await client.completions.create(params, requestOptions(request)).withResponse();
  takeResponse(answer, response);
  if (!request.stream) {
    answer.body = data;
    return;
  }
  let text = "";
  try {
    for await (const chunk of counted(data, request, answer)) {
      if (chunk.usage) answer.usage = chunk.usage;
      for (const choice of chunk.choices) {
        text += choice.text;
        answer.finish_reason = choice.finish_reason ?? answer.finish_reason;
      }
    }
  } finally {
    delete answer.below;
  }
  answer.body = { text };
}

async function embeddings(request, answer) {
  const { data, response } = await client.embeddings
    .create(request.params ?? {}, requestOptions(request))
    .withResponse();
  takeResponse(answer, response);
  answer.body = data;
}

async function models(request, answer) {
  const { data, response } = await client.models.list(requestOptions(request)).withResponse();
  takeResponse(answer, response);
  answer.body = { data: data.data };
}

const calls = { chat, completions, embeddings, models };

async function run(request) {
  const answer = emptyAnswer(request);
  try {
    await calls[request.call ?? "chat"](request, answer);
    answer.ok = true;
  } catch (error) {
    answer.error = {
      kind: error.constructor.name,
      message: String(error.message),
      code: error.code ?? null,
      param: error.param ?? null,
      type: error.type ?? null,
    };
    if (error instanceof OpenAI.APIError && error.status !== undefined) {
      answer.status = error.status;
      answer.headers = Object.fromEntries(error.headers ?? []);
    }
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}

// Calls start as their lines arrive, so a caller may wait for an answer before it
// writes the next line.
const jobs = Math.max(1, Number(options.jobs));
const waiting = [];
let running = 0;

function start() {
  while (running < jobs && waiting.length > 0) {
    running++;
    run(waiting.shift()).finally(() => {
      running--;
      start();
    });
  }
}

let number = 0;
for await (const line of createInterface({ input: process.stdin })) {
  number++;
  if (!line.trim()) continue;
  try {
    const request = JSON.parse(line);
    if (typeof request?.id !== "string" || !Object.hasOwn(calls, request.call ?? "chat")) {
      throw new Error("a request needs a string id, and a known call if any");
    }
    waiting.push(request);
    start();
  } catch (error) {
    console.error(`run.mjs: line ${number}: ${error.message}`);
    process.exit(2);
  }
}
