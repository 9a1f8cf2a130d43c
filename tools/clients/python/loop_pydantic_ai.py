"""A Pydantic AI agent on OpenAIChatModel."""

from loops import CLOSING, RESULT, SYSTEM, TOOLS, answer, serve
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

tools = [
    Tool.from_schema(lambda **_: RESULT, name=name, description=model.__doc__, json_schema=model.model_json_schema())
    for name, model in TOOLS.items()
]


async def loop(request):
    def settings(context):
        if context.run_step <= request["rounds"]:
            return request["params"] | {"tool_choice": "required"}
        return request["params"] | {"tool_choice": "none", "extra_body": {"response_format": CLOSING}}

    model = OpenAIChatModel(request["model"], provider=OpenAIProvider(base_url=request["base_url"], api_key="none"))
    agent = Agent(model, instructions=SYSTEM, tools=tools, model_settings=settings, retries=0)

    async def drain(_, events):
        async for _ in events:
            pass

    history = []
    for user in request["users"]:
        handler = {"event_stream_handler": drain} if request["stream"] else {}
        result = await agent.run(user, message_history=history, **handler)
        history = result.all_messages()
    return [
        answer(
            m.text,
            [(c.tool_call_id, c.tool_name, c.args) for c in m.tool_calls],
            m.finish_reason,
            (m.usage.input_tokens, m.usage.output_tokens),
            m.usage.cache_read_tokens,
        )
        for m in history
        if isinstance(m, ModelResponse)
    ]


if __name__ == "__main__":
    serve(loop)
