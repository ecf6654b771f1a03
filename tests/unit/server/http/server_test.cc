#include "tests/unit/server/http/server_fixture.h"

namespace pagoda::http {
namespace {

TEST_F(HttpServer, AnswersAndKeepsTheConnection) {
  start();
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    client.forget();
    ASSERT_TRUE(client.send(kGet));
    ASSERT_TRUE(client.read_until("hello"));
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 200 OK\r\n"));
    EXPECT_NE(client.received().find("Content-Length: 5\r\n"), std::string::npos);
    EXPECT_NE(client.received().find("X-Request-Id: "), std::string::npos);
  }
}

TEST_F(HttpServer, AnswersPipelinedRequestsInOrder) {
  start();
  Client client(port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += post("/echo", "<" + std::to_string(i) + ">");
  ASSERT_TRUE(client.send(all));
  ASSERT_TRUE(client.read_until("<49>"));
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = client.received().find("<" + std::to_string(i) + ">", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST_F(HttpServer, TakesARequestInSingleBytes) {
  start();
  Client client(port());
  for (const char c : post("/echo", "slow and steady")) {
    ASSERT_TRUE(client.send(std::string_view(&c, 1)));
  }
  EXPECT_TRUE(client.read_until("slow and steady"));
}

TEST_F(HttpServer, TakesAChunkedBody) {
  start();
  Client client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send("4\r\nWiki\r\n6;extension=1\r\npedia!\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_TRUE(client.read_until("Wikipedia!"));
}

TEST_F(HttpServer, SendsContinueWhenItIsExpected) {
  start();
  Client client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send("body");
  EXPECT_TRUE(client.read_until("\r\n\r\nbody"));
}

TEST_F(HttpServer, RefusesALargeBodyBeforeItIsSent) {
  start({.max_body_bytes = 1000});
  Client client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n\r\n{"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 413 "));
  EXPECT_EQ(admission_->n_admitted(), 0);
}

TEST_F(HttpServer, TheAnswerToALargeBodySurvivesItsSending) {
  start({.max_body_bytes = 1000});
  for (const bool chunked : {false, true}) {
    Client client(port());
    const std::string body(4 << 20, 'x');
    if (chunked) {
      client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n400000\r\n");
      client.send(body);
    } else {
      client.send(post("/echo", body));
    }
    ASSERT_TRUE(client.read_until("\r\n\r\n{")) << chunked;
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 413 ")) << client.received();
  }
  EXPECT_TRUE(eventually([&] { return admission_->n_admitted() == 0; }));
}

TEST_F(HttpServer, RefusesWhatIsNotHttp) {
  start();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nonsense\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\n\r\n", "400"},  // no Host
      {"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
      {"GET /hello HTTP/9.9\r\nHost: x\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
       "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
       "0\r\n\r\n",
       "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"GET hello HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\nHost: x\r\nA: " + std::string(20000, 'a') + "\r\n\r\n", "431"},
      {std::string(20000, 'G'), "4"}};
  for (const auto& [bytes, status] : cases) {
    Client client(port());
    client.send(bytes);
    ASSERT_TRUE(client.read_to_end()) << bytes.substr(0, 80);
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 " + status))
        << bytes.substr(0, 80) << " gave " << client.received().substr(0, 80);
  }
  Client after(port());
  after.send(kGet);
  EXPECT_TRUE(after.read_until("hello"));
}

TEST_F(HttpServer, FramingOfABodyThatGrowsIsRefused) {
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& begin : {head + "4;", head + "4\r\nWiki\r\n0\r\nTrailer: "}) {
    Client client(port());
    client.send(begin + std::string(1 << 20, 'x'));
    ASSERT_TRUE(client.read_until("}"));
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 400 ")) << client.received();
    EXPECT_TRUE(client.read_to_end());
  }
  EXPECT_TRUE(eventually([&] { return admission_->n_admitted() == 0; }));
}

TEST_F(HttpServer, OneConnectionTooManyIsClosed) {
  start({.max_connections = 2});
  Client first(port());
  first.send(kGet);
  ASSERT_TRUE(first.read_until("hello"));
  {
    Client second(port());
    second.send(kGet);
    ASSERT_TRUE(second.read_until("hello"));
    Client third(port());
    EXPECT_TRUE(third.read_to_end());
    EXPECT_EQ(third.received(), "");
  }
  EXPECT_TRUE(eventually([&] {
    Client again(port());
    again.send(kGet);
    return again.read_until("hello");
  }));
}

// An answer that its client does not take occupies its place, although the work is over.
TEST_F(HttpServer, ThePlaceIsKeptUntilTheAnswerIsWritten) {
  start();
  Client client(port());
  client.send(post("/held", "{}", "Connection: close\r\n"));
  ASSERT_TRUE(wait_held(1));
  held(0).respond({200, "text/plain", std::string(32 << 20, 'x') + "end", {}});
  held_.clear();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(admission_->n_admitted(), 1);
  EXPECT_TRUE(client.read_to_end());
  EXPECT_TRUE(client.received().ends_with("xend"));
  EXPECT_TRUE(eventually([&] { return admission_->n_admitted() == 0; }));
}

TEST_F(HttpServer, UnknownRoutesAndMethods) {
  start();
  Client client(port());
  client.send("GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(client.read_until("}"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 404 "));
  client.forget();
  client.send("DELETE /hello HTTP/1.1\r\nHost: x\r\n\r\n");  // the same connection still works
  ASSERT_TRUE(client.read_until("}"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 405 "));
  EXPECT_NE(client.received().find("Allow: GET, HEAD, OPTIONS\r\n"), std::string::npos);
}

TEST_F(HttpServer, HeadHasTheLengthAndNoBody) {
  start();
  Client client(port());
  client.send("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
  client.send("GET /hello?q=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(client.read_to_end());
  EXPECT_EQ(count(client.received(), "Content-Length: 5\r\n"), 2U);
  EXPECT_EQ(count(client.received(), "hello"), 1U);
}

TEST_F(HttpServer, EchoesARequestIdThatIsHarmless) {
  start();
  Client client(port());
  client.send("GET /hello HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc-123\r\n\r\n");
  ASSERT_TRUE(client.read_until("hello"));
  EXPECT_NE(client.received().find("X-Request-Id: abc-123\r\n"), std::string::npos);
  client.forget();
  client.send("GET /hello HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + std::string(300, 'a') +
              "\r\n\r\n");
  ASSERT_TRUE(client.read_until("hello"));
  EXPECT_EQ(client.received().find("aaaa"), std::string::npos);
}

TEST_F(HttpServer, TheDoorIsShutBeforeTheBodyIsRead) {
  start({}, 1);
  Client first(port());
  first.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  Client second(port());
  second.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  ASSERT_TRUE(second.read_until("}"));
  EXPECT_TRUE(second.received().starts_with("HTTP/1.1 429 "));
  Client observer(port());  // GET routes need no place
  observer.send(kGet);
  EXPECT_TRUE(observer.read_until("hello"));

  held(0).respond({200, "text/plain", "done", {}});
  held_.clear();
  ASSERT_TRUE(first.read_until("done"));
  first.send(post("/echo", "again"));
  EXPECT_TRUE(first.read_until("again"));
}

TEST_F(HttpServer, ADroppedExchangeIsA500) {
  start();
  Client client(port());
  client.send(post("/dropped", "{}"));
  ASSERT_TRUE(client.read_until("}"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 500 "));
}

TEST_F(HttpServer, StreamsInChunksOfWholeEvents) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  held(0).send("data: 1\n\n");
  ASSERT_TRUE(client.read_until("9\r\ndata: 1\n\n\r\n"));
  held(0).send("data: [DONE]\n\n");
  held(0).end_stream();
  ASSERT_TRUE(client.read_until("\r\n0\r\n\r\n"));
  EXPECT_NE(client.received().find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  client.send(kGet);
  EXPECT_TRUE(client.read_until("hello"));
}

TEST_F(HttpServer, AStreamForHttp10EndsWithTheConnection) {
  start();
  Client client(port());
  client.send("POST /held HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  held(0).send("data: 1\n\n");
  held(0).end_stream();
  ASSERT_TRUE(client.read_to_end());
  EXPECT_TRUE(client.received().ends_with("\r\n\r\ndata: 1\n\n"));
}

TEST_F(HttpServer, ADroppedStreamBreaksTheConnection) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  held_.clear();
  ASSERT_TRUE(client.read_to_end());
  EXPECT_EQ(client.received().find("\r\n0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpServer, NoticesAClientThatCloses) {
  start();
  for (const bool streaming : {false, true}) {
    const int gone_before = n_gone_.load();
    Client client(port());
    client.send(post("/held", "{}"));
    ASSERT_TRUE(wait_held(1));
    if (streaming) held(0).begin_stream({200, "text/event-stream", "", {}});
    const auto start = std::chrono::steady_clock::now();
    client.close();
    EXPECT_TRUE(eventually([&] { return n_gone_.load() == gone_before + 1; })) << streaming;
    EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(500));
    EXPECT_TRUE(held(0).client_gone());
    held(0).on_client_gone([&] { n_gone_.fetch_add(10); });  // too late: runs at once
    EXPECT_EQ(n_gone_.load(), gone_before + 11);
    n_gone_.store(gone_before + 1);
    held_.clear();
    n_held_.store(0);
  }
}

TEST_F(HttpServer, NoticesAReset) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  client.reset();
  EXPECT_TRUE(eventually([&] { return n_gone_.load() == 1; }));
}

TEST_F(HttpServer, NoticesALeavingClientBehindItsPipelinedRequests) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  std::string more;
  for (int i = 0; i < 4000; ++i) more += kGet;  // more than is read ahead
  client.send(more);
  std::this_thread::sleep_for(milliseconds(50));
  client.reset();
  EXPECT_TRUE(eventually([&] { return n_gone_.load() == 1; }));
}

TEST_F(HttpServer, AHalfClosedClientGetsItsAnswer) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  client.finish_sending();
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));  // the probe
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(n_gone_.load(), 0);
  held(0).respond({200, "text/plain", "late", {}});
  ASSERT_TRUE(client.read_to_end());
  EXPECT_TRUE(client.received().ends_with("late"));
}

TEST_F(HttpServer, AHalfClosedClientGetsItsStream) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  client.finish_sending();
  ASSERT_TRUE(client.read_until(": ping\n\n"));
  held(0).send("data: 1\n\n");
  held(0).end_stream();
  ASSERT_TRUE(client.read_until("\r\n0\r\n\r\n"));
  EXPECT_NE(client.received().find("data: 1\n\n"), std::string::npos);
  EXPECT_EQ(n_gone_.load(), 0);
}

TEST_F(HttpServer, DropsAReaderThatDoesNotRead) {
  start({.write_timeout = milliseconds(300)});
  Client client(port(), 4096);
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  for (int i = 0; i < 64; ++i) held(0).send(std::string(100'000, 'x'));
  EXPECT_TRUE(eventually([&] { return n_gone_.load() == 1; }));
}

TEST_F(HttpServer, DropsAReaderThatIsTooFarBehind) {
  start({.max_pending_bytes = 1 << 20});
  Client client(port(), 4096);
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  for (int i = 0; i < 200; ++i) held(0).send(std::string(100'000, 'x'));
  EXPECT_TRUE(eventually([&] { return n_gone_.load() == 1; }));
}

TEST_F(HttpServer, ASlowReaderThatReadsIsKept) {
  start({.write_timeout = milliseconds(400)});
  Client client(port(), 32 << 10);
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  held(0).send(std::string(6 << 20, 'x'));
  held(0).end_stream();
  // Far slower in all than the time limit, and never enough at once for the socket to take more.
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(milliseconds(40));
    client.sip(8 << 10);
  }
  EXPECT_EQ(n_gone_.load(), 0);
  EXPECT_TRUE(client.read_until("\r\n0\r\n\r\n"));
  EXPECT_EQ(n_gone_.load(), 0);
}

TEST_F(HttpServer, TimeLimitsOfHeadersBodiesAndIdleConnections) {
  start({.header_timeout = milliseconds(200),
         .body_timeout = milliseconds(200),
         .idle_timeout = milliseconds(400)});
  Client header(port());
  header.send("GET /hel");
  EXPECT_TRUE(header.read_to_end());
  Client body(port());
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(body.read_to_end());
  EXPECT_TRUE(eventually([&] { return admission_->n_admitted() == 0; }));
  Client idle(port());
  idle.send(kGet);
  ASSERT_TRUE(idle.read_until("hello"));
  EXPECT_TRUE(idle.read_to_end());
}

TEST_F(HttpServer, DrainingClosesConnectionsWithTheirAnswer) {
  start();
  Client client(port());
  client.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  server_->drain();
  EXPECT_EQ(server_->n_busy(), 1);
  held(0).respond({200, "text/plain", "last", {}});
  ASSERT_TRUE(client.read_to_end());
  EXPECT_NE(client.received().find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(client.received().ends_with("last"));
  EXPECT_TRUE(eventually([&] { return server_->n_busy() == 0; }));
}

TEST_F(HttpServer, ABusyPortIsToldInASentence) {
  start();
  Server other({}, clock_, *admission_);
  const absl::Status status = other.bind("127.0.0.1", port());
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(std::string(status.message()).find("--port"), std::string::npos);
  EXPECT_FALSE(other.bind("no.such.host.invalid", 0).ok());
}

// Many clients that come, ask, and leave at any point; nothing may be lost or leak.
TEST_F(HttpServer, SurvivesClientsThatLeaveAnywhere) {
  start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      const std::string request = post("/echo", std::string(3000, 'b'));
      for (size_t i = 0; i < 150; ++i) {
        Client client(port());
        client.send(std::string_view(request).substr(
            0, (i * 37 + static_cast<size_t>(t) * 11) % (request.size() + 1)));
        if (i % 3 == 0) client.reset();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(eventually([&] { return server_->n_busy() == 0 && admission_->n_admitted() == 0; }));
  Client client(port());
  client.send(kGet);
  EXPECT_TRUE(client.read_until("hello"));
}

}  // namespace
}  // namespace pagoda::http
