// What the agent loops on Node have in common; see ../README.md for the protocol.

import { createInterface } from "node:readline";
import { z } from "zod";

export const system = "You keep a warehouse – answer with tools. Prices are in €.";
export const result = '{"ok": true, "rows": ["Zürich; 12 €", "Łódź; 7 €"], "note": "see \\"B\\"\\n"}';

export const tools = {
  find_orders: {
    description: "Orders of a city, newest first.",
    parameters: z.object({
      city: z.string().max(12).describe('City, e.g. "Zürich"'),
      status: z.enum(["open", "paid & sent"]),
      limit: z.number().int().min(1).max(20).nullable(),
    }),
  },
  move_stock: {
    description: "Moves an article within the warehouse.",
    parameters: z.object({
      article: z.number().int().min(0).max(9999),
      to: z.object({ aisle: z.number().int().min(1).max(99), shelf: z.enum(["low", "high"]) }),
      tags: z.array(z.enum(["fragile", "größer"])).max(2),
    }),
  },
};

// The closing answer of a loop, so that a model with random weights comes to one.
export const closing = z.object({ state: z.enum(["done", "to be continued"]) });

export function answer(text, calls, finish, usage) {
  return {
    text: text ?? "",
    tool_calls: calls.map(([id, name, args]) => ({
      id,
      name,
      arguments: typeof args === "string" ? JSON.parse(args) : args,
    })),
    finish_reason: finish,
    usage,
  };
}

// serve answers each line of standard input by what loop(request) returns, a list
// of answers.
export async function serve(loop) {
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    const reply = { id: request.id, answers: [], error: "" };
    try {
      reply.answers = await loop(request);
    } catch (error) {
      reply.error = String(error.stack);
    }
    process.stdout.write(JSON.stringify(reply) + "\n");
  }
}
