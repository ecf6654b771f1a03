#include "server/http/router.h"

namespace pagoda::http {

void Router::get(std::string path, Handler handler) {
  routes_.push_back({"GET", std::move(path), false, std::move(handler)});
}

void Router::post(std::string path, Handler handler) {
  routes_.push_back({"POST", std::move(path), true, std::move(handler)});
}

void Router::fallback(Handler handler) {
  fallback_.clear();
  fallback_.push_back({"", "", false, std::move(handler)});
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    if (route.path != path) continue;
    if (route.method == wanted) return {&route, ""};
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  if (!fallback_.empty()) return {&fallback_.front(), ""};
  return match;
}

}  // namespace pagoda::http
