// A request and a response of HTTP as plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pagoda::http {

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string method;           // as sent; methods are case-sensitive
  std::string path;             // the target without its query; not percent-decoded
  std::string query;            // what follows the question mark
  std::vector<Header> headers;  // names in lower case
  std::string body;
  std::string id;  // the client's X-Request-Id, or one made here

  // The first value under a lower-case name; empty if there is none.
  std::string_view header(std::string_view name) const;
};

// Content-Length, Date, Connection and X-Request-Id are added by the connection.
struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers;
};

}  // namespace pagoda::http
