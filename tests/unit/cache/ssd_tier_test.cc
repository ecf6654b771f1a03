#include "cache/ssd_tier.h"

#include "cache/ssd_admin.h"
#include "tests/unit/cache/ssd_fixture.h"

namespace pagoda::cache {
namespace {

using base::DiskOp;

std::vector<int32_t> ids_of(const std::vector<BlockKey>& keys) {
  std::vector<int32_t> ids;
  for (const BlockKey& key : keys) {
    int32_t id = 0;
    std::memcpy(&id, key.data(), sizeof id);
    ids.push_back(id);
  }
  std::ranges::sort(ids);
  return ids;
}

TEST_F(SsdTierTest, PutIsThereOnceItIsWritten) {
  open_and_scan();
  absl::Status status = absl::UnknownError("not called");
  begin_put(test_record(1), 1, &status);
  EXPECT_FALSE(tier().contains(test_key(1)));
  queue.pump_all();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(tier().contains(test_key(1)));
  EXPECT_TRUE(get(1).ok());
  EXPECT_TRUE(absl::IsNotFound(get(2)));
  const TierStats stats = tier().stats();
  EXPECT_EQ(stats.n_blocks, 1);
  EXPECT_EQ(stats.n_puts, 1);
  EXPECT_EQ(stats.n_gets, 2);
  EXPECT_EQ(stats.bytes_written, kTestRecordBytes + kSegmentHeaderBytes);
  EXPECT_EQ(stats.bytes_read, kTestRecordBytes);
}

TEST_F(SsdTierTest, SecondPutOfAKeyWritesNothing) {
  open_and_scan();
  std::vector<absl::Status> statuses(2, absl::UnknownError("not called"));
  begin_put(test_record(1), 1, &statuses[0]);
  begin_put(test_record(1), 1, &statuses[1]);
  queue.pump_all();
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok());
  const int64_t written = tier().stats().bytes_written;
  EXPECT_TRUE(put(1).ok());
  EXPECT_EQ(tier().stats().bytes_written, written);
}

TEST_F(SsdTierTest, RestartFindsBlocksWithTheirRecords) {
  open_and_scan();
  put_all(0, 25);
  reopen();
  std::vector<BlockRecord> found = tier().take_found();
  ASSERT_EQ(found.size(), 25U);
  std::ranges::sort(found, {}, &BlockRecord::key);
  for (const BlockRecord& record : found) {
    const int32_t id = ids_of({record.key})[0];
    const BlockRecord expected = test_record(id);
    EXPECT_EQ(record.parent, expected.parent);
    EXPECT_EQ(record.salt, expected.salt);
    EXPECT_EQ(record.tokens, expected.tokens);
    EXPECT_EQ(record.group, expected.group);
    EXPECT_EQ(record.priority, expected.priority);
    EXPECT_TRUE(get(id).ok());
  }
  EXPECT_TRUE(tier().take_found().empty());
  EXPECT_EQ(tier().ssd_stats().n_scan_rejects, 0);
}

TEST_F(SsdTierTest, RestartBeginsANewSegment) {
  open_and_scan();
  put_all(0, 2);
  reopen();
  put_all(2, 4);
  EXPECT_EQ(segments(), (std::vector<std::string>{segment_name(1), segment_name(2)}));
}

TEST_F(SsdTierTest, CanBeUsedBeforeTheScanIsOver) {
  open_and_scan();
  put_all(0, 20);
  close();
  open();
  absl::Status status;
  begin_put(test_record(100), 100, &status);
  tier().drop(test_key(3));
  EXPECT_FALSE(tier().ssd_stats().scan_done);
  queue.pump_all();
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(get(100).ok());
  EXPECT_TRUE(get(4).ok());
  EXPECT_TRUE(absl::IsNotFound(get(3)));
  EXPECT_FALSE(has_tokens(3));
}

TEST_F(SsdTierTest, SyncedBlocksSurviveAPowerFailure) {
  open_and_scan();
  put_all(0, 12);
  ASSERT_TRUE(sync().ok());
  crash(7);
  for (int32_t id = 0; id < 12; ++id) EXPECT_TRUE(get(id).ok()) << id;
}

TEST_F(SsdTierTest, TornTailIsAMiss) {
  open_and_scan();
  put_all(0, 5);
  ASSERT_TRUE(sync().ok());
  disk.crash(1);
  close();
  disk.truncate(segment_name(1), kSegmentHeaderBytes + 4 * kTestRecordBytes + 2 * base::kDiskAlign);
  open_and_scan();
  EXPECT_EQ(tier().ssd_stats().n_scan_rejects, 1);
  EXPECT_TRUE(get(3).ok());
  EXPECT_TRUE(absl::IsNotFound(get(4)));
}

TEST_F(SsdTierTest, RecordsBehindATornOneAreFound) {
  open_and_scan();
  put_all(0, 5);
  ASSERT_TRUE(sync().ok());
  disk.crash(1);
  close();
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + kTestRecordBytes + 30);        // header of 1
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + 3 * kTestRecordBytes + 5000);  // data of 3
  open_and_scan();
  EXPECT_TRUE(get(0).ok());
  EXPECT_TRUE(absl::IsNotFound(get(1)));
  EXPECT_TRUE(get(2).ok());
  EXPECT_TRUE(absl::IsNotFound(get(3)));
  EXPECT_TRUE(get(4).ok());
}

TEST_F(SsdTierTest, LostSegmentIsAMiss) {
  open_and_scan();
  put_all(0, 20);
  close();
  ASSERT_TRUE(disk.remove(segment_name(2)).ok());
  open_and_scan();
  EXPECT_TRUE(get(0).ok());
  EXPECT_TRUE(absl::IsNotFound(get(10)));
}

TEST_F(SsdTierTest, FlippedBitsAreFoundByGetAndDropTheBlock) {
  open_and_scan();
  put_all(0, 3);
  close();
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + 100);                          // header of 0
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + kTestRecordBytes + 4096 + 9);  // data of 1
  open_and_scan();
  EXPECT_TRUE(absl::IsDataLoss(get(0)));
  EXPECT_TRUE(absl::IsDataLoss(get(1)));
  EXPECT_TRUE(absl::IsNotFound(get(1)));
  EXPECT_TRUE(get(2).ok());
  EXPECT_EQ(tier().stats().n_errors_checksum, 2);
  EXPECT_EQ(ids_of(tier().take_lost()), (std::vector<int32_t>{0, 1}));
  // And they can be put again.
  EXPECT_TRUE(put(1).ok());
  EXPECT_TRUE(get(1).ok());
  EXPECT_TRUE(tier().take_lost().empty());
}

TEST_F(SsdTierTest, FlippedBitInAFooterCostsNoBlock) {
  open_and_scan();
  put_all(0, 3);
  close();
  const int64_t size = *(*disk.open(segment_name(1)))->size();
  disk.flip_bit(segment_name(1), size - 4000);
  disk.flip_bit(segment_name(1), 100);  // and one in the segment's header
  open_and_scan();
  for (int32_t id = 0; id < 3; ++id) EXPECT_TRUE(get(id).ok());
}

TEST_F(SsdTierTest, RecordInAnotherPlaceIsNone) {
  open_and_scan();
  put_all(0, 2);
  close();
  // The disk swaps two records.
  const std::shared_ptr<base::DiskFile> file = *disk.open(segment_name(1));
  base::DiskBuffer a(kTestRecordBytes);
  base::DiskBuffer b(kTestRecordBytes);
  const int64_t second = kSegmentHeaderBytes + kTestRecordBytes;
  ASSERT_TRUE(file->read(kSegmentHeaderBytes, a.span()).ok());
  ASSERT_TRUE(file->read(second, b.span()).ok());
  ASSERT_TRUE(file->write(kSegmentHeaderBytes, b.span()).ok());
  ASSERT_TRUE(file->write(second, a.span()).ok());
  open_and_scan();
  EXPECT_TRUE(absl::IsDataLoss(get(0)));
  EXPECT_TRUE(absl::IsDataLoss(get(1)));
}

TEST_F(SsdTierTest, AnotherIdentityIsNeverFoundAndGoesFirst) {
  open_and_scan();
  put_all(0, 40);
  close();
  options.identity[0] = 2;
  open_and_scan();
  EXPECT_TRUE(tier().take_found().empty());
  EXPECT_TRUE(absl::IsNotFound(get(1)));
  put_all(0, 9);  // the same keys, ours
  close();
  options.identity[0] = 1;
  open_and_scan();
  EXPECT_TRUE(get(39).ok());
  EXPECT_EQ(tier().stats().n_blocks, 40);
  put_all(100, 120);  // cleans the other's
  close();
  options.identity[0] = 2;
  open_and_scan();
  EXPECT_EQ(tier().stats().n_blocks, 0);
}

TEST_F(SsdTierTest, CapacityHoldsAndTheOldestGo) {
  open_and_scan();
  for (int32_t id = 0; id < 200; ++id) {
    ASSERT_TRUE(put(id).ok());
    ASSERT_LE(tier().stats().bytes, options.capacity_bytes);
  }
  EXPECT_TRUE(absl::IsNotFound(get(0)));
  EXPECT_TRUE(get(199).ok());
  const std::vector<int32_t> lost = ids_of(tier().take_lost());
  EXPECT_EQ(std::ssize(lost), 200 - tier().stats().n_blocks);
  EXPECT_EQ(lost.front(), 0);
  EXPECT_EQ(lost.back(), std::ssize(lost) - 1);
  EXPECT_EQ(tier().ssd_stats().bytes_rewritten, 0);
}

TEST_F(SsdTierTest, CleaningKeepsWhatIsHotAndParentsOfIt) {
  open_and_scan();
  put_all(0, 40);
  ASSERT_TRUE(put(40, 1).ok());  // a child of 1, in a later segment
  tier().touch(test_key(40));
  tier().touch(test_key(5));
  int32_t id = 50;
  while (tier().contains(test_key(0))) ASSERT_TRUE(put(id++).ok());
  EXPECT_TRUE(get(1).ok());
  EXPECT_TRUE(get(5).ok());
  EXPECT_TRUE(absl::IsNotFound(get(2)));
  EXPECT_EQ(tier().ssd_stats().bytes_rewritten, 2 * kTestRecordBytes);
  reopen();
  EXPECT_TRUE(get(1).ok());
  EXPECT_TRUE(get(5).ok());
}

TEST_F(SsdTierTest, RewritesAtMostHalfASegmentByPriority) {
  open_and_scan();
  for (int32_t id = 0; id < 9; ++id) {
    BlockRecord record = test_record(id);
    record.priority = id == 0 ? 90 : 50;
    absl::Status status;
    begin_put(record, id, &status);
    queue.pump_all();
    tier().touch(test_key(id));
  }
  int32_t id = 50;
  while (tier().contains(test_key(8))) ASSERT_TRUE(put(id++).ok());
  EXPECT_TRUE(get(0).ok());
  const int64_t rewritten = tier().ssd_stats().bytes_rewritten;
  EXPECT_GT(rewritten, 0);
  EXPECT_LE(rewritten, kTestSegmentBytes / 2);
}

TEST_F(SsdTierTest, ReserveOfTheDiskIsLeftAlone) {
  disk.set_capacity(5 * kTestSegmentBytes);
  options.reserve_bytes = 2 * kTestSegmentBytes;
  open_and_scan();
  for (int32_t id = 0; id < 100; ++id) {
    ASSERT_TRUE(put(id).ok());
    ASSERT_GE(*disk.free_bytes(), options.reserve_bytes);
  }
  EXPECT_TRUE(get(99).ok());
  // Somebody else takes the room: puts are declined, and what was there has gone.
  disk.set_capacity(kTestSegmentBytes);
  for (int32_t id = 200; id < 220; ++id) put(id).IgnoreError();
  EXPECT_TRUE(absl::IsResourceExhausted(put(300)));
  EXPECT_GT(tier().stats().n_put_declined, 0);
  EXPECT_FALSE(tier().stats().is_off);
  disk.set_capacity(int64_t{1} << 40);
  EXPECT_TRUE(put(300).ok());
}

TEST_F(SsdTierTest, FullDiskDeclinesPutsAndRemovesTheOldest) {
  disk.set_capacity(3 * kTestSegmentBytes);
  open_and_scan();
  put_all(0, 20);
  disk.set_capacity(kTestSegmentBytes / 2);  // not even what is there
  EXPECT_TRUE(absl::IsResourceExhausted(put(50)));
  EXPECT_FALSE(tier().contains(test_key(0)));
  EXPECT_TRUE(get(19).ok());
  EXPECT_FALSE(tier().stats().is_off);
  EXPECT_EQ(tier().stats().n_errors_io, 0);
  disk.set_capacity(int64_t{1} << 40);
  EXPECT_TRUE(put(51).ok());
  EXPECT_TRUE(get(51).ok());
  reopen();
  EXPECT_TRUE(get(51).ok());
  EXPECT_TRUE(get(19).ok());
}

TEST_F(SsdTierTest, ThreeErrorsSwitchItOffForAWhile) {
  open_and_scan();
  put_all(0, 3);
  disk.set_fail([](DiskOp op, const std::string&, int64_t) {
    return op == DiskOp::kWrite ? absl::UnavailableError("broken") : absl::OkStatus();
  });
  for (int32_t id = 10; id < 13; ++id) EXPECT_TRUE(absl::IsUnavailable(put(id)));
  EXPECT_TRUE(tier().stats().is_off);
  EXPECT_EQ(tier().stats().n_errors_io, 3);
  EXPECT_TRUE(absl::IsResourceExhausted(put(20)));
  EXPECT_TRUE(absl::IsUnavailable(get(0)));
  clock.advance_us(10'000'001);
  EXPECT_FALSE(tier().stats().is_off);
  EXPECT_TRUE(get(0).ok());
  disk.set_fail(nullptr);
  EXPECT_TRUE(put(20).ok());
  EXPECT_TRUE(get(20).ok());
}

TEST_F(SsdTierTest, TheWhileDoubles) {
  open_and_scan();
  put_all(0, 1);
  disk.set_fail([](DiskOp, const std::string&, int64_t) { return absl::UnavailableError("gone"); });
  int32_t id = 10;
  for (const int64_t pause_us : {10'000'000, 20'000'000, 40'000'000}) {
    while (!tier().stats().is_off) EXPECT_FALSE(put(id++).ok());
    clock.advance_us(pause_us - 1);
    EXPECT_TRUE(tier().stats().is_off);
    clock.advance_us(2);
    EXPECT_FALSE(tier().stats().is_off);
  }
}

TEST_F(SsdTierTest, SlowDiskIsSwitchedOff) {
  open_and_scan();
  put_all(0, 3);
  disk.set_hook([&](DiskOp op, const std::string&, int64_t) {
    if (op == DiskOp::kRead) clock.advance_us(5'000'001);
  });
  EXPECT_TRUE(get(0).ok());
  EXPECT_TRUE(get(1).ok());
  EXPECT_FALSE(tier().stats().is_off);
  EXPECT_TRUE(get(2).ok());
  EXPECT_TRUE(tier().stats().is_off);
  EXPECT_TRUE(absl::IsUnavailable(get(0)));
  disk.set_hook(nullptr);
  clock.advance_us(10'000'001);
  EXPECT_TRUE(get(0).ok());
}

// A read that never ends counts before it has ended.
TEST_F(SsdTierTest, StuckReadsSwitchItOff) {
  open_and_scan();
  put_all(0, 3);
  std::vector<uint8_t> into(3 * static_cast<size_t>(kTestBlockBytes));
  int32_t n_done = 0;
  for (int32_t id = 0; id < 3; ++id) {
    const auto block = std::span(into).subspan(static_cast<size_t>(id * kTestBlockBytes),
                                               static_cast<size_t>(kTestBlockBytes));
    tier().get(test_key(id), block, [&](absl::Status) { ++n_done; });
  }
  clock.advance_us(5'000'001);
  EXPECT_TRUE(tier().stats().is_off);
  EXPECT_EQ(n_done, 0);
  queue.pump_all();
  EXPECT_EQ(n_done, 3);
  EXPECT_EQ(tier().stats().n_errors_io, 3);
}

TEST_F(SsdTierTest, ReadErrorIsUnavailableAndLosesTheBlock) {
  open_and_scan();
  put_all(0, 2);
  disk.set_fail([](DiskOp op, const std::string&, int64_t offset) {
    return op == DiskOp::kRead && offset == kSegmentHeaderBytes ? absl::UnavailableError("bad")
                                                                : absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnavailable(get(0)));
  EXPECT_TRUE(get(1).ok());
  EXPECT_EQ(ids_of(tier().take_lost()), std::vector<int32_t>{0});
}

TEST_F(SsdTierTest, DailyBudgetIsABucket) {
  options.daily_bytes = 16 * kTestRecordBytes;  // four at once, then 1.5 an hour
  open_and_scan();
  for (int32_t id = 0; id < 3; ++id) EXPECT_TRUE(put(id).ok());  // a header is written too
  EXPECT_FALSE(tier().has_budget());
  EXPECT_TRUE(absl::IsResourceExhausted(put(3)));
  EXPECT_EQ(tier().ssd_stats().bytes_skipped, kTestRecordBytes);
  clock.advance_us(int64_t{2} * 3600 * 1'000'000);
  EXPECT_TRUE(tier().has_budget());
  EXPECT_TRUE(put(3).ok());
}

TEST_F(SsdTierTest, StagedBytesAreBounded) {
  options.max_staged_bytes = 2 * kTestRecordBytes;
  open_and_scan();
  std::vector<absl::Status> statuses(3);
  for (int32_t id = 0; id < 3; ++id) {
    begin_put(test_record(id), id, &statuses[static_cast<size_t>(id)]);
  }
  queue.pump_all();
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok());
  EXPECT_TRUE(absl::IsResourceExhausted(statuses[2]));
  EXPECT_TRUE(put(2).ok());
}

TEST_F(SsdTierTest, ReadsBeyondTheLimitWait) {
  options.read_limit_bytes_s = 4 * kTestRecordBytes;  // one at once, then four a second
  int64_t slept_us = 0;
  options.sleep = [&](int64_t us) {
    slept_us += us;
    clock.advance_us(us);
  };
  open_and_scan();
  put_all(0, 3);
  EXPECT_TRUE(get(0).ok());
  EXPECT_EQ(slept_us, 0);
  EXPECT_TRUE(get(1).ok());
  EXPECT_TRUE(get(2).ok());
  EXPECT_GE(slept_us, 499'000);
  EXPECT_LE(slept_us, 510'000);
}

TEST_F(SsdTierTest, ReadsBeyondTheLimitEndWithAClockThatStandsStill) {
  options.read_limit_bytes_s = kTestRecordBytes;
  open_and_scan();
  put_all(0, 3);
  for (int32_t id = 0; id < 3; ++id) EXPECT_TRUE(get(id).ok());
}

TEST_F(SsdTierTest, DropErasesInOpenAndFullSegments) {
  open_and_scan();
  put_all(0, 12);  // one full segment and an open one
  EXPECT_TRUE(has_tokens(2) && has_tokens(11));
  tier().drop(test_key(2));
  tier().drop(test_key(11));
  EXPECT_FALSE(tier().contains(test_key(2)));
  ASSERT_TRUE(sync().ok());
  EXPECT_FALSE(has_tokens(2) || has_tokens(11));
  EXPECT_FALSE(find_record(2) || find_record(11));
  EXPECT_EQ(ids_of(tier().take_lost()), (std::vector<int32_t>{2, 11}));
  reopen();
  EXPECT_FALSE(has_tokens(2) || has_tokens(11));
  EXPECT_EQ(tier().take_found().size(), 10U);
  EXPECT_EQ(tier().ssd_stats().n_scan_rejects, 0);
  for (const int32_t id : {0, 1, 3, 10}) EXPECT_TRUE(get(id).ok());
  // After a restart too.
  tier().drop(test_key(1));
  ASSERT_TRUE(sync().ok());
  EXPECT_FALSE(has_tokens(1));
}

TEST_F(SsdTierTest, DropOfAPutUnderWayDeclinesIt) {
  open_and_scan();
  put_all(0, 1);
  absl::Status status;
  begin_put(test_record(1), 1, &status);
  queue.pump_one(0);  // staged, not written
  tier().drop(test_key(1));
  queue.pump_all();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_TRUE(absl::IsNotFound(get(1)));
  EXPECT_FALSE(has_tokens(1));
  EXPECT_TRUE(put(1).ok());
  EXPECT_TRUE(get(1).ok());
}

TEST_F(SsdTierTest, DropWhileItIsReadIsAMissAndNoFault) {
  open_and_scan();
  put_all(0, 1);
  absl::Status status;
  std::vector<uint8_t> into(static_cast<size_t>(kTestBlockBytes));
  tier().get(test_key(0), into, [&](absl::Status done) { status = std::move(done); });
  tier().drop(test_key(0));
  while (queue.queued() > 1) queue.pump_one(1);  // the erasure first
  queue.pump_all();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_EQ(tier().stats().n_errors_checksum, 0);
}

TEST_F(SsdTierTest, DropErasesCopiesThatAreLostToo) {
  open_and_scan();
  put_all(0, 2);
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + 4096 + 9);
  EXPECT_TRUE(absl::IsDataLoss(get(0)));
  EXPECT_TRUE(put(0).ok());
  tier().drop(test_key(0));
  queue.pump_all();
  EXPECT_FALSE(has_tokens(0));
}

TEST_F(SsdTierTest, DropThatCannotEraseRemovesTheSegment) {
  open_and_scan();
  put_all(0, 12);
  disk.set_fail([](DiskOp op, const std::string&, int64_t) {
    return op == DiskOp::kWrite ? absl::UnavailableError("broken") : absl::OkStatus();
  });
  tier().drop(test_key(2));
  ASSERT_TRUE(sync().ok());
  EXPECT_FALSE(has_tokens(2));
  disk.set_fail(nullptr);
  EXPECT_TRUE(absl::IsNotFound(get(3)));
  EXPECT_TRUE(get(11).ok());
}

TEST_F(SsdTierTest, DropSaltErasesAllOfIt) {
  open_and_scan();
  for (int32_t id = 0; id < 20; ++id) ASSERT_TRUE(put(id, -1, id % 3).ok());
  close();
  options.identity[0] = 2;
  open_and_scan();  // the records are another model's now
  for (int32_t id = 30; id < 40; ++id) ASSERT_TRUE(put(id, -1, id % 3).ok());
  tier().drop_salt(test_salt(1));
  ASSERT_TRUE(sync().ok());
  for (int32_t id = 0; id < 40; ++id) {
    if (id >= 20 && id < 30) continue;
    EXPECT_EQ(has_tokens(id), id % 3 != 1) << id;
  }
  EXPECT_TRUE(get(30).ok());
  EXPECT_TRUE(absl::IsNotFound(get(31)));
}

TEST_F(SsdTierTest, DropSaltRemovesSegmentsWithTornRecords) {
  open_and_scan();
  put_all(0, 2);
  ASSERT_TRUE(sync().ok());
  disk.crash(1);
  close();
  disk.flip_bit(segment_name(1), kSegmentHeaderBytes + 10);  // nobody can tell whose it was
  open_and_scan();
  EXPECT_TRUE(get(1).ok());
  tier().drop_salt(test_salt(0));
  ASSERT_TRUE(sync().ok());
  EXPECT_FALSE(has_tokens(0));
}

TEST_F(SsdTierTest, PurgeRemovesAllSegments) {
  open_and_scan();
  put_all(0, 25);
  absl::Status status;
  begin_put(test_record(30), 30, &status);
  tier().purge();
  EXPECT_FALSE(tier().contains(test_key(1)));
  ASSERT_TRUE(sync().ok());
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(segments().empty());
  EXPECT_EQ(tier().take_lost().size(), 25U);
  EXPECT_EQ(tier().stats().bytes, 0);
  EXPECT_TRUE(put(1).ok());
  EXPECT_EQ(segments().size(), 1U);
  reopen();
  EXPECT_EQ(tier().take_found().size(), 1U);
}

TEST_F(SsdTierTest, SegmentsShrinkSoThatFourFit) {
  options.segment_bytes = int64_t{64} << 20;
  options.capacity_bytes = 4 * kTestSegmentBytes;
  open_and_scan();
  put_all(0, 100);
  EXPECT_LE(tier().stats().bytes, options.capacity_bytes);
  EXPECT_GE(segments().size(), 3U);
  EXPECT_TRUE(get(99).ok());
}

TEST_F(SsdTierTest, TooSmallACapacityIsRefused) {
  options.capacity_bytes = 4 * kTestRecordBytes;
  const auto tier = SsdTier::open(options, disk, queue, clock);
  ASSERT_TRUE(absl::IsInvalidArgument(tier.status()));
  EXPECT_NE(base::message_of(tier.status()).find("--kv-ssd-size"), std::string::npos);
  EXPECT_TRUE(disk.list()->empty());
}

TEST_F(SsdTierTest, FolderOfSomebodyElseIsLeftAlone) {
  ASSERT_TRUE(disk.create("thesis.txt").ok());
  const auto tier = SsdTier::open(options, disk, queue, clock);
  ASSERT_TRUE(absl::IsFailedPrecondition(tier.status()));
  EXPECT_NE(base::message_of(tier.status()).find("/kv"), std::string::npos);
  EXPECT_EQ(*disk.list(), std::vector<std::string>{"thesis.txt"});
}

TEST_F(SsdTierTest, AnotherFormatIsEmptied) {
  open_and_scan();
  put_all(0, 5);
  close();
  base::DiskBuffer buffer(base::kDiskAlign);
  std::ranges::fill(buffer.span(), uint8_t{0});
  std::ranges::copy(std::string("pagoda kv cache, format 999\n"), buffer.span().begin());
  ASSERT_TRUE((*disk.open("FORMAT"))->write(0, buffer.span()).ok());
  open_and_scan();
  EXPECT_TRUE(segments().empty());
  EXPECT_TRUE(put(1).ok());
  reopen();
  EXPECT_TRUE(get(1).ok());
}

TEST_F(SsdTierTest, AdminSeesWhatIsThere) {
  open_and_scan();
  for (int32_t id = 0; id < 12; ++id) ASSERT_TRUE(put(id, -1, id % 2).ok());
  close();
  const auto report = inspect_ssd(disk, "/kv");
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->n_segments, 2);
  EXPECT_EQ(report->n_records, 12);
  ASSERT_EQ(report->identities.size(), 1U);
  EXPECT_EQ(report->identities[0].digest, options.identity);
  EXPECT_EQ(report->identities[0].n_records, 12);
  ASSERT_EQ(report->salts.size(), 2U);
  EXPECT_EQ(report->salts[0].data_bytes, 6 * kTestBlockBytes);
  EXPECT_EQ(report->oldest_s, clock.unix_s());
  ASSERT_TRUE(verify_ssd(disk, "/kv")->faults.empty());
  disk.flip_bit(segment_name(2), kSegmentHeaderBytes + 5000);
  const auto verified = verify_ssd(disk, "/kv");
  ASSERT_EQ(verified->faults.size(), 1U);
  EXPECT_EQ(verified->n_records, 11);
  EXPECT_NE(verified->faults[0].find(segment_name(2)), std::string::npos);
  EXPECT_EQ(*purge_ssd(disk, "/kv"), 2);
  EXPECT_TRUE(segments().empty());
}

}  // namespace
}  // namespace pagoda::cache
