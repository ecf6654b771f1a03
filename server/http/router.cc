#include "server/http/router.h"

namespace pagoda::http {
namespace {

bool fits(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(1);
  return path.size() > pattern.size() && path.starts_with(pattern);
}

}  // namespace

void Router::get(std::string path, Handler handler) {
  routes_.push_back({"GET", std::move(path), false, std::move(handler)});
}

void Router::post(std::string path, Handler handler) {
  routes_.push_back({"POST", std::move(path), true, std::move(handler)});
}

void Router::add(std::string method, std::string path, bool admitted, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), admitted, std::move(handler)});
}

void Router::fallback(Handler handler) {
  fallback_.clear();
  fallback_.push_back({"", "", false, std::move(handler)});
}

std::string Router::methods(std::string_view path) const {
  std::string all;
  for (const Route& route : routes_) {
    if (fits(route.path, path)) all += route.method == "GET" ? "GET, HEAD, " : route.method + ", ";
  }
  if (!fallback_.empty()) all = "GET, HEAD, POST, ";
  return all.empty() ? all : all + "OPTIONS";
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes_) {
    if (fits(route.path, path) && route.method == wanted) return {&route, ""};
  }
  if (!fallback_.empty() && method != "OPTIONS") return {&fallback_.front(), ""};
  return {nullptr, methods(path)};
}

}  // namespace pagoda::http
