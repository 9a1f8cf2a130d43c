"""An agent loop with litellm.completion."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read when imported: no price list from the net

import litellm
from loops import CLOSING, RESULT, SYSTEM, TOOLS, answer, serve

litellm.suppress_debug_info = True
tools = [
    {
        "type": "function",
        "function": {"name": name, "description": model.__doc__, "parameters": model.model_json_schema()},
    }
    for name, model in TOOLS.items()
]


def ask(request, messages, **params):
    params |= {"model": "openai/" + request["model"], "api_base": request["base_url"], "api_key": "none"}
    params |= {"messages": messages, "tools": tools, "num_retries": 0, **request["params"]}
    if not request["stream"]:
        return litellm.completion(**params)
    chunks = list(litellm.completion(**params, stream=True, stream_options={"include_usage": True}))
    return litellm.stream_chunk_builder(chunks, messages=messages)


def loop(request):
    messages = [{"role": "system", "content": SYSTEM}]
    answers = []
    for user in request["users"]:
        messages.append({"role": "user", "content": user})
        for turn in range(request["rounds"] + 1):
            closing = turn == request["rounds"]
            choice = {"tool_choice": "none", "response_format": CLOSING} if closing else {"tool_choice": "required"}
            completion = ask(request, messages, **choice)
            said = completion.choices[0].message
            messages.append(said)
            calls = said.tool_calls or []
            for call in calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": RESULT})
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
