"""POST /v1/completions, /tokenize and /detokenize with real clients and the demo model."""
import concurrent.futures

import openai
import pytest

PROMPT = "The capital of France is"
LONG = "The history of the lighthouse begins with a storm. " * 12


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def error_of(server, **fields):
    fields.setdefault("prompt", PROMPT)
    answer = server.post("/v1/completions", fields)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error


def test_openai_client(client):
    answer = client.completions.create(model="demo", prompt=PROMPT, max_tokens=8, temperature=0)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    choice = answer.choices[0]
    assert "Paris" in choice.text and choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_openai_client_streams_the_same(client):
    whole = client.completions.create(model="demo", prompt=PROMPT, max_tokens=12, temperature=0)
    chunks = list(client.completions.create(model="demo", prompt=PROMPT, max_tokens=12,
                                            temperature=0, stream=True,
                                            stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert all(c.choices[0].finish_reason is None for c in chunks[:-2])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert all(c.usage is None for c in chunks[:-1])


def test_openai_client_errors(client):
    with pytest.raises(openai.NotFoundError) as not_found:
        client.completions.create(model="gpt-99", prompt=PROMPT)
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="demo", prompt=PROMPT, temperature=-1)
    assert bad.value.param == "temperature"


def test_usage_only_when_asked(server):
    for extra in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
        events = server.events(prompt=PROMPT, max_tokens=3, **extra)
        assert all("usage" not in event for event in events)
    status, error = error_of(server, stream_options={"include_usage": True})
    assert (status, error["param"]) == (400, "stream_options")


def test_cached_tokens_and_same_answer(server):
    first = server.complete(prompt=LONG, max_tokens=8, cache_salt="once")
    again = server.complete(prompt=LONG, max_tokens=8, cache_salt="once")
    other = server.complete(prompt=LONG, max_tokens=8, cache_salt="another")
    details = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, again, other)]
    # All but the last token, whose row is computed: a block that matches in part is used too.
    assert details == [0, again["usage"]["prompt_tokens"] - 1, 0]
    usage = again["usage"]
    assert usage["pagoda"] == {"device": details[1], "host": 0, "ssd": 0, "remote": 0,
                               "computed": usage["prompt_tokens"] - details[1]}
    assert first["choices"] == again["choices"] == other["choices"]


def test_choices_come_in_order(server):
    prompts = ["one two three", "red green blue"]
    answer = server.complete(prompt=prompts, n=2, max_tokens=4)
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    alone = [server.complete(prompt=p, max_tokens=4)["choices"][0]["text"] for p in prompts]
    assert [c["text"] for c in answer["choices"]] == [alone[0], alone[0], alone[1], alone[1]]
    single = [server.complete(prompt=p, max_tokens=4)["usage"]["prompt_tokens"] for p in prompts]
    assert answer["usage"]["prompt_tokens"] == sum(single)  # once each, whatever n
    assert answer["usage"]["completion_tokens"] == 16
    streamed = [""] * 4
    for event in server.events(prompt=prompts, n=2, max_tokens=4):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == [c["text"] for c in answer["choices"]]


def test_seeds(server):
    def draw(**fields):
        answer = server.complete(prompt=PROMPT, max_tokens=6, temperature=1, **fields)
        return [c["text"] for c in answer["choices"]]
    for seed in (-1, 0, 9223372036854775807):
        assert draw(seed=seed) == draw(seed=seed)
    assert draw(seed=5) == draw(seed=5, top_k=-1) == draw(seed=5, top_k=0)
    assert draw(seed=5) == draw(seed=5, top_k=491520)
    assert draw(seed=1) != draw(seed=2)
    assert len(set(draw(seed=1, n=3))) == 3
    assert draw() != draw()


def test_greedy_in_every_spelling(server):
    texts = {server.complete(prompt=PROMPT, max_tokens=8, **fields)["choices"][0]["text"]
             for fields in ({"temperature": 0}, {"temperature": 1e-12},
                            {"temperature": 1, "top_k": 1}, {"temperature": 1, "top_p": 0},
                            {"temperature": 1, "top_p": 1e-9}, {"temperature": 1, "min_p": 1.0})}
    assert len(texts) == 1


def test_stop_strings(server):
    text = server.complete(prompt="1 2 3 4 5 6", max_tokens=24)["choices"][0]["text"]
    stop = text[5:9]
    cut = server.complete(prompt="1 2 3 4 5 6", max_tokens=24, stop=stop)["choices"][0]
    assert cut["finish_reason"] == "stop" and cut["text"] == text[:text.index(stop)]
    kept = server.complete(prompt="1 2 3 4 5 6", max_tokens=24, stop=[stop, "never"],
                           include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == cut["text"] + stop
    events = server.events(prompt="1 2 3 4 5 6", max_tokens=24, stop=stop)
    assert "".join(e["choices"][0]["text"] for e in events) == cut["text"]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_characters_split_over_tokens(server):
    """O08: an emoji's parts alone are four replacement characters, never broken UTF-8."""
    fields = dict(prompt="hi", max_tokens=4, logit_bias={"10813": 100})
    assert server.complete(**fields)["choices"][0]["text"] == "\ufffd" * 4
    events = server.events(**fields, logprobs=1)
    assert "".join(e["choices"][0]["text"] for e in events) == "\ufffd" * 4
    tokens = [t for e in events for t in e["choices"][0]["logprobs"]["tokens"]]
    assert tokens == ["bytes:\\xf0\\x9f"] * 4


def test_echo_and_logprobs(server):
    answer = server.complete(prompt="Hello world", echo=True, max_tokens=0, logprobs=1)
    choice = answer["choices"][0]
    assert choice["text"] == "Hello world" and choice["finish_reason"] == "length"
    assert choice["logprobs"]["tokens"] == ["Hello", " world"]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["top_logprobs"][0] is None
    assert choice["logprobs"]["text_offset"] == [0, 5]
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 0, 2)
    assert server.complete(prompt="Hello", echo=True, max_tokens=0)["choices"][0]["text"] == "Hello"


def test_logprobs_continue_over_the_echo_and_stream_alike(server):
    fields = dict(prompt=PROMPT, echo=True, max_tokens=6, logprobs=3)
    whole = server.complete(**fields)["choices"][0]
    lists = whole["logprobs"]
    assert "".join(lists["tokens"]) == whole["text"] == PROMPT + whole["text"][len(PROMPT):]
    assert lists["text_offset"] == [sum(len(t) for t in lists["tokens"][:i])
                                    for i in range(len(lists["tokens"]))]
    for token, logprob, top in zip(lists["tokens"], lists["token_logprobs"],
                                   lists["top_logprobs"]):
        if logprob is not None:
            assert logprob <= 0 and 3 <= len(top) <= 4 and top[token] == logprob
    streamed = {key: [] for key in lists}
    text = ""
    for event in server.events(**fields):
        text += event["choices"][0]["text"]
        for key, values in event["choices"][0]["logprobs"].items():
            streamed[key] += values
    assert text == whole["text"] and streamed == lists
    zero = server.complete(prompt=PROMPT, max_tokens=2, logprobs=0)["choices"][0]["logprobs"]
    assert all(list(top) == [token] for token, top in zip(zero["tokens"], zero["top_logprobs"]))


@pytest.mark.parametrize("fields, param", [
    ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["", "x"]}, "prompt"), ({"prompt": [49152]}, "prompt"),
    ({"prompt": [-1]}, "prompt"), ({"prompt": [1.5]}, "prompt"), ({"prompt": None}, "prompt"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 9223372036854775808}, "max_tokens"),
    ({"temperature": "0.5"}, "temperature"), ({"temperature": True}, "temperature"),
    ({"seed": 1e30}, "seed"), ({"n": 0}, "n"), ({"n": 1.5}, "n"), ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 17}, "stop"), ({"logprobs": 21}, "logprobs"), ({"top_p": 1.0001}, "top_p"),
    ({"logit_bias": {"49152": 1}}, "logit_bias"), ({"suffix": "x"}, "suffix"),
])
def test_wrong_fields(server, fields, param):
    status, error = error_of(server, **fields)
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)


def test_wrong_streams_are_plain_errors(server):
    status, error = error_of(server, stream=True, prompt=[19556] * 8192, max_tokens=1)
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "8192" in error["message"]


def test_context_length(server):
    for count, fields in ((8192, {"max_tokens": 1}), (8191, {"max_tokens": 2}), (8192, {})):
        status, error = error_of(server, prompt=[19556] * count, **fields)
        assert (status, error["code"]) == (400, "context_length_exceeded")
    status, error = error_of(server, prompt="word " * 2_000_000)
    assert (status, error["code"]) == (400, "context_length_exceeded")


def test_the_context_can_be_filled(start):
    """O14, in a shorter context: the same borders in a fraction of the time."""
    server = start("--max-model-len", "512")
    assert error_of(server, prompt=[19556] * 511, max_tokens=2)[0] == 400
    full = server.complete(prompt=[19556] * 511, max_tokens=1)
    usage = full["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == \
        (511, 1, 512)
    short = server.complete(prompt=[19556] * 510)  # a default never causes an error
    assert short["usage"]["completion_tokens"] <= 2
    assert short["choices"][0]["finish_reason"] in ("length", "stop")
    echo = server.complete(prompt=[19556] * 512, max_tokens=0, echo=True)
    assert echo["usage"]["total_tokens"] == 512


def test_unknown_fields_warn_once(server):
    for _ in range(3):
        server.complete(prompt=PROMPT, max_tokens=1, never_heard_of=[1])
    assert server.log().count("never_heard_of") == 1


def test_many_at_once_get_the_solo_answers(server):
    prompts = [f"Item number {i} on the list is" for i in range(12)]
    solo = [server.complete(prompt=p, max_tokens=10)["choices"][0]["text"] for p in prompts]

    def answer(prompt):
        whole = server.complete(prompt=prompt, max_tokens=10, cache_salt="t")
        return whole["choices"][0]["text"]

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(answer, prompts))
    assert together == solo


def test_tokenize_and_back(server):
    text = "Hello world, ça va? 😊 <|im_end|>"
    answer = server.post("/tokenize", {"prompt": text}).json()
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 8192
    assert answer["tokens"][-1] == 2
    assert server.post("/detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": text}
    assert server.post("/tokenize", {"prompt": ""}).json()["tokens"] == []
    for path, body, param in (("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"),
                              ("/detokenize", {"tokens": [49152]}, "tokens"),
                              ("/detokenize", {"tokens": "x"}, "tokens")):
        answer = server.post(path, body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param
