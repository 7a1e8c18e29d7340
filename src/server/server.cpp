#include "server/server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <list>
#include <optional>
#include <utility>

#include "core/json_writer.hpp"
#include "server/gate.hpp"
#include "tenscope/error.hpp"
#include "viewer/assets.hpp"

// One thread, that of run(), does all that is to be done with sockets, so that nothing there needs a lock. Answers of
// the handler are worked out by a pool of threads: a slow one holds up no other connection. The requests of one
// connection are answered one after the other.
namespace tenscope::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using viewer::Answer;

constexpr int kFirstPort = 8765, kLastPort = 8784;
constexpr std::uint32_t kMostHeaderBytes = 16 * 1024;
constexpr std::size_t kBufferBytes = 64 * 1024;
constexpr std::chrono::seconds kLinger{2};
constexpr std::size_t kSlowestBytesPerSecond = 16 * 1024;

constexpr std::string_view kSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr std::string_view kPlainText = "text/plain; charset=utf-8";

// beast has a string_view of its own.
std::string_view standard(beast::string_view text) { return {text.data(), text.size()}; }

Answer error_answer(int status, std::string_view target, std::string_view sentence) {
  Answer answer{.status = status};
  if (target.starts_with("/api/")) {
    JsonWriter(answer.body).begin_object().key("error").text(sentence).end_object();
  } else {
    answer.type = kPlainText;
    answer.body = fmt::format("{}\n", sentence);
  }
  return answer;
}

bool is_api(std::string_view path) {
  constexpr std::string_view kPrefix = "/api/";
  return path.starts_with(kPrefix) && path.size() > kPrefix.size() &&
         std::all_of(path.begin() + kPrefix.size(), path.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// What is there without the handler.
Answer file_answer(std::string_view target) {
  const std::string_view path = path_of(target);
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(viewer::page_html())};
  if (path == "/viewer.js")
    return {.type = "text/javascript; charset=utf-8", .body = std::string(viewer::page_script())};
  if (path == "/viewer.css") return {.type = "text/css; charset=utf-8", .body = std::string(viewer::page_style())};
  if (path == "/favicon.ico") return {.status = 204, .type = ""};
  return error_answer(404, target, "There is nothing here.");
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "127.0.0.1";
}

class Session;

}  // namespace

struct Server::Impl {
  Impl(Handler given_handler, const ServeOptions& given_options)
      : handler(std::move(given_handler)),
        options(given_options),
        gate(options.host),
        acceptor(io),
        signals(io),
        pause(io),
        workers(std::max<std::size_t>(options.workers, 1)) {}
  ~Impl() {
    workers.stop();
    workers.join();
  }

  void listen();
  void accept();
  void make_room();
  Answer ask(std::string_view target) const noexcept;

  const Handler handler;
  const ServeOptions options;
  Gate gate;
  std::list<Session*> sessions;  // the oldest first
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer pause;
  asio::thread_pool workers;
};

namespace {

// One connection. It lives for as long as something is to be done for it.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Server::Impl& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket)), place_(server.sessions.insert(server.sessions.end(), this)) {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
  }
  ~Session() { server_.sessions.erase(place_); }

  bool is_known() const noexcept { return is_known_; }
  void close() { stream_.close(); }

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    stream_.expires_after(server_.options.idle);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) { self->handle_read(error); });
  }

 private:
  using Request = http::request<http::empty_body>;
  using Response = http::response<http::string_body>;

  void handle_read(error_code error) {
    if (!error) return handle(parser_->get());
    keeps_alive_ = false;
    is_head_ = false;
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      send(error_answer(431, "", "The header of the request is too long."));
    else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
             error != http::error::end_of_stream && error != http::error::partial_message)
      send(error_answer(400, "", "This is no request of HTTP."));
  }

  void handle(const Request& request) {
    keeps_alive_ = request.keep_alive();
    is_head_ = request.method() == http::verb::head;
    const std::string_view target = standard(request.target());
    if (!is_head_ && request.method() != http::verb::get) return refuse(405, target, "Only GET and HEAD are answered.");
    if (parser_->chunked() || parser_->content_length().value_or(0) > 0)
      return refuse(400, target, "A request has no body here.");
    if (!target.starts_with('/') || request.count(http::field::host) > 1)
      return refuse(400, "", "This is no request for this server.");

    const auto field = [&](beast::string_view name) { return standard(request[name]); };
    const Visit visit{.target = target,
                      .host = field("Host"),
                      .origin = field("Origin"),
                      .cookies = field("Cookie"),
                      .fetch_site = field("Sec-Fetch-Site"),
                      .fetch_mode = field("Sec-Fetch-Mode"),
                      .fetch_dest = field("Sec-Fetch-Dest")};
    switch (server_.gate.judge(visit)) {
      case Passage::Foreign:
        return refuse(403, target,
                      "This address, or the page that asks, is not one that tenscope view answers to: open the address "
                      "that it printed.");
      case Passage::Unknown:
        return refuse(403, target,
                      "Open the address that tenscope view printed, the one with the token: it lets this browser in.");
      case Passage::Redirect:
        return send({.status = 303, .type = std::string(kPlainText)}, server_.gate.cookie_for(visit));
      case Passage::Forward:
        return send({.type = "text/html; charset=utf-8",
                     .body = "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=/\"><title>tenscope</title>"
                             "<a href=\"/\">Go on</a>\n"},
                    server_.gate.cookie_for(visit));
      case Passage::Allowed:
        break;
    }
    is_known_ = true;
    is_api(path_of(target)) ? ask(std::string(target)) : send(file_answer(target));
  }

  void refuse(int status, std::string_view target, std::string_view sentence) {
    if (status != 403) keeps_alive_ = false;
    send(error_answer(status, target, sentence));
  }

  // Has a worker ask the handler, unless the browser has gone in the meantime: pages drop requests that they no longer
  // need.
  void ask(std::string target) {
    stream_.expires_never();
    const int fd = stream_.socket().native_handle();
    asio::post(server_.workers, [self = shared_from_this(), target = std::move(target), fd]() mutable {
      char next = 0;
      const bool is_gone = ::recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
      Answer answer = is_gone ? Answer{} : self->server_.ask(target);
      asio::io_context& io = self->server_.io;
      asio::post(io, [self = std::move(self), answer = std::move(answer), is_gone]() mutable {
        if (!is_gone) self->send(std::move(answer));
      });
    });
  }

  void send(Answer answer, const std::string& cookie = {}) {
    Response& response = response_.emplace(static_cast<http::status>(answer.status), parser_->get().version());
    response.set(http::field::cache_control, answer.is_final ? "private, max-age=3600" : "no-store");
    // What the next server at this address has to say is something else: it has another cookie.
    if (answer.is_final) response.set(http::field::vary, "Cookie");
    response.set("Content-Security-Policy", kSecurityPolicy);
    response.set("X-Content-Type-Options", "nosniff");
    response.set("Referrer-Policy", "no-referrer");
    response.set("Cross-Origin-Opener-Policy", "same-origin");
    response.set("Cross-Origin-Resource-Policy", "same-origin");
    if (!answer.type.empty()) response.set(http::field::content_type, answer.type);
    if (!cookie.empty()) response.set(http::field::set_cookie, cookie);
    if (answer.status == 303) response.set(http::field::location, "/");
    if (answer.status == 405) response.set(http::field::allow, "GET, HEAD");
    response.body() = std::move(answer.body);
    response.prepare_payload();
    response.keep_alive(keeps_alive_);
    stream_.expires_after(server_.options.idle + std::chrono::seconds(response.body().size() / kSlowestBytesPerSecond));
    serializer_.emplace(response);
    const auto done = [self = shared_from_this()](error_code error, std::size_t) { self->handle_written(error); };
    is_head_ ? http::async_write_header(stream_, *serializer_, done) : http::async_write(stream_, *serializer_, done);
  }

  void handle_written(error_code error) {
    serializer_.reset();
    response_.reset();
    if (error) return;
    if (keeps_alive_) return read();
    stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    stream_.expires_after(kLinger);
    drain();
  }

  // What the client still sends is read and dropped: were the socket closed with it, the answer could be lost.
  void drain() {
    stream_.async_read_some(asio::buffer(rest_), [self = shared_from_this()](error_code error, std::size_t) {
      if (!error) self->drain();
    });
  }

  Server::Impl& server_;
  beast::tcp_stream stream_;
  std::list<Session*>::iterator place_;
  beast::flat_buffer buffer_{kBufferBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<Response> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::array<char, 4096> rest_;
  bool is_known_ = false;  // has shown the cookie
  bool keeps_alive_ = false;
  bool is_head_ = false;
};

}  // namespace

void Server::Impl::listen() {
  error_code error;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, "", tcp::resolver::passive, error);
  if (error || found.empty())
    throw Error(ErrorCode::Io, fmt::format("cannot listen on '{}': {}", options.host, error.message()));
  const asio::ip::address address = found.begin()->endpoint().address();
  std::vector<int> ports{options.port};
  if (options.port == 0) {
    ports.clear();
    for (int port = kFirstPort; port <= kLastPort; ++port) ports.push_back(port);
    ports.push_back(0);
  }
  for (const int port : ports) {
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
    acceptor.close(error);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error != asio::error::address_in_use) break;
  }
  if (error)
    throw Error(ErrorCode::Io,
                fmt::format("cannot listen on port {} of {}: {}{}", options.port, options.host, error.message(),
                            error == asio::error::address_in_use ? " (without --port a free one is found)" : ""));
}

void Server::Impl::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {  // no file descriptor is left, say: it may be there later
      pause.expires_after(std::chrono::milliseconds(100));
      pause.async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    if (sessions.size() >= options.most_connections) make_room();
    if (sessions.size() < options.most_connections + 16) std::make_shared<Session>(*this, std::move(socket))->read();
    accept();
  });
}

// Closes the oldest connection that has not shown the cookie. It goes once its last handler has been told.
void Server::Impl::make_room() {
  const auto oldest = std::ranges::find_if(sessions, [](const Session* session) { return !session->is_known(); });
  if (oldest != sessions.end()) (*oldest)->close();
}

Answer Server::Impl::ask(std::string_view target) const noexcept {
  try {
    return handler(target);
  } catch (const std::exception& error) {
    return error_answer(500, target, error.what());
  } catch (...) {
    return error_answer(500, target, "An unknown error.");
  }
}

Server::Server(Handler handler, const ServeOptions& options)
    : impl_(std::make_unique<Impl>(std::move(handler), options)) {
  impl_->listen();
  // One that comes before run() is kept for it.
  error_code ignored;
  for (const int signal : {SIGINT, SIGTERM}) impl_->signals.add(signal, ignored);
}

Server::~Server() = default;

int Server::port() const noexcept {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

bool Server::is_loopback() const noexcept {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).address().is_loopback();
}

const std::string& Server::token() const noexcept { return impl_->gate.token(); }

namespace {

std::string address_text(const std::string& host, const tcp::endpoint& endpoint) {
  if (endpoint.address().is_unspecified()) return fmt::format("{}:{}", host_name(), endpoint.port());
  const bool needs_brackets = host.find(':') != host.npos && !host.starts_with('[');
  return fmt::format("{}{}{}:{}", needs_brackets ? "[" : "", host, needs_brackets ? "]" : "", endpoint.port());
}

}  // namespace

std::string Server::url() const {
  return fmt::format("http://{}/?token={}", address_text(impl_->options.host, impl_->acceptor.local_endpoint()),
                     token());
}

std::string Server::one_time_url() {
  return fmt::format("http://{}/?token={}", address_text(impl_->options.host, impl_->acceptor.local_endpoint()),
                     impl_->gate.one_time_token());
}

void Server::run() {
  impl_->signals.async_wait([this](error_code error, int) {
    if (!error) stop();
  });
  impl_->accept();
  while (!impl_->io.stopped()) {
    try {
      impl_->io.run();
    } catch (const std::exception&) {  // no memory for one of the connections: the others go on
    }
  }
  error_code ignored;
  impl_->signals.clear(ignored);
}

void Server::stop() noexcept { impl_->io.stop(); }

}  // namespace tenscope::server
