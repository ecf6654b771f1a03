"""A server that speaks just enough of OpenAI's chat API for the tests of `pagoda chat`.

Every answer repeats the last message word by word; a message with "slow" is answered without an
end, so that it can be stopped. What was asked lies in `requests`.
"""
import http.server
import json
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, json.dumps({"data": [{"id": "parrot"}]}).encode())

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, text=None, finish=None, usage=None):
        choices = [{"index": 0, "delta": {"content": text} if text else {},
                    "finish_reason": finish}]
        event = {"choices": [] if usage else choices, "usage": usage}
        self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        last = body["messages"][-1]["content"]
        if "fail" in last:
            return self.answer(400, b'{"error": {"message": "that is too much"}}')
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.stream(last)
        except OSError:
            self.server.gone.set()

    def stream(self, last):
        while "slow" in last:
            self.event("on ")
            time.sleep(0.05)
        for word in last.split(" "):
            self.event(word + " ")
        self.event(finish="stop")
        self.event(usage={"prompt_tokens": 7, "completion_tokens": 3,
                          "prompt_tokens_details": {"cached_tokens": 4}})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


class FakeServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.gone = threading.Event()  # a client left in mid-stream
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()
