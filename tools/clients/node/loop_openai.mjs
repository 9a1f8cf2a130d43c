// An agent loop with openai-node's runTools and tools in Zod.

import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { answer, closing, result, serve, system, tools } from "./loops.mjs";

const functions = Object.entries(tools).map(([name, { description, parameters }]) =>
  zodFunction({ name, description, parameters, function: () => result }),
);

async function loop(request) {
  const client = new OpenAI({ baseURL: request.base_url, apiKey: "none", maxRetries: 0 });
  const common = { model: request.model, tools: functions, ...request.params };
  if (request.stream) Object.assign(common, { stream: true, stream_options: { include_usage: true } });
  const completions = [];
  let messages = [{ role: "system", content: system }];
  for (const user of request.users) {
    messages.push({ role: "user", content: user });
    const runner = client.chat.completions.runTools(
      { ...common, messages, tool_choice: "required" },
      { maxChatCompletions: request.rounds },
    );
    await runner.done();
    completions.push(...runner.allChatCompletions());
    messages = runner.messages;

    const last = { ...common, messages, tool_choice: "none", response_format: zodResponseFormat(closing, "closing") };
    const completion = request.stream
      ? await client.chat.completions.stream(last).finalChatCompletion()
      : await client.chat.completions.parse(last);
    completions.push(completion);
    messages.push(completion.choices[0].message);
  }
  return completions.map(({ choices: [{ message, finish_reason }], usage }) =>
    answer(
      message.content,
      (message.tool_calls ?? []).map((c) => [c.id, c.function.name, c.function.arguments]),
      finish_reason,
      {
        prompt: usage.prompt_tokens,
        completion: usage.completion_tokens,
        cached: usage.prompt_tokens_details?.cached_tokens ?? null,
      },
    ),
  );
}

await serve(loop);
