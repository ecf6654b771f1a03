// Clients that are slow, that stop, that leave, and that are many: what they cost the others.
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <cstdio>
#include <memory>
#include <sstream>

#include "tests/unit/server/http/server_fixture.h"

namespace pagoda::http {
namespace {

class HttpClients : public HttpServer {
 protected:
  // The answer to a plain request on a connection of its own.
  bool others_are_served() {
    Client client(port());
    client.send(kGet);
    return client.read_until("hello");
  }
  bool all_returned() {
    return eventually([&] { return server_->n_busy() == 0 && admission_->n_admitted() == 0; });
  }
};

// A client that sends a byte now and then is told so once its time is over, however lively it is.
TEST_F(HttpClients, AHeadThatComesSlowlyIsEnded) {
  start({.header_timeout = milliseconds(300)});
  const std::string head = "GET /hello HTTP/1.1\r\nHost: x\r\nX-Long: ";
  Client client(port());
  size_t n_sent = 0;
  while (!client.read_until("}", milliseconds(2)) && n_sent < 5000) {
    if (!client.send(n_sent < head.size() ? head.substr(n_sent, 1) : "a")) break;
    ++n_sent;
  }
  client.read_to_end();
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 408 ")) << client.received();
  EXPECT_NE(client.received().find("Connection: close\r\n"), std::string::npos);
  EXPECT_LT(n_sent, 5000U);
  EXPECT_TRUE(others_are_served());
  EXPECT_TRUE(all_returned());
}

TEST_F(HttpClients, ABodyThatComesSlowlyIsEnded) {
  start({.body_timeout = milliseconds(300)});
  for (const char* framing : {"Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"}) {
    Client client(port());
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\n" + std::string(framing) + "\r\n");
    if (framing[0] == 'T') client.send("ffff\r\n");
    size_t n_sent = 0;
    while (!client.read_until("}", milliseconds(2)) && n_sent < 5000) {
      if (!client.send("a")) break;
      ++n_sent;
    }
    client.read_to_end();
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 408 ")) << client.received();
    EXPECT_LT(n_sent, 5000U);
  }
  EXPECT_TRUE(others_are_served());
  EXPECT_TRUE(all_returned());
}

// Bytes that come one by one, each before the time that is left is over.
TEST_F(HttpClients, ABodyThatTricklesFastIsEndedToo) {
  start({.body_timeout = milliseconds(200)});
  Client client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  auto next = std::chrono::steady_clock::now();
  size_t n_sent = 0;
  while (n_sent < 100'000 && client.send("a")) {
    ++n_sent;
    next += std::chrono::microseconds(200);
    while (std::chrono::steady_clock::now() < next) {
    }
    if (n_sent % 100 == 0 && client.read_until("}", milliseconds(1))) break;
  }
  client.read_to_end();
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 408 ")) << client.received();
  client.close();
  EXPECT_TRUE(all_returned());
}

// What is read ahead stays within its bound however many requests stand behind the one in hand.
TEST_F(HttpClients, APipelineLongerThanWhatIsReadAheadIsServed) {
  // What is thrown inside is caught and only logged.
  std::ostringstream log;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  start({}, 2000);
  Client client(port());
  const std::string body(1000, 'x');
  constexpr int kRequests = 200;  // some 200 KiB
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += post("/held", body);
  std::thread sending([&] { client.send(all); });
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(wait_held(i + 1));
    held(static_cast<size_t>(i)).respond({200, "text/plain", "done", {}});
  }
  sending.join();
  ASSERT_TRUE(eventually([&] {
    client.read_until("never", milliseconds(1));
    return count(client.received(), "\r\n\r\ndone") == kRequests;
  }));
  server_->stop();
  spdlog::set_default_logger(logger);
  EXPECT_TRUE(log.str().empty()) << log.str().substr(0, 200);
}

TEST_F(HttpClients, ManySlowHeadsHinderNobody) {
  start({}, 1);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(std::make_unique<Client>(port()));
    slow.back()->send("POST /echo HTTP/1.1\r\nHo");
  }
  // They hold no place at the door either.
  for (int i = 0; i < 20; ++i) {
    Client client(port());
    client.send(post("/echo", "served"));
    ASSERT_TRUE(client.read_until("\r\n\r\nserved"));
    for (const auto& each : slow) each->send("s");
    client.close();
    ASSERT_TRUE(all_returned());
  }
}

TEST_F(HttpClients, ARefusedBodyThatNeverComesIsEnded) {
  start({.body_timeout = milliseconds(200)});
  Client client(port());
  client.send("POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_TRUE(client.read_to_end());
  EXPECT_TRUE(client.received().starts_with("HTTP/1.1 404 "));
}

TEST_F(HttpClients, AHalfClosedClientOfHttp10GetsItsStream) {
  start();
  Client client(port());
  client.send("POST /held HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  client.finish_sending();
  ASSERT_TRUE(client.read_until("\r\n\r\n: ping\n\n"));  // the probe, without chunks
  held(0).send("data: 1\n\n");
  held(0).end_stream();
  ASSERT_TRUE(client.read_to_end());
  EXPECT_TRUE(client.received().ends_with("data: 1\n\n"));
  EXPECT_EQ(n_gone_.load(), 0);
}

TEST_F(HttpClients, AClientOfHttp10ThatClosesItsStreamIsNoticed) {
  start();
  Client client(port());
  client.send("POST /held HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  client.close();
  EXPECT_TRUE(eventually([&] { return n_gone_.load() == 1; }));
}

// The whole of a half-closed client's pipelined requests is answered.
TEST_F(HttpClients, AHalfClosedClientGetsItsPipelinedAnswers) {
  start();
  Client client(port());
  std::string all;
  for (int i = 0; i < 20; ++i) all += post("/echo", "<" + std::to_string(i) + ">");
  client.send(all);
  client.finish_sending();
  ASSERT_TRUE(client.read_to_end());
  EXPECT_EQ(count(client.received(), "HTTP/1.1 200 OK\r\n"), 20U);
  EXPECT_TRUE(client.received().ends_with("<19>"));
}

// What the system holds for a reader that has stopped is bounded, so a stream of some hundred KiB
// is enough to tell; and another stream of the same server runs on.
TEST_F(HttpClients, AReaderThatStopsIsDroppedWhileOthersRunOn) {
  start({.send_buffer_bytes = 64 << 10, .write_timeout = milliseconds(300)});
  Client stopped(port(), 4096);
  stopped.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  Client reader(port());
  reader.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(2));
  for (size_t i = 0; i < 2; ++i) held(i).begin_stream({200, "text/event-stream", "", {}});
  const std::string event(1000, 'x');
  std::atomic<bool> is_over{false};
  std::thread reading([&] {
    while (!is_over.load()) reader.read_until("never", milliseconds(20));
  });
  for (int i = 0; i < 600; ++i) {
    held(0).send(event);
    held(1).send(event);
  }
  EXPECT_TRUE(eventually([&] { return held(0).client_gone(); }));
  EXPECT_FALSE(held(1).client_gone());
  held(1).end_stream();
  is_over.store(true);
  reading.join();
  EXPECT_TRUE(reader.read_until("\r\n0\r\n\r\n"));
  EXPECT_EQ(count(reader.received(), event), 600U);
  EXPECT_EQ(n_gone_.load(), 1);
}

// send() returns at once however little is taken, and what is held for one client has a bound.
TEST_F(HttpClients, AReaderThatStopsNeverHoldsTheSender) {
  start({.max_pending_bytes = 64 << 10});
  Client stopped(port(), 4096);
  stopped.send(post("/held", "{}"));
  ASSERT_TRUE(wait_held(1));
  held(0).begin_stream({200, "text/event-stream", "", {}});
  size_t n_sent = 0;
  while (!held(0).client_gone() && n_sent < 100'000) {
    held(0).send(std::string(1000, 'x'));
    ++n_sent;
    if (n_sent % 100 != 0) continue;
    EXPECT_TRUE(others_are_served());  // and so the listener has caught up
  }
  EXPECT_LT(n_sent, 10'000U);
  EXPECT_EQ(n_gone_.load(), 1);
}

TEST_F(HttpClients, ManyIdleConnections) {
  constexpr int kMany = 500;
  start();
  raise_descriptor_limit();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < kMany; ++i) {
    idle.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(idle.back()->connected());
    idle.back()->send(kGet);
  }
  for (const auto& client : idle) ASSERT_TRUE(client->read_until("hello"));
  EXPECT_EQ(server_->n_connections(), kMany);
  EXPECT_TRUE(eventually([&] { return server_->n_busy() == 0; }));
  EXPECT_TRUE(others_are_served());
  for (const auto& client : idle) {  // each is still there
    client->forget();
    client->send(post("/echo", "still"));
    ASSERT_TRUE(client->read_until("still"));
  }
  idle.clear();
  EXPECT_TRUE(eventually([&] { return server_->n_connections() == 0; }));
}

TEST_F(HttpClients, ManyStreamsAreNotMixedUp) {
  constexpr size_t kMany = 200;
  start({}, kMany);
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kMany; ++i) {
    clients.push_back(std::make_unique<Client>(port()));
    clients.back()->send(post("/held", "<" + std::to_string(i) + ">"));
  }
  ASSERT_TRUE(wait_held(kMany));
  std::vector<std::thread> senders;
  for (size_t t = 0; t < 2; ++t) {
    senders.emplace_back([this, t] {
      for (size_t i = t; i < kMany; i += 2) {
        held(i).begin_stream({200, "text/event-stream", "", {}});
      }
      for (int round = 0; round < 10; ++round) {
        for (size_t i = t; i < kMany; i += 2) held(i).send(held(i).request().body);
      }
      for (size_t i = t; i < kMany; i += 2) held(i).end_stream();
    });
  }
  for (std::thread& sender : senders) sender.join();
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_TRUE(clients[i]->read_until("\r\n0\r\n\r\n"));
    EXPECT_EQ(count(clients[i]->received(), "<" + std::to_string(i) + ">"), 10U);
    EXPECT_EQ(count(clients[i]->received(), "<"), 10U);
  }
  held_.clear();
  EXPECT_TRUE(all_returned());
}

// Where descriptors run out the listener waits and goes on when there are some again.
TEST_F(HttpClients, RunningOutOfDescriptorsIsSurvived) {
  start();
  ASSERT_TRUE(others_are_served());
  Client waiting(port());
  ASSERT_TRUE(eventually([&] { return server_->n_connections() == 1; }));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<std::FILE*> files;
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  while (std::FILE* file = std::fopen("/dev/null", "r")) files.push_back(file);
  std::fclose(files.back());
  files.pop_back();
  Client refused(port());  // has the last descriptor; there is none to accept it with
  refused.send(kGet);
  waiting.send(kGet);  // connections that are there are served
  EXPECT_TRUE(waiting.read_until("hello"));
  EXPECT_EQ(server_->n_connections(), 1);
  for (std::FILE* file : files) std::fclose(file);
  EXPECT_TRUE(refused.read_until("hello"));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Descriptors, TellHowManyConnectionsThereMayBe) {
  EXPECT_EQ(connections_within(1'000'000, 12'000), 12'000);
  EXPECT_EQ(connections_within(0, 12'000), 12'000);  // unknown
  EXPECT_LT(connections_within(1024, 12'000), 1024);
  EXPECT_GT(connections_within(1024, 12'000), 800);
  EXPECT_EQ(connections_within(10, 12'000), 1);
  rlimit limit{};
  EXPECT_GT(raise_descriptor_limit(), 0);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

}  // namespace
}  // namespace pagoda::http
