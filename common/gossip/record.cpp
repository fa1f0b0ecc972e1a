// The record that outlives the agent, in the store's form: a msgpack map; unknown keys of later versions are skipped.
#include "common/gossip/membership.h"
#include "common/wire/codec.h"

namespace dtrain::gossip {

namespace {

struct StoredPeer {
  std::string id, name, ip, boot_id, key_print;
  std::uint16_t port = 0, format_min = 1, format_max = 1;
  std::uint64_t life = 0;
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("name", name);
    v("ip", ip);
    v("port", port);
    v("boot_id", boot_id);
    v("life", life);
    v("format_min", format_min);
    v("format_max", format_max);
    v("key_print", key_print);
  }
};

struct StoredRecord {
  std::uint16_t version = 1;
  std::string cluster_id;  // "": none
  std::vector<StoredPeer> book;
  bool left = false;
  std::uint32_t in_service = ~0u;  // missing in records of earlier versions: all may have been
  template <class V>
  void fields(V& v) {
    v("version", version);
    v("cluster_id", cluster_id);
    v("book", book);
    v("left", left);
    v("in_service", in_service);
  }
};

}  // namespace

std::string MemberRecord::encode() const {
  StoredRecord stored;
  if (!cluster_id.none()) stored.cluster_id = cluster_id.text();
  stored.left = left;
  stored.in_service = in_service;
  for (const wire::Identity& peer : book)
    stored.book.push_back({peer.id.text(), peer.name, peer.address.ip, peer.boot_id, peer.key_print, peer.address.port, peer.format_min,
                           peer.format_max, peer.life});
  return wire::encode(stored);
}

Result<MemberRecord> MemberRecord::decode(std::string_view bytes) {
  const auto damaged = [](const std::string& cause) {
    return fail(ErrorCode::damaged, "could not read the member record: " + cause,
                "the node joins again by its seeds, or by `dtrainctl` on another node");
  };
  const auto stored = wire::decode<StoredRecord>(bytes);
  if (!stored) return damaged(stored.error().message);
  MemberRecord record;
  record.left = stored->left;
  record.in_service = stored->in_service;
  if (!stored->cluster_id.empty()) {
    const auto cluster = MemberId::parse(stored->cluster_id);
    if (!cluster) return damaged("cluster_id: not an id");
    record.cluster_id = *cluster;
  }
  for (const StoredPeer& peer : stored->book) {
    const auto id = MemberId::parse(peer.id);
    if (!id) return damaged("book: not an id");
    record.book.push_back(
        {*id, peer.name, {peer.ip, peer.port}, peer.boot_id, peer.life, peer.format_min, peer.format_max, peer.key_print});
  }
  return record;
}

}  // namespace dtrain::gossip
