// What a request may look like: framing that has one reading, expectations, ids, methods; and what
// becomes of the connection.
#include <nlohmann/json.hpp>

#include "tests/unit/server/http/server_fixture.h"

namespace pagoda::http {
namespace {

using namespace std::string_literals;

class HttpRequests : public HttpServer {
 protected:
  // All that comes for these bytes until the server ends the connection; empty if it does not.
  std::string ask_to_end(std::string_view bytes) {
    Client client(port());
    client.send(bytes);
    if (!client.read_to_end()) return "";
    return client.received();
  }

  // The answer is whole, has the status and is an error as the API's are.
  static void check_error(std::string_view answer, std::string_view status) {
    ASSERT_TRUE(answer.starts_with("HTTP/1.1 " + std::string(status) + " ")) << answer;
    EXPECT_EQ(count(answer, "\r\nDate: "), 1U) << answer;
    EXPECT_EQ(count(answer, "\r\nX-Request-Id: "), 1U) << answer;
    const size_t body = answer.find("\r\n\r\n");
    ASSERT_NE(body, std::string_view::npos);
    const auto json = nlohmann::json::parse(answer.substr(body + 4), nullptr, false);
    ASSERT_TRUE(json.is_object()) << answer;
    EXPECT_TRUE(json.at("error").at("message").is_string());
    EXPECT_TRUE(json.at("error").at("type").is_string());
    EXPECT_TRUE(json.at("error").contains("param") && json.at("error").contains("code"));
  }
};

// Each of these hides a second request from somebody who reads it otherwise. One answer, 400, and
// the connection ends: what follows is not looked at.
TEST_F(HttpRequests, NothingIsSmuggled) {
  start();
  const std::string hidden = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string begin = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  const std::string chunked = begin + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::string> requests = {
      begin + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
      begin + "Content-Length: 5\r\nContent-Length: 4\r\n\r\nabcde",
      begin + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
      begin + "Content-Length: 5, 5\r\n\r\nabcde",
      begin + "Content-Length: +5\r\n\r\nabcde",
      begin + "Content-Length: 0x5\r\n\r\nabcde",
      begin + "Content-Length: 5 5\r\n\r\nabcde",
      begin + "Content-Length:\r\n\r\n",
      begin + "Content-Length: 18446744073709551616\r\n\r\n",
      begin + "Content-Length : 5\r\n\r\nabcde",
      begin + "Content-Length\t: 5\r\n\r\nabcde",
      begin + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
      begin + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      begin + "X: a\r\n Content-Length: 5\r\n\r\nabcde",
      begin + "X: a\rContent-Length: 5\r\n\r\nabcde",
      begin + "X: a\nContent-Length: 5\r\n\r\nabcde",
      begin + "Content-Length: 5\r\nX: a\0b\r\n\r\nabcde"s,
      begin + "Content-Length: 5\0\r\n\r\nabcde"s,
      "POST /echo\0 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"s,
      "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
      "0\r\n\r\n",
      "POST /echo HTTP/1.1\nHost: x\nContent-Length: 5\n\nabcde",
      "POST  /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1 \r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde",
      "POST /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 5\r\n\r\nabcde",
      chunked + "x\r\nabc\r\n0\r\n\r\n",
      chunked + "-3\r\nabc\r\n0\r\n\r\n",
      chunked + "+3\r\nabc\r\n0\r\n\r\n",
      chunked + "0x3\r\nabc\r\n0\r\n\r\n",
      chunked + "\r\nabc\r\n0\r\n\r\n",
      chunked + "10000000000000003\r\nabc\r\n0\r\n\r\n",
      chunked + "3\nabc\n0\n\n",
      chunked + "3\r\nabcd\r\n0\r\n\r\n",
      chunked + "3\r\nabcX0\r\n\r\n",
      chunked + "3 3\r\nabc\r\n0\r\n\r\n",
  };
  for (const std::string& request : requests) {
    SCOPED_TRACE(request);
    check_error(ask_to_end(request + hidden), "400");
  }
  EXPECT_TRUE(eventually([&] { return admission_->n_admitted() == 0; }));
}

TEST_F(HttpRequests, AnUnknownCodingEndsTheConnection) {
  start();
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "xchunked", "chunked, gzip"}) {
    check_error(ask_to_end("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " +
                           std::string(coding) + "\r\n\r\n0\r\n\r\n" + std::string(kGet)),
                "501");
  }
}

TEST_F(HttpRequests, HeadersAreCountedAndMeasured) {
  start({.max_header_bytes = 4096, .max_headers = 20});
  const auto with_headers = [](int n) {
    std::string all = "GET /hello HTTP/1.1\r\nHost: x\r\n";
    for (int i = 1; i < n; ++i) all += "H" + std::to_string(i) + ": v\r\n";
    return all + "Connection: close\r\n\r\n";
  };
  EXPECT_TRUE(ask_to_end(with_headers(19)).ends_with("hello"));
  check_error(ask_to_end(with_headers(20)), "431");
  check_error(ask_to_end("GET /hello HTTP/1.1\r\nHost: x\r\nA: " + std::string(5000, 'a')), "431");
  check_error(ask_to_end("GET /" + std::string(5000, 'a')), "431");
}

TEST_F(HttpRequests, OnlyContinueCanBeExpected) {
  start();
  Client client(port());
  client.send(post("/echo", "", "Expect: 200-maybe\r\n"));
  ASSERT_TRUE(client.read_until("}"));
  check_error(client.received(), "417");
  client.forget();
  client.send(kGet);  // there was no body, so the connection goes on
  EXPECT_TRUE(client.read_until("hello"));
  check_error(ask_to_end(post("/echo", "abc", "Expect: miracles\r\n")), "417");
  // HTTP/1.0 knows no expectations.
  EXPECT_TRUE(ask_to_end("POST /echo HTTP/1.0\r\nExpect: x\r\nContent-Length: 3\r\n\r\nabc")
                  .ends_with("abc"));
}

TEST_F(HttpRequests, ARefusedExpectationOfABodyEndsTheConnection) {
  start();
  for (const char* path : {"/nowhere", "/hello"}) {
    const std::string answer = ask_to_end("POST " + std::string(path) +
                                          " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                                          "Expect: 100-continue\r\n\r\n");
    check_error(answer, path == std::string_view("/hello") ? "405" : "404");
    EXPECT_EQ(answer.find("100 Continue"), std::string::npos);
  }
}

TEST_F(HttpRequests, Options) {
  start();
  Client client(port());
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 204 No Content\r\n"));
  EXPECT_NE(client.received().find("Allow: POST, OPTIONS\r\n"), std::string::npos);
  EXPECT_EQ(client.received().find("Content-"), std::string::npos);
  client.forget();
  client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_NE(client.received().find("Allow: GET, HEAD, POST, OPTIONS\r\n"), std::string::npos);
  client.forget();
  client.send("OPTIONS /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(client.read_until("}"));
  check_error(client.received(), "404");
}

// What was learnt of an earlier request on the connection says nothing about this one.
TEST_F(HttpRequests, HeadOfErrorsHasNoBody) {
  start();
  Client client(port());
  client.send(
      "HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\nHEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(client.read_to_end());
  EXPECT_EQ(count(client.received(), "HTTP/1.1 405 "), 1U);
  EXPECT_EQ(count(client.received(), "HTTP/1.1 404 "), 1U);
  EXPECT_EQ(client.received().find('{'), std::string::npos);
  EXPECT_TRUE(client.received().ends_with("\r\n\r\nhello"));
}

TEST_F(HttpRequests, EveryAnswerEchoesTheId) {
  start({.max_body_bytes = 100}, 1);
  const std::string id = "X-Request-Id: my-id\r\n";
  Client busy(port());
  busy.send(post("/held", "{}", id));
  ASSERT_TRUE(wait_held(1));
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "404"},
      {"PUT /echo HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "405"},
      {"OPTIONS /echo HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "204"},
      {"GET /hello HTTP/1.1\r\n" + id + "\r\n", "400"},
      {"GET /hello HTTP/1.1\r\n" + id + "Bad Name: x\r\n\r\n", "400"},
      {"GET  /hello HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "400"},
      {"GET /hello HTTP/1.1\r\n" + id + "A: " + std::string(20000, 'a') + "\r\n\r\n", "431"},
      {post("/echo", std::string(101, 'x'), id), "413"},
      {post("/echo", "{}", id + "Expect: x\r\n"), "417"},
      {post("/echo", "{}", id), "429"},
      {"HEAD /hello HTTP/1.1\r\nHost: x\r\n" + id + "\r\n", "200"}};
  for (const auto& [request, status] : requests) {
    Client client(port());
    client.send(request);
    ASSERT_TRUE(client.read_until("\r\n\r\n")) << request;
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 " + status)) << client.received();
    EXPECT_EQ(count(client.received(), "\r\n" + id), 1U) << client.received();
  }
  held(0).begin_stream({200, "text/event-stream", "", {}});
  ASSERT_TRUE(busy.read_until("\r\n\r\n"));
  EXPECT_EQ(count(busy.received(), "\r\n" + id), 1U);
}

TEST_F(HttpRequests, ASmallRefusedBodyDoesNotCostTheConnection) {
  start({}, 1);
  Client first(port());
  first.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  Client client(port());
  const std::string body = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";  // as data, not as a request
  for (int i = 0; i < 20; ++i) {
    client.send(post("/echo", body));            // 429
    client.send(post("/nowhere", body + body));  // 404
    client.send("GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde");
  }
  client.send("GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(client.read_to_end());
  EXPECT_EQ(count(client.received(), "HTTP/1.1 429 "), 20U);
  EXPECT_EQ(count(client.received(), "Retry-After: 1\r\n"), 20U);
  EXPECT_EQ(count(client.received(), "HTTP/1.1 404 "), 20U);
  EXPECT_EQ(count(client.received(), "HTTP/1.1 200 "), 21U);
}

TEST_F(HttpRequests, ARefusedBodyMayComeAfterItsAnswer) {
  start({}, 1);
  Client first(port());
  first.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  Client client(port());
  const std::string request = post("/echo", std::string(200'000, 'x'));
  client.send(request.substr(0, request.size() - 150'000));
  ASSERT_TRUE(client.read_until("}"));
  check_error(client.received(), "429");
  EXPECT_EQ(client.received().find("Connection: close"), std::string::npos);
  client.forget();
  client.send(request.substr(request.size() - 150'000));
  client.send(kGet);
  EXPECT_TRUE(client.read_until("hello"));
  EXPECT_EQ(count(client.received(), "HTTP/1.1 "), 1U);
}

TEST_F(HttpRequests, EmptyLinesBeforeARequestAreNothing) {
  start();
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    client.forget();
    client.send("\r\n");
    client.send("\r\n" + post("/echo", "body") + "\r\n");
    ASSERT_TRUE(client.read_until("\r\n\r\nbody"));
  }
}

TEST_F(HttpRequests, Http10) {
  start();
  EXPECT_TRUE(ask_to_end("GET /hello HTTP/1.0\r\n\r\n").ends_with("hello"));
  Client client(port());
  for (int i = 0; i < 2; ++i) {
    client.forget();
    client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    ASSERT_TRUE(client.read_until("hello"));
    EXPECT_EQ(count(client.received(), "Connection: keep-alive\r\n"), 1U);
  }
}

TEST_F(HttpRequests, AChunkedBodyIsLimitedByTheDoorToo) {
  start({.max_body_bytes = 4 << 20});  // the door holds 1 MiB
  Client keeper(port());
  keeper.send(post("/held", std::string(900'000, 'k')));
  ASSERT_TRUE(wait_held(1));
  const auto chunk_of = [](size_t n) {
    char size[32];
    std::snprintf(size, sizeof(size), "%zx\r\n", n);
    return size + std::string(n, 'x') + "\r\n";
  };
  const std::string begin = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  Client fits(port());
  fits.send(begin + chunk_of(60'000) + "0\r\n\r\n");
  EXPECT_TRUE(fits.read_until("xxx"));
  Client grows(port());
  grows.send(begin + chunk_of(60'000) + chunk_of(300'000) + chunk_of(300'000));
  ASSERT_TRUE(grows.read_until("}"));
  check_error(grows.received(), "429");
}

}  // namespace
}  // namespace pagoda::http
