"""Makes calls with openai-python; see ../README.md for the protocol."""

import argparse
import concurrent.futures
import inspect
import json
import sys
import threading

import openai
from openai.lib.streaming.chat import ChatCompletionStreamState


def split(method, params):
    """Arguments for a method of the library: what it knows, and the rest as extra_body."""
    known = inspect.signature(method).parameters
    named = {k: v for k, v in params.items() if k in known}
    rest = {k: v for k, v in params.items() if k not in known}
    return named | ({"extra_body": rest} if rest else {})


class Answer(dict):
    """The line to be written, filled in as the call goes on."""

    def __init__(self, request):
        super().__init__(
            id=request["id"], ok=False, status=None, error=None, message=None, tool_calls=[], finish_reason=None,
            usage=None, headers={}, chunks=0, cancelled=False, body=None,
        )  # fmt: skip

    def response(self, raw):
        self["status"] = raw.status_code
        self["headers"] = {k.lower(): v for k, v in raw.headers.items()}

    def completion(self, completion):
        """Takes over a chat completion, whole or as far as it has been accumulated."""
        self["usage"] = dump(completion.usage)
        if not completion.choices:
            return
        choice = completion.choices[0]
        self["finish_reason"] = choice.finish_reason
        self["message"] = dump(choice.message)
        self["tool_calls"] = [
            {"id": c.id, "name": c.function.name, "arguments": c.function.arguments}
            for c in choice.message.tool_calls or []
        ]

    def failure(self, error):
        self["error"] = {
            "kind": type(error).__name__,
            "message": str(error),
            "code": getattr(error, "code", None),
            "param": getattr(error, "param", None),
            "type": getattr(error, "type", None),
        }
        if isinstance(error, openai.APIStatusError):
            self.response(error.response)


def dump(model):
    return None if model is None else model.model_dump(mode="json", exclude_unset=True, warnings=False)


def chat(client, request, answer):
    if not request.get("stream"):
        raw = client.chat.completions.with_raw_response.create(**arguments(client.chat.completions.create, request))
        answer.response(raw)
        answer.completion(raw.parse())
        return
    raw = client.chat.completions.with_raw_response.create(
        **arguments(client.chat.completions.create, request), stream=True
    )
    answer.response(raw)
    state = ChatCompletionStreamState()
    try:
        for chunk in chunks(raw.parse(), request, answer):
            state.handle_chunk(chunk)
    finally:
        if answer["chunks"]:
            answer.completion(state.current_completion_snapshot)


def chunks(stream, request, answer):
    with stream:
        for chunk in stream:
            answer["chunks"] += 1
            yield chunk
            if answer["chunks"] == request.get("cancel_after"):
                answer["cancelled"] = True
                return


def completions(client, request, answer):
    stream = bool(request.get("stream"))
    raw = client.completions.with_raw_response.create(
        **arguments(client.completions.create, request), **({"stream": True} if stream else {})
    )
    answer.response(raw)
    if not stream:
        answer["body"] = dump(raw.parse())
        return
    text = ""
    for chunk in chunks(raw.parse(), request, answer):
        if chunk.usage:
            answer["usage"] = dump(chunk.usage)
        for choice in chunk.choices:
            text += choice.text
            answer["finish_reason"] = choice.finish_reason or answer["finish_reason"]
    answer["body"] = {"text": text}


def embeddings(client, request, answer):
    raw = client.embeddings.with_raw_response.create(**arguments(client.embeddings.create, request))
    answer.response(raw)
    answer["body"] = dump(raw.parse())


def models(client, request, answer):
    raw = client.models.with_raw_response.list(**arguments(client.models.list, request))
    answer.response(raw)
    answer["body"] = {"data": [dump(m) for m in raw.parse().data]}


def arguments(method, request):
    return split(method, request.get("params", {})) | {
        "extra_headers": request.get("headers"),
        "timeout": request.get("timeout", 120),
    }


CALLS = {"chat": chat, "completions": completions, "embeddings": embeddings, "models": models}


def run(client, request):
    answer = Answer(request)
    try:
        CALLS[request.get("call", "chat")](client, request, answer)
        answer["ok"] = True
    except Exception as error:  # whatever a user's program would see
        answer.failure(error)
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()

    client = openai.OpenAI(base_url=options.base_url, api_key=options.api_key, max_retries=0)
    writing = threading.Lock()

    def serve(request):
        line = json.dumps(run(client, request), ensure_ascii=False)
        with writing:
            print(line, flush=True)

    pending = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, line in enumerate(sys.stdin, 1):
            if not line.strip():
                continue
            try:
                request = json.loads(line)
                if not isinstance(request.get("id"), str) or request.get("call", "chat") not in CALLS:
                    raise ValueError("a request needs a string id, and a known call if any")
            except (ValueError, AttributeError) as error:
                print(f"run.py: line {number}: {error}", file=sys.stderr)
                sys.exit(2)
            pending.append(pool.submit(serve, request))
    for done in pending:
        done.result()


if __name__ == "__main__":
    main()
