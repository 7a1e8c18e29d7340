#include "server/server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tenscope/error.hpp"

namespace tenscope::server {
namespace {

using namespace std::chrono_literals;

struct Client {
  explicit Client(int port) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(fd); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view text) const { ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }
  bool receive() {
    char bytes[4096];
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got > 0) pending.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  }
  // One response, head and body; empty where the connection was closed instead.
  std::string response(bool has_body = true) {
    std::size_t end = 0;
    while ((end = pending.find("\r\n\r\n")) == pending.npos)
      if (!receive()) return {};
    end += 4;
    const std::size_t length = pending.find("Content-Length: ");
    if (has_body && length < end) end += std::stoul(pending.substr(length + 16));
    while (pending.size() < end)
      if (!receive()) return {};
    std::string text = pending.substr(0, end);
    pending.erase(0, end);
    return text;
  }

  int fd;
  std::string pending;
};

class ServerTest : public testing::Test {
 protected:
  void start(Server::Handler handler, ServeOptions options = {}) {
    server.emplace(std::move(handler), options);
    thread = std::thread([this] { server->run(); });
    Client client(server->port());
    client.send(fmt::format("GET /?token={} HTTP/1.1\r\nHost: localhost:1\r\n\r\n", server->token()));
    const std::string text = client.response();
    const std::size_t at = text.find("Set-Cookie: ") + 12;
    cookie = text.substr(at, text.find(';', at) - at);
  }
  void TearDown() override {
    if (!server) return;
    server->stop();
    thread.join();
    server.reset();
  }
  std::string request(std::string_view target, std::string_view method = "GET") const {
    return fmt::format("{} {} HTTP/1.1\r\nHost: localhost:1\r\nCookie: {}\r\n\r\n", method, target, cookie);
  }
  std::string ask(std::string_view target) const {
    Client client(server->port());
    client.send(request(target));
    return client.response();
  }

  std::optional<Server> server;
  std::thread thread;
  std::string cookie;
};

viewer::Answer echo(std::string_view target) { return {.body = std::string(target)}; }

TEST_F(ServerTest, HandsTargetsOnAndAnswersInOrder) {
  start(echo);
  Client client(server->port());
  client.send(request("/api/tile?event=1") + request("/api/tile?event=2") + request("/viewer.css") +
              request("/api/tile?slice=0%2C%3A"));
  EXPECT_TRUE(client.response().ends_with("\r\n\r\n/api/tile?event=1"));
  EXPECT_TRUE(client.response().ends_with("\r\n\r\n/api/tile?event=2"));
  EXPECT_NE(client.response().find("Content-Type: text/css"), std::string::npos);
  EXPECT_TRUE(client.response().ends_with("\r\n\r\n/api/tile?slice=0%2C%3A"));
}

TEST_F(ServerTest, TheHandlerIsAskedForNothingButNamesBelowApi) {
  std::atomic<int> asked = 0;
  start([&](std::string_view target) {
    ++asked;
    return echo(target);
  });
  for (const char* target : {"/api", "/api/", "/api/../x", "/api/a/b", "/api/%74ile", "/api//tile", "/api/TILE", "/x",
                             "//api/tile", "/../etc/passwd", "/viewer.js/", "/index.html"})
    EXPECT_TRUE(ask(target).starts_with("HTTP/1.1 404 ")) << target;
  EXPECT_EQ(asked, 0);
  EXPECT_TRUE(ask("/api/tile").starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(asked, 1);
}

TEST_F(ServerTest, AFailingHandlerIsAnAnswer) {
  start([](std::string_view target) -> viewer::Answer {
    if (target == "/api/one") throw std::runtime_error("a \"quoted\" reason");
    throw 1;
  });
  const std::string one = ask("/api/one"), other = ask("/api/other");
  EXPECT_TRUE(one.starts_with("HTTP/1.1 500 "));
  EXPECT_TRUE(one.ends_with(R"({"error":"a \"quoted\" reason"})")) << one;
  EXPECT_TRUE(other.starts_with("HTTP/1.1 500 "));
}

TEST_F(ServerTest, OnlyFinalAnswersAreKeptByTheBrowser) {
  start([](std::string_view target) { return viewer::Answer{.body = "x", .is_final = target == "/api/final"}; });
  const std::string last = ask("/api/final"), live = ask("/api/live");
  EXPECT_NE(last.find("Cache-Control: private, max-age=3600\r\n"), std::string::npos);
  EXPECT_NE(last.find("Vary: Cookie\r\n"), std::string::npos);
  EXPECT_NE(live.find("Cache-Control: no-store\r\n"), std::string::npos);
  EXPECT_NE(ask("/").find("Cache-Control: no-store\r\n"), std::string::npos);
}

TEST_F(ServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  start(echo);
  Client client(server->port());
  client.send(request("/api/tile", "HEAD") + request("/api/tile"));
  const std::string head = client.response(false), get = client.response();
  EXPECT_EQ(head + "/api/tile", get);
}

TEST_F(ServerTest, ASlowAnswerHoldsUpNoOther) {
  std::latch slow_ones(3), go(1);
  start([&](std::string_view target) {
    if (target == "/api/slow") {
      slow_ones.count_down();
      go.wait();
    }
    return echo(target);
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->send(request("/api/slow"));
  }
  slow_ones.wait();
  EXPECT_TRUE(ask("/api/quick").ends_with("/api/quick"));
  EXPECT_TRUE(ask("/").starts_with("HTTP/1.1 200 "));
  go.count_down();
  for (const auto& client : clients) EXPECT_TRUE(client->response().ends_with("/api/slow"));
}

TEST_F(ServerTest, WhatNobodyWaitsForIsNotWorkedOut) {
  std::latch busy(1), go(1);
  std::atomic<int> stale = 0;
  start(
      [&](std::string_view target) {
        if (target == "/api/slow") {
          busy.count_down();
          go.wait();
        }
        if (target == "/api/stale") ++stale;
        return echo(target);
      },
      {.workers = 1});
  Client slow(server->port());
  slow.send(request("/api/slow"));
  busy.wait();
  for (int i = 0; i < 20; ++i) Client(server->port()).send(request("/api/stale"));
  Client patient(server->port());
  patient.send(request("/api/stale") + request("/api/last"));
  std::this_thread::sleep_for(200ms);
  go.count_down();
  EXPECT_TRUE(slow.response().ends_with("/api/slow"));
  EXPECT_TRUE(patient.response().ends_with("/api/stale"));
  EXPECT_TRUE(patient.response().ends_with("/api/last"));
  EXPECT_EQ(stale, 1);
}

TEST_F(ServerTest, IdleConnectionsAreClosed) {
  start(echo, {.idle = 300ms});
  Client silent(server->port()), slow(server->port()), used(server->port());
  slow.send("GET / HT");
  used.send(request("/api/tile"));
  EXPECT_FALSE(used.response().empty());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(silent.response(), "");
  EXPECT_EQ(slow.response(), "");
  EXPECT_EQ(used.response(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST_F(ServerTest, ARequestThatTricklesInIsCutOff) {
  start(echo, {.idle = 300ms});
  Client slow(server->port());
  std::atomic<bool> is_over = false;
  std::thread drip([&] {
    slow.send("GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 250 && !is_over; ++i) {
      slow.send("a");
      std::this_thread::sleep_for(20ms);
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(slow.response(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s) << "each byte has bought it more time";
  is_over = true;
  drip.join();
}

TEST_F(ServerTest, StrangersCannotUseUpTheConnections) {
  start(echo, {.most_connections = 8});
  Client known(server->port());
  known.send(request("/api/first"));
  EXPECT_FALSE(known.response().empty());
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<Client>(server->port()));
  EXPECT_TRUE(ask("/api/tile").ends_with("/api/tile"));
  known.send(request("/api/second"));
  EXPECT_TRUE(known.response().ends_with("/api/second"));
  EXPECT_EQ(strangers.front()->response(), "") << "the oldest was to be closed";
}

TEST_F(ServerTest, LargeAnswersArriveWhole) {
  std::string large(20'000'000, 'x');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761U >> 24);
  start([&](std::string_view) { return viewer::Answer{.type = "application/octet-stream", .body = large}; });
  const std::string text = ask("/api/tile");
  EXPECT_TRUE(std::string_view(text).ends_with(large));
}

TEST_F(ServerTest, EndsAtOnceWithOpenConnections) {
  std::latch busy(1), go(1);
  start([&](std::string_view target) {
    busy.count_down();
    go.wait();
    return echo(target);
  });
  Client silent(server->port()), waiting(server->port());
  waiting.send(request("/api/slow"));
  busy.wait();
  server->stop();
  thread.join();
  go.count_down();
  server.reset();
  EXPECT_EQ(silent.response(), "");
  EXPECT_EQ(waiting.response(), "");
}

TEST(Server, APortThatIsTakenIsAnErrorAndWithoutOneAnotherIsFound) {
  const Server first(echo, {});
  const Server second(echo, {});
  EXPECT_NE(first.port(), second.port());
  EXPECT_TRUE(first.is_loopback());
  EXPECT_EQ(first.url(), fmt::format("http://127.0.0.1:{}/?token={}", first.port(), first.token()));
  EXPECT_THROW(Server(echo, {.port = first.port()}), Error);
  EXPECT_THROW(Server(echo, {.host = "192.0.2.1"}), Error);
  EXPECT_THROW(Server(echo, {.host = "no such name"}), Error);
}

}  // namespace
}  // namespace tenscope::server
