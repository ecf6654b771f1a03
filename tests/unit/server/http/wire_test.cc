#include "server/http/wire.h"

#include <gtest/gtest.h>

#include "server/http/router.h"

namespace pagoda::http {
namespace {

TEST(Wire, HeadOfAWholeAnswer) {
  const Response response{404, "application/json", "", {{"Allow", "GET"}}};
  EXPECT_EQ(
      response_head(
          response,
          {.keep_alive = false, .content_length = 12, .request_id = "abc", .unix_s = 784111777}),
      "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: pagoda\r\n"
      "Content-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n"
      "X-Request-Id: abc\r\nAllow: GET\r\n\r\n");
}

TEST(Wire, Chunk) { EXPECT_EQ(chunk("data: 0123456789\n\n"), "12\r\ndata: 0123456789\n\n\r\n"); }

TEST(Wire, RequestIds) {
  EXPECT_TRUE(is_valid_request_id("a"));
  EXPECT_TRUE(is_valid_request_id(std::string(128, 'x')));
  for (const std::string& bad : {std::string(), std::string(129, 'x'), std::string("a b"),
                                 std::string("a\nb"), std::string("é")}) {
    EXPECT_FALSE(is_valid_request_id(bad)) << bad;
  }
}

TEST(Wire, Targets) {
  struct Case {
    std::string target, path, query;
  };
  for (const Case& c : {Case{"/a/b", "/a/b", ""}, Case{"/a?x=1&y", "/a", "x=1&y"},
                        Case{"http://host:80/a?b", "/a", "b"}, Case{"http://host", "/", ""},
                        Case{"/a#f", "/a", ""}, Case{"/a?u=http://b/c", "/a", "u=http://b/c"}}) {
    std::string path;
    std::string query;
    EXPECT_TRUE(split_target(c.target, path, query)) << c.target;
    EXPECT_EQ(path, c.path);
    EXPECT_EQ(query, c.query);
  }
  std::string path;
  std::string query;
  EXPECT_FALSE(split_target("*", path, query));
  EXPECT_FALSE(split_target("host:80", path, query));
}

TEST(Router, FindsByMethodAndPath) {
  Router router;
  router.get("/a", [](std::shared_ptr<Exchange>) {});
  router.post("/a", [](std::shared_ptr<Exchange>) {});
  router.post("/b", [](std::shared_ptr<Exchange>) {});
  EXPECT_EQ(router.find("GET", "/a").route->method, "GET");
  EXPECT_EQ(router.find("HEAD", "/a").route->method, "GET");
  EXPECT_TRUE(router.find("POST", "/a").route->admitted);
  EXPECT_EQ(router.find("PUT", "/a").allow, "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(router.find("get", "/a").route, nullptr);  // methods are case-sensitive
  EXPECT_EQ(router.find("HEAD", "/b").allow, "POST, OPTIONS");
  EXPECT_EQ(router.find("GET", "/c").route, nullptr);
  EXPECT_TRUE(router.find("GET", "/c").allow.empty());
  router.fallback([](std::shared_ptr<Exchange>) {});
  EXPECT_NE(router.find("GET", "/c").route, nullptr);
}

}  // namespace
}  // namespace pagoda::http
