// From method and path to a handler.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/http/exchange.h"

namespace pagoda::http {

// Called on an I/O thread and must not wait: what takes longer than a fraction of a millisecond is
// posted to a worker pool.
using Handler = absl::AnyInvocable<void(std::shared_ptr<Exchange>) const>;

// Built once, then read by any thread.
class Router {
 public:
  struct Route {
    std::string method;
    std::string path;
    // The request needs a place at the door, taken before its body is read.
    bool admitted = false;
    Handler handler;
  };
  struct Match {
    const Route* route = nullptr;  // null: see `allow`
    std::string allow;             // as of methods()
  };

  void get(std::string path, Handler handler);
  // Every POST is admitted.
  void post(std::string path, Handler handler);
  // Any method; a path that ends in "/*" stands for all that go on behind the slash.
  void add(std::string method, std::string path, bool admitted, Handler handler);
  // Answers whatever has no route of its own, in place of 404 and 405.
  void fallback(Handler handler);

  // What a path takes, as for Allow, with OPTIONS, which the listener answers itself; empty: there
  // is no such path. With a fallback every path takes everything.
  std::string methods(std::string_view path) const;

  // HEAD finds the handler of GET, OPTIONS none.
  Match find(std::string_view method, std::string_view path) const;

 private:
  std::vector<Route> routes_;
  std::vector<Route> fallback_;  // none or one
};

}  // namespace pagoda::http
