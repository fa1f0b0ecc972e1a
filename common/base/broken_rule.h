// The rule that a test or the simulator (--break) switches off, to show that something notices. Programs that people run have no such
// switch: there no rule is ever broken, whatever name is given (rules_kept.cpp). Test programs bring a definition of breaks() of their own
// (tests/support/breaks_rules.cpp), which the linker takes instead.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace dtrain {

bool breaks(std::string_view broken, std::string_view rule);

class BrokenRule {
 public:
  BrokenRule() = default;
  template <class Text>
  requires std::convertible_to<Text, std::string_view> BrokenRule(const Text& name)
      : name_(std::string_view(name)) {}  // "": every rule is kept

  operator std::string_view() const { return name_; }
  friend bool operator==(const BrokenRule& broken, std::string_view rule) { return breaks(broken.name_, rule); }

 private:
  std::string name_;
};

}  // namespace dtrain
