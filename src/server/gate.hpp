#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenscope::server {

// 128 bits of the system's random source, in hexadecimal digits. Throws Io.
std::string random_secret();

// Compares in a time that does not tell where two texts of one length differ.
bool is_same_secret(std::string_view given, std::string_view right) noexcept;

// "localhost:8765", "[::1]:8765": the host in small letters, with its brackets, and the port, empty where none is
// given.
struct Authority {
  std::string host;
  std::string port;
  bool operator==(const Authority&) const = default;
};
std::optional<Authority> parse_authority(std::string_view text);

// The values that a Cookie header gives a name: usually none or one.
std::vector<std::string_view> cookie_values(std::string_view header, std::string_view name);

// The value of a parameter of "/path?name=value&...", as it stands there.
std::optional<std::string_view> query_value(std::string_view target, std::string_view name);
std::string_view path_of(std::string_view target);

// What a request says about where it comes from; empty where it does not say.
struct Visit {
  std::string_view target;
  std::string_view host, origin, cookies;
  std::string_view fetch_site, fetch_mode, fetch_dest;  // Sec-Fetch-...
};

enum class Passage {
  Allowed,
  Redirect,  // the token was right: send the visitor to the address without it, with the cookie
  Forward,   // the same for a visitor who comes from a page of another site: a browser would not take the cookie along
             // with a redirect, but does so from a page that is ours
  Unknown,   // no cookie, or a wrong token
  Foreign,   // a Host that is none of ours, or a page of another origin
};

// Decides who may read (docs/viewer.md). Not for several threads at a time.
class Gate {
 public:
  // `host` is what the server listens on: an address or a name. Loopback names are always ours.
  explicit Gate(std::string_view host);

  const std::string& token() const noexcept { return token_; }
  // A token that works once and soon: for a command line, which other users of the machine may see.
  std::string one_time_token();

  Passage judge(const Visit& visit);
  // The Set-Cookie for a visit whose token was right.
  std::string cookie_for(const Visit& visit) const;

 private:
  using Clock = std::chrono::steady_clock;

  bool is_ours(const Authority& authority) const;
  bool has_cookie(const Visit& visit, const Authority& authority) const;
  bool takes_token(std::string_view token);

  std::string token_ = random_secret();
  std::string cookie_ = random_secret();
  std::vector<std::string> hosts_;
  bool is_any_address_ = false;  // it listens on all: whoever names an address has not been misled by a name
  std::map<std::string, Clock::time_point> tickets_;  // tokens that work once, and until when
};

}  // namespace tenscope::server
