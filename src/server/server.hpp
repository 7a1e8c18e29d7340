#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "viewer/answer.hpp"

namespace tenscope::server {

struct ServeOptions {
  std::string host = "127.0.0.1";          // an address, or a name of one, to listen on
  int port = 0;                            // 0: 8765 or one of the next, else any that is free
  std::size_t workers = 8;                 // so many answers are worked out at a time
  std::size_t most_connections = 256;      // beyond it, the oldest one that has shown no cookie is closed
  std::chrono::milliseconds idle{60'000};  // a connection that says nothing for so long is closed
};

// HTTP on a socket: who may read, the page's files, and what the handler answers to "/api/...".
class Server {
 public:
  // Called by several threads at a time. What it throws is answered with 500.
  using Handler = std::function<viewer::Answer(std::string_view target)>;

  // Listens from now on, and SIGINT and SIGTERM are its own. Throws Io where the port is taken or the address is none
  // of this machine.
  Server(Handler handler, const ServeOptions& options);
  // Waits for handlers that are at work.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const noexcept;
  bool is_loopback() const noexcept;
  const std::string& token() const noexcept;
  std::string url() const;  // with the token
  // An address that opens the page once, within a minute: for a command line, which others may see. Before run().
  std::string one_time_url();

  // Serves until stop() is called or one of these signals has come; does not wait for handlers that are at work.
  void run();
  void stop() noexcept;  // from any thread

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenscope::server
