#include "server/api/kv_routes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "server/api/chat_request.h"
#include "server/api/errors.h"
#include "server/api/tokenize.h"

namespace pagoda::api {
namespace {

using cache::KvCache;
using cache::SessionKey;
using cache::SessionTable;
using Exchange = std::shared_ptr<http::Exchange>;

constexpr std::string_view kSessions = "/v1/kv/sessions/";
constexpr std::array<const char*, 4> kSources = {"device", "host", "ssd", "computed"};
constexpr std::array<const char*, 7> kMisses = {
    nullptr, "no_shared_prefix", "short", "evicted", "other_salt", "unreachable", "cheaper"};

void respond_json(const Exchange& exchange, const Json& json) {
  exchange->respond({200, "application/json", to_text(json), {}});
}

void respond_error(const Exchange& exchange, const absl::Status& status) {
  exchange->respond(error_response(status));
}

// A prompt and the scope that it would be found in.
struct KvQuestion {
  cache::CacheScope scope;
  std::vector<model::TokenId> tokens;
};

absl::StatusOr<KvQuestion> read_question(Context& context, std::string_view body) {
  static const std::vector<std::string_view> kKnown = [] {
    std::vector<std::string_view> names = chat_input_fields();
    names.insert(names.end(), {"model", "prompt", "cache_salt"});
    return names;
  }();
  ASSIGN_OR_RETURN(JsonBody parsed, parse_object(body, kKnown, context.limits.max_json_depth));
  context.warnings.warn(parsed.unknown);
  const Fields fields(parsed.object);
  std::string model;
  KvQuestion question;
  RETURN_IF_ERROR(fields.read("model", model, kMaxNameBytes));
  RETURN_IF_ERROR(check_model(context.model, model));
  RETURN_IF_ERROR(fields.read("cache_salt", question.scope.salt, kMaxNameBytes));
  ASSIGN_OR_RETURN(question.tokens, read_prompt_ids(context, parsed.object));
  if (question.tokens.empty()) return bad_field("prompt", "must have at least one token");
  if (std::ssize(question.tokens) > context.model.max_model_len) {
    return bad_field("prompt", "has {} tokens; this server's context has {}",
                     question.tokens.size(), context.model.max_model_len);
  }
  return question;
}

// Asks the engine thread, whose answer is written by a worker.
template <typename Ask>
void ask_engine(Context& context, const Exchange& exchange, Ask ask) {
  const absl::Status posted = context.engine.post(
      [exchange, ask = std::move(ask)](KvCache& cache, SessionTable& sessions) mutable {
        ask(exchange, cache, sessions);
      });
  if (!posted.ok()) respond_error(exchange, posted);
}

Json by_source(const std::array<int32_t, 4>& n_tokens) {
  Json json = Json::object();
  for (size_t i = 0; i < kSources.size(); ++i) json[kSources[i]] = n_tokens[i];
  return json;
}

Json probe_json(const cache::Explanation& found, size_t n_prompt) {
  return {{"prompt_tokens", n_prompt},
          {"tokens", by_source(found.n_tokens)},
          {"restore_s", found.restore.predicted_s},
          {"predicted_s", found.predicted_s}};
}

Json block_json(const cache::BlockAccount& block) {
  Json json = {{"begin", block.begin},
               {"end", block.end},
               {"source", kSources[static_cast<size_t>(block.source)]},
               {"predicted_s", block.predicted_s}};
  if (block.miss != cache::Miss::kNone) json["miss"] = kMisses[static_cast<size_t>(block.miss)];
  if (block.cause) {
    json["evicted_for"] = cache::cause_name(*block.cause);
    json["evicted_s_ago"] = block.age_s;
  }
  return json;
}

Json explanation_json(const Context& context, const cache::Explanation& found, size_t n_prompt) {
  Json json = probe_json(found, n_prompt);
  json["restore_all_s"] = found.restore.restore_all_s;
  json["recompute_all_s"] = found.restore.recompute_all_s;
  if (found.parts_at >= 0) {
    json["parts_at"] = found.parts_at;
    json["kept_instead"] = {{"tokens", found.kept_instead},
                            {"text", model::decode(context.tokenizer, found.kept_instead, false)}};
  }
  Json& blocks = json["blocks"] = Json::array();
  for (const cache::BlockAccount& block : found.blocks) blocks.push_back(block_json(block));
  return json;
}

// Answers with what `show` makes of the explanation of the body's prompt.
template <typename Show>
void explain(Context& context, Exchange exchange, Show show) {
  run_on_worker(context, std::move(exchange), [&context, show](const Exchange& self) {
    auto question = read_question(context, self->take_body());
    if (!question.ok()) return respond_error(self, question.status());
    ask_engine(context, self,
               [&context, show, asked = *std::move(question)](const Exchange& asker, KvCache& cache,
                                                              SessionTable&) mutable {
                 auto found = cache.explain(asked.scope, asked.tokens);
                 const size_t n_prompt = asked.tokens.size();
                 run_on_worker(context, asker,
                               [show, found = std::move(found), n_prompt](const Exchange& last) {
                                 respond_json(last, show(found, n_prompt));
                               });
               });
  });
}

Json session_json(const cache::SessionView& view) {
  Json json = {{"id", view.key.id},
               {"salt", view.key.salt},
               {"state", cache::kSessionStates[static_cast<size_t>(view.state)]},
               {"pinned", view.is_pinned},
               {"moving", view.is_moving},
               {"requests", view.n_requests},
               {"tokens", view.n_tokens},
               {"priority", view.priority},
               {"idle_s", view.idle_s}};
  json["where"] = by_source(view.residency);
  return json;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto digit = [&](size_t at) {
      const char c = at < text.size() ? text[at] : '?';
      if (c >= '0' && c <= '9') return c - '0';
      const char lower = static_cast<char>(c | 0x20);
      return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    };
    const int high = digit(i + 1);
    const int low = digit(i + 2);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

// What stands before and behind the first `c`; nothing behind where there is none.
std::pair<std::string_view, std::string_view> cut(std::string_view text, char c) {
  const auto n = static_cast<size_t>(std::ranges::find(text, c) - text.begin());
  return {text.substr(0, n), n < text.size() ? text.substr(n + 1) : std::string_view()};
}

// The value of a name in "a=1&b=2"; none without it.
absl::StatusOr<std::optional<std::string>> query_value(std::string_view query,
                                                       std::string_view name) {
  while (!query.empty()) {
    const auto [part, rest] = cut(query, '&');
    query = rest;
    const auto [key, text] = cut(part, '=');
    if (key != name) continue;
    std::string spaced(text);  // as HTML forms and their libraries write a space
    std::ranges::replace(spaced, '+', ' ');
    auto value = percent_decoded(spaced);
    if (!value) return base::invalid_argument("the query's {} is not percent-encoded right", name);
    return value;
  }
  return std::nullopt;
}

// What stands behind /v1/kv/sessions/ in the path, and the salt of the query.
struct SessionAsk {
  std::string id;
  std::string action;  // behind the id; empty: none
  std::optional<std::string> salt;
};

absl::StatusOr<SessionAsk> read_session_ask(const http::Request& request) {
  const auto [name, action] = cut(std::string_view(request.path).substr(kSessions.size()), '/');
  SessionAsk ask;
  ask.action = action;
  auto id = percent_decoded(name);
  if (!id || id->empty()) {
    return base::invalid_argument("the session's id in the path is not percent-encoded right");
  }
  ask.id = *std::move(id);
  ASSIGN_OR_RETURN(ask.salt, query_value(request.query, "salt"));
  return ask;
}

absl::StatusOr<SessionKey> find_key(const SessionTable& sessions, const SessionAsk& ask) {
  if (ask.salt) return SessionKey{*ask.salt, ask.id};
  const std::vector<SessionKey> keys = sessions.with_id(ask.id);
  if (keys.size() > 1) {
    return base::invalid_argument(
        "{} sessions under different salts have the id \"{}\"; name one with ?salt=", keys.size(),
        ask.id);
  }
  return keys.empty() ? SessionKey{"", ask.id} : keys.front();
}

absl::Status act(SessionTable& sessions, const SessionKey& key, std::string_view action) {
  if (action == "pin") return sessions.pin(key);
  if (action == "unpin") return sessions.unpin(key);
  if (action == "prefetch") return sessions.prefetch(key);
  if (action == "offload") return sessions.offload(key);
  return sessions.drop(key);
}

void show_session(Context& context, const Exchange& exchange) {
  auto ask = read_session_ask(exchange->request());
  if (!ask.ok()) return respond_error(exchange, ask.status());
  ask_engine(context, exchange,
             [asked = *std::move(ask)](const Exchange& asker, KvCache&, SessionTable& sessions) {
               const auto key = find_key(sessions, asked);
               if (!key.ok()) return respond_error(asker, key.status());
               const auto view = sessions.find(*key);
               if (!view || !asked.action.empty()) {
                 return respond_error(asker,
                                      base::status_error(absl::StatusCode::kNotFound,
                                                         "there is no session \"{}\"", asked.id));
               }
               respond_json(asker, session_json(*view));
             });
}

void change_session(Context& context, const Exchange& exchange, bool is_delete) {
  auto ask = read_session_ask(exchange->request());
  if (!ask.ok()) return respond_error(exchange, ask.status());
  constexpr std::array<std::string_view, 4> kActions = {"pin", "unpin", "prefetch", "offload"};
  const bool is_known =
      is_delete ? ask->action.empty() : std::ranges::find(kActions, ask->action) != kActions.end();
  if (!is_known) {
    return respond_error(exchange,
                         base::status_error(absl::StatusCode::kNotFound,
                                            "a session takes POST pin, unpin, prefetch or offload, "
                                            "and DELETE, not \"{}\"",
                                            ask->action));
  }
  ask_engine(
      context, exchange,
      [asked = *std::move(ask)](const Exchange& asker, KvCache&, SessionTable& sessions) {
        const auto key = find_key(sessions, asked);
        if (!key.ok()) return respond_error(asker, key.status());
        const absl::Status status = act(sessions, *key, asked.action);
        if (asked.action.empty() && absl::IsNotFound(status)) {
          // To say that it was erased would be wrong: a run before this one may have written it.
          return respond_error(
              asker, base::status_error(absl::StatusCode::kNotFound,
                                        "no session \"{}\" is known since the server started, and "
                                        "nothing was erased; DELETE /v1/kv/salts?salt= erases all "
                                        "of a salt, and POST /v1/kv/reset all that is kept",
                                        asked.id));
        }
        if (!status.ok()) return respond_error(asker, status);
        const auto view = sessions.find(*key);
        respond_json(asker, view ? session_json(*view) : Json{{"id", asked.id}, {"deleted", true}});
      });
}

// A salt is a secret of its user's, so it comes in the query of the admin listener, never in a path
// that is logged.
void drop_salt(Context& context, const Exchange& exchange) {
  auto salt = query_value(exchange->request().query, "salt");
  if (!salt.ok()) return respond_error(exchange, salt.status());
  if (!*salt) {
    return respond_error(
        exchange,
        base::invalid_argument("name what to erase with ?salt=, which may be empty for what "
                               "has no cache_salt"));
  }
  ask_engine(context, exchange,
             [name = **std::move(salt)](const Exchange& asker, KvCache&, SessionTable& sessions) {
               const bool all = sessions.drop_salt(name);
               respond_json(asker, {{"salt", name}, {"erased", all}, {"in_use", !all}});
             });
}

void list_sessions(Context& context, const Exchange& exchange) {
  constexpr size_t kMost = 1000;
  constexpr size_t kDefault = 100;
  const http::Request& request = exchange->request();
  const auto after = query_value(request.query, "after");
  const auto salt = query_value(request.query, "after_salt");
  const auto limit = query_value(request.query, "limit");
  for (const auto* value : {&after, &salt, &limit}) {
    if (!value->ok()) return respond_error(exchange, value->status());
  }
  size_t most = kDefault;
  if (limit->has_value()) {
    const std::string& digits = **limit;
    if (digits.empty() || digits.size() > 4 ||
        !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }) ||
        std::stoul(digits) < 1 || std::stoul(digits) > kMost) {
      return respond_error(exchange,
                           base::invalid_argument("limit must be a number from 1 to {}", kMost));
    }
    most = std::stoul(digits);
  }
  const SessionKey from{salt->value_or(""), after->value_or("")};
  ask_engine(context, exchange,
             [from, most](const Exchange& asker, KvCache&, SessionTable& sessions) {
               Json list = Json::array();
               for (const auto& view : sessions.list(from, most)) {
                 list.push_back(session_json(view));
               }
               respond_json(asker, {{"sessions", std::move(list)}, {"total", sessions.size()}});
             });
}

Json stats_json(const engine::EngineStats& stats) {
  const cache::KvCacheStats& kv = stats.cache;
  Json sessions = Json::object();
  for (size_t i = 0; i < cache::kSessionStates.size(); ++i)
    sessions[cache::kSessionStates[i]] = stats.n_sessions[i];
  return {{"blocks",
           {{"all", kv.n_blocks},
            {"free", kv.n_free},
            {"cached", kv.n_cached},
            {"in_use", kv.n_in_use},
            {"promised", kv.n_promised}}},
          {"copies", {{"device", kv.n_on[0]}, {"host", kv.n_on[1]}, {"ssd", kv.n_on[2]}}},
          {"hit_tokens",
           {{"device", kv.n_hit_tokens},
            {"host", kv.n_restored_tokens[1]},
            {"ssd", kv.n_restored_tokens[2]}}},
          {"evicted_blocks", kv.n_evicted},
          {"decisions",
           {{"restore", kv.n_restore_all},
            {"recompute", kv.n_recompute_all},
            {"both", kv.n_restore_both}}},
          {"restores",
           {{"used", kv.n_restores_done},
            {"failed", kv.n_restores_failed},
            {"predicted_s", kv.predicted_s},
            {"actual_s", kv.actual_s}}},
          {"sessions", std::move(sessions)}};
}

}  // namespace

bool has_admin_key(const http::Request& request, std::string_view key) {
  if (key.empty()) return true;
  std::string_view given = request.header("authorization");
  constexpr std::string_view kScheme = "Bearer ";
  if (!given.starts_with(kScheme)) return false;
  given.remove_prefix(kScheme.size());
  // In the same time wherever they differ.
  unsigned differs = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i) {
    differs |= static_cast<unsigned char>(key[i] ^ (i < given.size() ? given[i] : '\0'));
  }
  return differs == 0;
}

void handle_kv_probe(Context& context, std::shared_ptr<http::Exchange> exchange) {
  explain(context, std::move(exchange), [](const cache::Explanation& found, size_t n_prompt) {
    return probe_json(found, n_prompt);
  });
}

std::shared_ptr<const http::Router> make_admin_router(Context& context, std::string key,
                                                      std::function<void()> drain) {
  auto router = std::make_shared<http::Router>();
  const auto add = [&](const char* method, std::string path, auto handler) {
    router->add(method, std::move(path), std::string_view(method) == "POST",
                [handler, key](Exchange exchange) {
                  if (has_admin_key(exchange->request(), key)) return handler(std::move(exchange));
                  respond_error(exchange,
                                absl::UnauthenticatedError(
                                    "this listener wants its key: Authorization: Bearer KEY"));
                });
  };
  add("GET", "/v1/kv/sessions", [&context](const Exchange& e) { list_sessions(context, e); });
  add("GET", "/v1/kv/sessions/*", [&context](const Exchange& e) { show_session(context, e); });
  add("POST", "/v1/kv/sessions/*",
      [&context](const Exchange& e) { change_session(context, e, false); });
  add("DELETE", "/v1/kv/sessions/*",
      [&context](const Exchange& e) { change_session(context, e, true); });
  add("POST", "/v1/kv/explain", [&context](Exchange e) {
    explain(context, std::move(e), [&context](const cache::Explanation& found, size_t n_prompt) {
      return explanation_json(context, found, n_prompt);
    });
  });
  add("GET", "/v1/kv/stats",
      [&context](const Exchange& e) { respond_json(e, stats_json(context.engine.stats())); });
  add("DELETE", "/v1/kv/salts", [&context](const Exchange& e) { drop_salt(context, e); });
  add("POST", "/v1/kv/reset", [&context](const Exchange& e) {
    ask_engine(context, e, [](const Exchange& asker, KvCache& cache, SessionTable&) {
      cache.reset();
      respond_json(asker, {{"reset", true}});
    });
  });
  add("POST", "/v1/drain", [drain = std::move(drain)](const Exchange& e) {
    respond_json(e, {{"draining", true}});
    drain();
  });
  return router;
}

}  // namespace pagoda::api
