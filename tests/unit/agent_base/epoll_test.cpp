#include "agent/base/epoll.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>

namespace dtrain {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, HasOneOwner) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  UniqueFd first(ends[0]), second(ends[1]);
  first = std::move(second);
  EXPECT_FALSE(is_open(ends[0]));
  EXPECT_FALSE(second);
  EXPECT_EQ(first.get(), ends[1]);
  UniqueFd& same = first;
  first = std::move(same);
  EXPECT_TRUE(is_open(ends[1]));
  const UniqueFd back(first.release());
  EXPECT_FALSE(first);
  EXPECT_TRUE(is_open(ends[1]));
}

TEST(Epoll, TellsByTagWhatIsReadyAndNeverWaits) {
  Epoll epoll;
  ASSERT_TRUE(epoll);
  WorkFlag one, two;
  ASSERT_TRUE(epoll.add(one.fd(), 1));
  ASSERT_TRUE(epoll.set(two.fd(), 2, EPOLLIN));
  epoll_event events[4];
  EXPECT_TRUE(epoll.ready(events).empty());
  two.raise();
  ASSERT_EQ(epoll.ready(events).size(), 1u);
  EXPECT_EQ(std::uint64_t{events[0].data.u64}, 2u);
  ASSERT_TRUE(epoll.set(two.fd(), 7, EPOLLIN));  // was there already
  ASSERT_EQ(epoll.ready(events).size(), 1u);
  EXPECT_EQ(std::uint64_t{events[0].data.u64}, 7u);
  ASSERT_TRUE(epoll.change(two.fd(), 7, 0));
  EXPECT_TRUE(epoll.ready(events).empty());
  one.raise();
  epoll.remove(one.fd());
  EXPECT_TRUE(epoll.ready(events).empty());
}

TEST(Epoll, GivesAsManyAsThereIsRoomFor) {
  Epoll epoll;
  std::array<WorkFlag, 3> flags;
  for (WorkFlag& flag : flags) {
    flag.raise();
    ASSERT_TRUE(epoll.add(flag.fd()));
  }
  epoll_event events[2];
  EXPECT_EQ(epoll.ready(events).size(), 2u);
}

TEST(WorkFlag, IsReadableWhileItIsSet) {
  WorkFlag flag;
  Epoll epoll;
  ASSERT_TRUE(epoll.add(flag.fd()));
  epoll_event events[1];
  for (const bool wanted : {true, true, false, false, true}) {
    flag.set(wanted);
    EXPECT_EQ(!epoll.ready(events).empty(), wanted);
  }
}

}  // namespace
}  // namespace dtrain
