// The AI SDK's own loop on @ai-sdk/openai-compatible.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { answer, closing, result, serve, system, tools } from "./loops.mjs";

const callable = Object.fromEntries(
  Object.entries(tools).map(([name, { description, parameters }]) => [
    name,
    tool({ description, inputSchema: parameters, execute: async () => JSON.parse(result) }),
  ]),
);
const format = {
  type: "json_schema",
  json_schema: { name: "closing", strict: true, schema: z.toJSONSchema(closing) },
};

async function loop(request) {
  const provider = createOpenAICompatible({
    name: "sidecar",
    baseURL: request.base_url,
    apiKey: "none",
    includeUsage: true,
  });
  const { max_tokens: maxOutputTokens, ...params } = request.params;
  const steps = [];
  let messages = [];
  for (const user of request.users) {
    messages.push({ role: "user", content: user });
    const options = {
      model: provider(request.model),
      system,
      messages,
      tools: callable,
      maxRetries: 0,
      maxOutputTokens,
      ...params,
      stopWhen: stepCountIs(request.rounds + 1),
      prepareStep: ({ stepNumber }) =>
        stepNumber < request.rounds
          ? { toolChoice: "required" }
          : { toolChoice: "none", providerOptions: { sidecar: { response_format: format } } },
    };
    let failure;
    const run = request.stream
      ? streamText({ ...options, onError: ({ error }) => (failure = error) })
      : await generateText(options);
    if (request.stream) await run.consumeStream();
    if (failure) throw failure;
    steps.push(...(await run.steps));
    messages = messages.concat((await run.response).messages);
  }
  return steps.map((step) =>
    answer(
      step.text,
      step.toolCalls.map((c) => [c.toolCallId, c.toolName, c.input]),
      step.finishReason,
      {
        prompt: step.usage.inputTokens,
        completion: step.usage.outputTokens,
        cached: step.usage.cachedInputTokens ?? null,
      },
    ),
  );
}

await serve(loop);
