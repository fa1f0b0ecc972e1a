// Walk through JSON and UBJSON as the bytes stream by, in bounded memory: is this one whole value, and nothing else? What it means is not
// looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::transfer {

inline constexpr std::size_t kWalkDepth = 512;  // values within values; deeper: wrong

class JsonWalk {
 public:
  bool feed(std::string_view bytes);  // false: it is wrong, for good
  bool ended() const { return good_ && token_.empty() && place_ == Place::end; }

 private:
  enum class Place : unsigned char { value, first_value, key, first_key, colon, after, end };
  bool take(char c);
  bool begin_or_token(char c);
  bool close(char c);
  bool end_token();
  void value_ended() { place_ = open_.empty() ? Place::end : Place::after; }

  std::vector<char> open_;  // '{' or '[' of the values that are not closed
  Place place_ = Place::value;
  bool in_string_ = false, good_ = true;
  unsigned escaped_ = 0;  // characters of an escape that are left: 4 hexadecimal digits, or 5: the one after the backslash
  std::string token_;     // a number or a word, as far as it was read
};

class UbjsonWalk {
 public:
  bool feed(std::string_view bytes);
  bool ended() const { return good_ && wants_ == Wants::nothing && skip_ == 0; }

 private:
  // What the next byte is: the marker of a value; of an element, or the end of its container; of the length of a text; ...
  enum class Wants : unsigned char { value, element, key, opened, type, count_sign, length, count, number, nothing };
  struct Level {
    bool object = false, counted = false;
    char type = 0;  // of all elements; 0: each has its own
    std::uint64_t left = 0;
  };
  bool take(char c);
  bool begin_value(char marker);
  bool begin_number(char marker, Wants purpose);
  bool number_ended();
  bool text_ended();
  bool value_ended();
  bool next_element();

  std::vector<Level> open_;
  Wants wants_ = Wants::value;
  bool good_ = true;
  std::uint64_t skip_ = 0;  // bytes of a value or a key that are only counted
  bool skips_key_ = false, reads_key_ = false;
  Wants purpose_ = Wants::nothing;  // of the number that is being read: length or count
  unsigned number_left_ = 0;
  std::uint64_t number_ = 0, sign_bit_ = 0;
};

}  // namespace dtrain::transfer
