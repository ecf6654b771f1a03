#include "server/http/cors.h"

#include "server/http/wire.h"
#include "tests/unit/server/http/server_fixture.h"

namespace pagoda::http {
namespace {

std::string preflight(std::string_view path, std::string_view origin,
                      std::string_view headers =
                          "Access-Control-Request-Headers: "
                          "authorization, x-stainless-lang\r\n") {
  return "OPTIONS " + std::string(path) + " HTTP/1.1\r\nHost: x\r\nOrigin: " + std::string(origin) +
         "\r\nAccess-Control-Request-Method: POST\r\n" + std::string(headers) + "\r\n";
}

TEST(CorsPolicy, KnowsWhatAnOriginIs) {
  for (const char* good : {"*", "null", "https://a.example", "http://localhost:3000",
                           "http://[::1]:80", "chrome-extension://abcdef"}) {
    EXPECT_TRUE(check_cors_origin(good).ok()) << good;
  }
  for (const char* bad :
       {"", "a.example", "https://", "://a", "https://a.example/", "https://A.example",
        "https://*.example", "https://a\r\nB: c", "http://a,b"}) {
    EXPECT_FALSE(check_cors_origin(bad).ok()) << bad;
  }
}

class Cors : public HttpServer {
 protected:
  void start_with(std::vector<std::string> origins) {
    start({.cors_allow_origins = std::move(origins)}, 1);
  }
  // The answer to one request on a connection of its own.
  std::string ask(const std::string& request) {
    Client client(port());
    client.send(request);
    client.finish_sending();
    EXPECT_TRUE(client.read_to_end());
    // A client that has ended its sending may be asked by that whether it still reads.
    std::string answer = client.received();
    while (answer.starts_with(kContinue)) answer.erase(0, kContinue.size());
    return answer;
  }
};

TEST_F(Cors, AnAllowedPageMayReadEveryAnswer) {
  start_with({"https://a.example", "https://b.example"});
  const std::string allowed =
      "Vary: Origin\r\nAccess-Control-Allow-Origin: https://b.example\r\n"
      "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n";
  const std::string origin = "Origin: https://b.example\r\n";
  EXPECT_EQ(count(ask(post("/echo", "{}", origin)), allowed), 1U);
  const std::string missing = ask(post("/nowhere", "{}", origin));
  EXPECT_TRUE(missing.starts_with("HTTP/1.1 404 "));
  EXPECT_EQ(count(missing, allowed), 1U);
  const std::string dropped = ask(post("/dropped", "{}", origin));
  EXPECT_TRUE(dropped.starts_with("HTTP/1.1 500 "));
  EXPECT_EQ(count(dropped, allowed), 1U);
  Client client(port());
  client.send(post("/held", "{}", origin));
  ASSERT_TRUE(wait_held(1));
  const std::string busy = ask(post("/echo", "{}", origin));
  EXPECT_TRUE(busy.starts_with("HTTP/1.1 429 "));
  EXPECT_EQ(count(busy, allowed), 1U);
  held(0).begin_stream({200, "text/event-stream", "", {}});
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  EXPECT_EQ(count(client.received(), allowed), 1U);
}

TEST_F(Cors, OthersAreToldNothing) {
  start_with({"https://a.example"});
  for (const char* origin : {"https://b.example", "https://a.example.evil", "HTTPS://A.EXAMPLE",
                             "null", "https://a.example:444"}) {
    for (const std::string& request :
         {preflight("/echo", origin),
          post("/echo", "{}", "Origin: " + std::string(origin) + "\r\n")}) {
      const std::string answer = ask(request);
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 20")) << answer;
      EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << answer;
      EXPECT_NE(answer.find("Vary: Origin\r\n"), std::string::npos) << answer;
    }
  }
  EXPECT_EQ(ask(post("/echo", "{}")).find("Access-Control"), std::string::npos);
}

TEST_F(Cors, WithoutAListNothingIsSaid) {
  start();
  const std::string answer = ask(preflight("/echo", "https://a.example"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 204 "));
  EXPECT_EQ(answer.find("Access-Control"), std::string::npos);
  EXPECT_EQ(answer.find("Vary"), std::string::npos);
}

TEST_F(Cors, APreflightIsAnswered) {
  start_with({"https://a.example"});
  const std::string answer = ask(preflight("/echo", "https://a.example"));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 204 No Content\r\n"));
  for (const char* header :
       {"Access-Control-Allow-Origin: https://a.example\r\n",
        "Access-Control-Allow-Methods: POST, OPTIONS\r\n",
        "Access-Control-Allow-Headers: authorization, x-stainless-lang\r\n",
        "Access-Control-Max-Age: 600\r\n", "Vary: Origin\r\n", "X-Request-Id: "}) {
    EXPECT_EQ(count(answer, header), 1U) << header << answer;
  }
  EXPECT_EQ(answer.find("Content-Length"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n"));
  EXPECT_NE(ask(preflight("/echo", "https://a.example", "")).find("Content-Type, X-Request-Id"),
            std::string::npos);
  EXPECT_EQ(
      ask(preflight("/echo", "https://a.example", "Access-Control-Request-Headers: <script>\r\n"))
          .find("<script>"),
      std::string::npos);
  EXPECT_TRUE(ask(preflight("/nowhere", "https://a.example")).starts_with("HTTP/1.1 404 "));
}

TEST_F(Cors, AStarLetsEveryPageIn) {
  start_with({"*"});
  const std::string answer = ask(preflight("/echo", "https://any.example"));
  EXPECT_EQ(count(answer, "Access-Control-Allow-Origin: *\r\n"), 1U);
  EXPECT_EQ(answer.find("any.example"), std::string::npos);
  EXPECT_EQ(ask(post("/echo", "{}")).find("Access-Control"), std::string::npos);
}

}  // namespace
}  // namespace pagoda::http
