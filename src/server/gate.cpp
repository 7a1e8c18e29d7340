#include "server/gate.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tenscope/error.hpp"

namespace tenscope::server {
namespace {

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return small;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_host_character(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '_'; }
bool is_address_character(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || c == ':' || c == '.'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  if (host.starts_with('[')) return ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), bytes.data()) == 1;
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1;
}

}  // namespace

std::string random_secret() {
  std::array<unsigned char, 16> bytes;
  ssize_t got = 0;
  do {
    got = ::getrandom(bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size()))
    throw Error(ErrorCode::Io, fmt::format("cannot make a token: the system gives no random numbers: {}",
                                           std::strerror(got < 0 ? errno : EIO)));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool is_same_secret(std::string_view given, std::string_view right) noexcept {
  if (given.size() != right.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < right.size(); ++i)
    difference = static_cast<unsigned char>(difference | (given[i] ^ right[i]));
  return difference == 0;
}

std::optional<Authority> parse_authority(std::string_view text) {
  const std::string small = in_small_letters(text);
  const std::string_view all = small;
  std::size_t end = 0;
  if (all.starts_with('[')) {
    end = all.find(']');
    if (end == all.npos || end == 1 || !std::ranges::all_of(all.substr(1, end - 1), is_address_character))
      return std::nullopt;
    ++end;
  } else {
    end = std::min(all.find(':'), all.size());
    if (end == 0 || !std::ranges::all_of(all.substr(0, end), is_host_character)) return std::nullopt;
  }
  Authority authority{std::string(all.substr(0, end)), {}};
  if (end == all.size()) return authority;
  authority.port = all.substr(end + 1);
  if (all[end] != ':' || authority.port.empty() || authority.port.size() > 5 ||
      !std::ranges::all_of(authority.port, is_digit))
    return std::nullopt;
  return authority;
}

std::vector<std::string_view> cookie_values(std::string_view header, std::string_view name) {
  std::vector<std::string_view> values;
  while (!header.empty()) {
    const std::size_t end = std::min(header.find(';'), header.size());
    const std::string_view pair = trimmed(header.substr(0, end));
    const std::size_t equals = pair.find('=');
    if (equals != pair.npos && pair.substr(0, equals) == name) values.push_back(pair.substr(equals + 1));
    header.remove_prefix(std::min(end + 1, header.size()));
  }
  return values;
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

std::optional<std::string_view> query_value(std::string_view target, std::string_view name) {
  const std::size_t question = target.find('?');
  if (question == target.npos) return std::nullopt;
  std::string_view query = target.substr(question + 1);
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) return pair.substr(std::min(equals + 1, pair.size()));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return std::nullopt;
}

Gate::Gate(std::string_view host) : hosts_{"127.0.0.1", "localhost", "[::1]"} {
  const std::string small = in_small_letters(host);
  hosts_.push_back(small.find(':') != small.npos && !small.starts_with('[') ? "[" + small + "]" : small);
  is_any_address_ = small == "0.0.0.0" || small == "::" || small == "[::]";
  if (!is_any_address_) return;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) hosts_.push_back(in_small_letters(name.data()));
}

std::string Gate::one_time_token() {
  constexpr std::chrono::minutes kLifetime{1};
  std::string token = random_secret();
  tickets_.emplace(token, Clock::now() + kLifetime);
  return token;
}

bool Gate::is_ours(const Authority& authority) const {
  return std::ranges::find(hosts_, authority.host) != hosts_.end() || (is_any_address_ && is_address(authority.host));
}

namespace {

// Cookies are shared by all ports of a host, so that the name has the port: the one that the browser sees, which is
// another than ours where a tunnel leads here.
std::string cookie_name(const Authority& authority) {
  return "tenscope_" + (authority.port.empty() ? std::string("80") : authority.port);
}

}  // namespace

bool Gate::has_cookie(const Visit& visit, const Authority& authority) const {
  bool is_right = false;
  for (const std::string_view value : cookie_values(visit.cookies, cookie_name(authority)))
    is_right |= is_same_secret(value, cookie_);
  return is_right;
}

std::string Gate::cookie_for(const Visit& visit) const {
  const std::optional<Authority> authority = parse_authority(visit.host);
  return fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name(authority.value_or(Authority{})), cookie_);
}

bool Gate::takes_token(std::string_view token) {
  if (is_same_secret(token, token_)) return true;
  for (auto it = tickets_.begin(); it != tickets_.end(); ++it) {
    if (!is_same_secret(token, it->first)) continue;
    const bool is_in_time = Clock::now() < it->second;
    tickets_.erase(it);
    return is_in_time;
  }
  return false;
}

Passage Gate::judge(const Visit& visit) {
  const std::optional<Authority> authority = parse_authority(visit.host);
  if (!authority || !is_ours(*authority)) return Passage::Foreign;
  if (!visit.origin.empty()) {
    std::string_view origin = visit.origin;
    for (const std::string_view scheme : {"http://", "https://"})
      if (origin.starts_with(scheme)) origin.remove_prefix(scheme.size());
    if (origin.size() == visit.origin.size() || parse_authority(origin) != authority) return Passage::Foreign;
  }
  const bool is_from_us = visit.fetch_site.empty() || visit.fetch_site == "same-origin" || visit.fetch_site == "none";
  // A link on a page of others shows our page to the user, and to nobody else: it stands in no frame of theirs.
  const bool is_link = visit.fetch_mode == "navigate" && visit.fetch_dest == "document" && path_of(visit.target) == "/";
  if (!is_from_us && !is_link) return Passage::Foreign;

  const bool is_known = has_cookie(visit, *authority);
  const std::optional<std::string_view> token =
      path_of(visit.target) == "/" ? query_value(visit.target, "token") : std::nullopt;
  if (!token) return is_known ? Passage::Allowed : Passage::Unknown;
  if (!takes_token(*token) && !is_known) return Passage::Unknown;
  return is_from_us ? Passage::Redirect : Passage::Forward;
}

}  // namespace tenscope::server
