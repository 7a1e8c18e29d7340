#include "server/gate.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tenscope::server {
namespace {

Authority authority(std::string_view text) { return parse_authority(text).value(); }

TEST(Gate, SecretsAreOf128BitsAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string secret = random_secret();
    EXPECT_EQ(secret.size(), 32U);
    EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
    seen.insert(secret);
  }
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Gate, SecretsAreComparedWhole) {
  EXPECT_TRUE(is_same_secret("abc", "abc"));
  EXPECT_FALSE(is_same_secret("abd", "abc"));
  EXPECT_FALSE(is_same_secret("xbc", "abc"));
  EXPECT_FALSE(is_same_secret("ab", "abc"));
  EXPECT_FALSE(is_same_secret("abcd", "abc"));
  EXPECT_FALSE(is_same_secret("", "abc"));
  EXPECT_FALSE(is_same_secret("ab\xe3", "abc"));
}

TEST(Gate, AuthoritiesAreParsed) {
  EXPECT_EQ(authority("localhost"), (Authority{"localhost", ""}));
  EXPECT_EQ(authority("LocalHost:80"), (Authority{"localhost", "80"}));
  EXPECT_EQ(authority("127.0.0.1:8765"), (Authority{"127.0.0.1", "8765"}));
  EXPECT_EQ(authority("[::1]"), (Authority{"[::1]", ""}));
  EXPECT_EQ(authority("[::1]:9"), (Authority{"[::1]", "9"}));
  for (const char* wrong :
       {"", ":80", "localhost:", "localhost:8a", "localhost:123456", "a b", "a@b", "localhost/x", "[::1", "[]", "[]:80",
        "[::1]80", "[localhost]", "::1", "localhost:80:80", "http://localhost", "localhost\r\nx", "localhost,evil"})
    EXPECT_FALSE(parse_authority(wrong).has_value()) << wrong;
  EXPECT_FALSE(parse_authority(std::string_view("localhost\0", 10)).has_value());
}

TEST(Gate, CookiesAreFoundByTheirWholeName) {
  using Values = std::vector<std::string_view>;
  EXPECT_EQ(cookie_values("tenscope_1=x", "tenscope_1"), Values{"x"});
  EXPECT_EQ(cookie_values("a=b; tenscope_1=x; c=d", "tenscope_1"), Values{"x"});
  EXPECT_EQ(cookie_values("a=b;tenscope_1=x=y;", "tenscope_1"), Values{"x=y"});
  EXPECT_EQ(cookie_values("tenscope_1=old; tenscope_1=new", "tenscope_1"), (Values{"old", "new"}));
  EXPECT_EQ(cookie_values("tenscope_1=", "tenscope_1"), Values{""});
  for (const char* without : {"", ";", ";;", "tenscope_1", "tenscope_12=x", "xtenscope_1=x", "a=tenscope_1=x", " = "})
    EXPECT_TRUE(cookie_values(without, "tenscope_1").empty()) << without;
}

TEST(Gate, ParametersAreFoundByTheirWholeName) {
  EXPECT_EQ(query_value("/?token=x", "token"), "x");
  EXPECT_EQ(query_value("/?a=1&token=x&b=2", "token"), "x");
  EXPECT_EQ(query_value("/?token", "token"), "");
  EXPECT_EQ(query_value("/?token=&a", "token"), "");
  for (const char* without : {"/", "/?", "/?tokens=x", "/?a=token=x", "/token=x", "/?&&", "/?Token=x"})
    EXPECT_EQ(query_value(without, "token"), std::nullopt) << without;
  EXPECT_EQ(path_of("/?token=x"), "/");
  EXPECT_EQ(path_of("/api/tile?a=/?b"), "/api/tile");
}

// A browser that has been let in by a server on `host`, and asks it by the name `name`.
struct Browser {
  explicit Browser(const std::string& host = "127.0.0.1", std::string given_name = "127.0.0.1:8765")
      : gate(host), name(std::move(given_name)) {
    const std::string set = gate.cookie_for({.host = name});
    cookie = set.substr(0, set.find(';'));
  }
  Passage ask(std::string_view host) { return gate.judge({.target = "/api/session", .host = host, .cookies = cookie}); }
  Visit visit(std::string_view target = "/api/session") { return {.target = target, .host = name, .cookies = cookie}; }

  Gate gate;
  std::string name, cookie;
};

TEST(Gate, WithoutTheCookieNobodyIsLetIn) {
  Browser browser;
  EXPECT_EQ(browser.gate.judge(browser.visit()), Passage::Allowed);
  Visit visit = browser.visit();
  visit.cookies = "";
  EXPECT_EQ(browser.gate.judge(visit), Passage::Unknown);
  visit.cookies = "tenscope_8765=";
  EXPECT_EQ(browser.gate.judge(visit), Passage::Unknown);
  const std::string token_as_cookie = "tenscope_8765=" + browser.gate.token();
  visit.cookies = token_as_cookie;
  EXPECT_EQ(browser.gate.judge(visit), Passage::Unknown);
  Browser other;
  visit.cookies = other.cookie;
  EXPECT_EQ(browser.gate.judge(visit), Passage::Unknown);
}

TEST(Gate, OnlyTheRightTokenIsTakenAndOnlyAtTheRoot) {
  Browser browser;
  const auto judge = [&](const std::string& target) {
    return browser.gate.judge({.target = target, .host = browser.name});
  };
  const std::string token = browser.gate.token();
  EXPECT_EQ(judge("/?token=" + token), Passage::Redirect);
  EXPECT_EQ(judge("/?token=" + token), Passage::Redirect);
  std::string wrong = token;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_EQ(judge("/?token=" + wrong), Passage::Unknown);
  EXPECT_EQ(judge("/?token=" + token + "0"), Passage::Unknown);
  EXPECT_EQ(judge("/?token="), Passage::Unknown);
  EXPECT_EQ(judge("/"), Passage::Unknown);
  EXPECT_EQ(judge("/api/session?token=" + token), Passage::Unknown);
  EXPECT_EQ(judge("/viewer.js?token=" + token), Passage::Unknown);
}

TEST(Gate, ATokenForACommandLineWorksOnce) {
  Browser browser;
  const std::string target = "/?token=" + browser.gate.one_time_token();
  const std::string second = "/?token=" + browser.gate.one_time_token();
  EXPECT_NE(target, second);
  EXPECT_EQ(browser.gate.judge({.target = target, .host = browser.name}), Passage::Redirect);
  EXPECT_EQ(browser.gate.judge({.target = target, .host = browser.name}), Passage::Unknown);
  EXPECT_EQ(browser.gate.judge(browser.visit(target)), Passage::Redirect) << "who is let in already may use it again";
  EXPECT_EQ(browser.gate.judge({.target = second, .host = browser.name}), Passage::Redirect);
}

TEST(Gate, OnlyLoopbackNamesAndTheGivenHostAreOurs) {
  for (const char* ours : {"127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"})
    EXPECT_EQ(Browser().ask(ours), Passage::Allowed) << ours;
  for (const char* foreign :
       {"", "evil.example:8765", "localhost.evil.example:8765", "127.0.0.1.evil.example:8765", "127.0.0.2:8765",
        "192.168.1.5:8765", "0.0.0.0:8765", "[::2]:8765", "localhost.:8765", "2130706433:8765", "me@localhost:8765"})
    EXPECT_EQ(Browser().ask(foreign), Passage::Foreign) << foreign;
  EXPECT_EQ(Browser("192.168.1.5").ask("192.168.1.5:8765"), Passage::Allowed);
  EXPECT_EQ(Browser("192.168.1.5").ask("192.168.1.6:8765"), Passage::Foreign);
  EXPECT_EQ(Browser("Node7").ask("node7:8765"), Passage::Allowed);
  EXPECT_EQ(Browser("fe80::1").ask("[fe80::1]:8765"), Passage::Allowed);
}

TEST(Gate, AServerOnAllAddressesIsCalledByAnAddressAndByNoForeignName) {
  for (const char* host : {"0.0.0.0", "::"}) {
    EXPECT_EQ(Browser(host).ask("192.168.1.5:8765"), Passage::Allowed);
    EXPECT_EQ(Browser(host).ask("[fe80::1]:8765"), Passage::Allowed);
    EXPECT_EQ(Browser(host).ask("evil.example:8765"), Passage::Foreign);
    EXPECT_EQ(Browser(host).ask("1.2.3:8765"), Passage::Foreign);
    EXPECT_EQ(Browser(host).ask("1.2.3.4.evil.example:8765"), Passage::Foreign);
  }
}

TEST(Gate, ATunnelMayEndAtAnyPort) {
  Browser browser("127.0.0.1", "localhost:9000");
  EXPECT_TRUE(browser.cookie.starts_with("tenscope_9000="));
  EXPECT_EQ(browser.gate.judge(browser.visit()), Passage::Allowed);
  EXPECT_EQ(browser.ask("localhost:9001"), Passage::Unknown) << "that is another tunnel, whose cookie has another name";
  EXPECT_TRUE(Browser("127.0.0.1", "localhost").cookie.starts_with("tenscope_80="));
}

TEST(Gate, PagesOfOtherOriginsAreForeign) {
  Browser browser;
  Visit visit = browser.visit();
  for (const char* origin : {"http://127.0.0.1:8765", "https://127.0.0.1:8765"}) {
    visit.origin = origin;
    EXPECT_EQ(browser.gate.judge(visit), Passage::Allowed) << origin;
  }
  for (const char* origin : {"null", "http://evil.example", "http://127.0.0.1:8888", "http://localhost:8765",
                             "127.0.0.1:8765", "http://", "ftp://127.0.0.1:8765", "http://http://127.0.0.1:8765"}) {
    visit.origin = origin;
    EXPECT_EQ(browser.gate.judge(visit), Passage::Foreign) << origin;
  }
}

TEST(Gate, WhatABrowserSaysOfTheAskingPageCounts) {
  Browser browser;
  Visit visit = browser.visit();
  for (const char* site : {"", "none", "same-origin"}) {
    visit.fetch_site = site;
    EXPECT_EQ(browser.gate.judge(visit), Passage::Allowed) << site;
  }
  for (const char* site : {"same-site", "cross-site", "anything"}) {
    visit.fetch_site = site;
    EXPECT_EQ(browser.gate.judge(visit), Passage::Foreign) << site;
  }
}

TEST(Gate, ALinkOnAPageOfOthersOpensThePageAndNothingElse) {
  Browser browser;
  const std::string target = "/?token=" + browser.gate.token();
  const auto judge = [&](std::string_view to, std::string_view site, std::string_view mode, std::string_view dest) {
    Visit visit = browser.visit(to);
    visit.fetch_site = site;
    visit.fetch_mode = mode;
    visit.fetch_dest = dest;
    return browser.gate.judge(visit);
  };
  EXPECT_EQ(judge(target, "cross-site", "navigate", "document"), Passage::Forward);
  EXPECT_EQ(judge(target, "none", "navigate", "document"), Passage::Redirect);
  EXPECT_EQ(judge("/", "same-site", "navigate", "document"), Passage::Allowed);
  EXPECT_EQ(judge(target, "cross-site", "navigate", "iframe"), Passage::Foreign);
  EXPECT_EQ(judge(target, "cross-site", "no-cors", "script"), Passage::Foreign);
  EXPECT_EQ(judge("/api/session", "same-site", "navigate", "document"), Passage::Foreign);
}

}  // namespace
}  // namespace tenscope::server
