#include "common/node/event.h"

namespace dtrain::node {

Event::Event(const Alternative& alternative) : EventAlternatives(made_of<EventAlternatives>(alternative)) {}
Event::Event(const Event&) = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;
Event::~Event() = default;

}  // namespace dtrain::node
