"""An agent loop with openai-python's helpers for tools in Pydantic models."""

import openai
from loops import RESULT, SYSTEM, TOOLS, Closing, answer, serve

tools = [openai.pydantic_function_tool(model, name=name) for name, model in TOOLS.items()]


def ask(client, request, messages, **params):
    params |= {"model": request["model"], "messages": messages, "tools": tools, **request["params"]}
    if not request["stream"]:
        return client.chat.completions.parse(**params)
    with client.chat.completions.stream(**params, stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def loop(request):
    client = openai.OpenAI(base_url=request["base_url"], api_key="none", max_retries=0)
    messages = [{"role": "system", "content": SYSTEM}]
    answers = []
    for user in request["users"]:
        messages.append({"role": "user", "content": user})
        for turn in range(request["rounds"] + 1):
            closing = turn == request["rounds"]
            choice = {"tool_choice": "none", "response_format": Closing} if closing else {"tool_choice": "required"}
            completion = ask(client, request, messages, **choice)
            said = completion.choices[0].message
            messages.append(said)
            calls = said.tool_calls or []
            for call in calls:
                assert isinstance(call.function.parsed_arguments, TOOLS[call.function.name])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
            usage = completion.usage
            answers.append(
                answer(
                    said.content,
                    [(c.id, c.function.name, c.function.arguments) for c in calls],
                    completion.choices[0].finish_reason,
                    (usage.prompt_tokens, usage.completion_tokens),
                    usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens,
                )
            )
    return answers


if __name__ == "__main__":
    serve(loop)
