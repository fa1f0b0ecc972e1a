#include "common/node/effect.h"

namespace dtrain::node {

Effect::Effect(const Alternative& alternative) : EffectAlternatives(made_of<EffectAlternatives>(alternative)) {}
Effect::Effect(const Effect&) = default;
Effect::Effect(Effect&&) noexcept = default;
Effect& Effect::operator=(Effect&&) noexcept = default;
Effect::~Effect() = default;

}  // namespace dtrain::node
