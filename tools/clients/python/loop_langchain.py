"""LangChain's create_agent on ChatOpenAI."""

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from loops import RESULT, SYSTEM, TOOLS, Closing, answer, serve

tools = [
    StructuredTool.from_function(lambda **_: RESULT, name=name, description=model.__doc__, args_schema=model)
    for name, model in TOOLS.items()
]


def loop(request):
    model = ChatOpenAI(
        model=request["model"], base_url=request["base_url"], api_key="none", max_retries=0,
        streaming=request["stream"], stream_usage=True, **request["params"],
    )  # fmt: skip

    @wrap_model_call
    def choose(call, handler):
        since = next(i for i, m in enumerate(reversed(call.messages)) if isinstance(m, HumanMessage))
        said = sum(isinstance(m, AIMessage) for m in call.messages[len(call.messages) - since :])
        # Not as call.override(tool_choice=…), which is not sent beside a format.
        choice = "required" if said < request["rounds"] else "none"
        return handler(call.override(model_settings={"tool_choice": choice}))

    # The format goes along with every request: LangChain makes the tools strict with
    # it, and tools that are defined anew in the middle break the prefix.
    agent = create_agent(
        model, tools, system_prompt=SYSTEM, middleware=[choose], response_format=ProviderStrategy(Closing)
    )  # fmt: skip
    messages = []
    for user in request["users"]:
        messages.append(HumanMessage(user))
        if request["stream"]:
            for mode, event in agent.stream({"messages": messages}, stream_mode=["messages", "values"]):
                if mode == "values":
                    messages = event["messages"]
        else:
            messages = agent.invoke({"messages": messages})["messages"]
    return [
        answer(
            m.text,
            [(c["id"], c["name"], c["args"]) for c in m.tool_calls],
            m.response_metadata["finish_reason"],
            (m.usage_metadata["input_tokens"], m.usage_metadata["output_tokens"]),
            m.usage_metadata.get("input_token_details", {}).get("cache_read"),
        )
        for m in messages
        if isinstance(m, AIMessage)
    ]


if __name__ == "__main__":
    serve(loop)
