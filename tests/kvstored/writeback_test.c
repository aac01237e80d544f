// SPDX-License-Identifier: Apache-2.0
// At stake: an answer that comes before the disk has it, or never. Blocks and jobs through the
// thread, damaged and refused ones, and a stop with work left.
#include "kvstored/writeback.h"
#include "tests/kvstored/disk_rig.h"

enum { BLOCKS = 60 };

struct bench {
    struct disk_rig rig;
    struct bell bell;
    struct writeback *writeback;
    struct rig_block blocks[BLOCKS];
};

static struct bench *bench_create(void)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    disk_rig_init(&bench->rig);
    bell_init(&bench->bell, NULL, NULL);
    CHECK_OK(writeback_start(bench->rig.disk, &bench->bell, BLOCKS, &bench->writeback));
    for (uint32_t i = 0; i < BLOCKS; i++) {
        rig_block_make(&bench->rig.name_space, 1, i, &bench->blocks[i]);
    }
    return bench;
}

static void bench_destroy(struct bench *bench)
{
    writeback_stop(bench->writeback, 1000);
    writeback_destroy(bench->writeback);
    bell_finish(&bench->bell);
    disk_rig_finish(&bench->rig);
    free(bench);
}

static void submit(struct bench *bench, uint32_t index)
{
    writeback_submit_block(bench->writeback, &(struct writeback_block){
                                                 .slot = index,
                                                 .id = bench->blocks[index].header.id,
                                                 .header = &bench->blocks[index].header,
                                                 .payload = bench->blocks[index].payload,
                                             });
}

static struct writeback_result take(struct bench *bench)
{
    struct writeback_result result;
    uint64_t deadline = os_clock_ms() + 10000;
    while (!writeback_next_result(bench->writeback, &result)) {
        assert_true(os_clock_ms() < deadline);
        bell_wait(&bench->bell, 100);
    }
    return result;
}

static struct writeback_job *job_of(enum writeback_job_kind kind, const char *name)
{
    struct writeback_job *job = calloc(1, sizeof(*job));
    static const uint32_t tokens[32] = {1};
    const struct kv_checkpoint checkpoint = {
        .name = name, .tokens = tokens, .token_count = 32, .salt = "u", .salt_bytes = 1};
    job->kind = kind;
    checkpoint_key_make(name, "u", 1, &job->key);
    CHECK_OK(checkpoint_copy(&checkpoint, &job->checkpoint));
    return job;
}

static void what_is_answered_is_on_disk(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    for (uint32_t i = 0; i < BLOCKS; i++) {
        submit(bench, i);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct writeback_result result = take(bench);
        assert_int_equal(result.slot, i); // in the order of the work
        CHECK_OK(result.status);
        assert_int_equal(result.written_bytes, RIG_PAYLOAD_BYTES);
        assert_true(disk_rig_has(&bench->rig, 1, i));
    }
    submit(bench, 7);
    struct writeback_result again = take(bench);
    CHECK_OK(again.status);
    assert_int_equal(again.written_bytes, 0); // it was there
    bench_destroy(bench);
}

static void what_decayed_is_not_written(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    bench->blocks[1].payload[5000] ^= 1;
    bench->blocks[2].header.tokens[3]++;
    bench->blocks[3].header = bench->blocks[4].header; // a whole header, of another block
    for (uint32_t i = 0; i < 4; i++) {
        writeback_submit_block(bench->writeback, &(struct writeback_block){
                                                     .slot = i,
                                                     .id = i == 3 ? bench->blocks[5].header.id
                                                                  : bench->blocks[i].header.id,
                                                     .header = &bench->blocks[i].header,
                                                     .payload = bench->blocks[i].payload,
                                                 });
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct writeback_result result = take(bench);
        assert_int_equal(result.status, i == 0 ? STATUS_OK : STATUS_DAMAGED);
    }
    assert_true(disk_rig_has(&bench->rig, 1, 0)); // the batch's sound block is there
    assert_false(disk_rig_has(&bench->rig, 1, 1));
    bench_destroy(bench);
}

static void jobs_are_answered_when_done(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct writeback_job *job = job_of(WRITEBACK_CHECKPOINT, "s");
    job->checkpoint.keep = true;
    job->checkpoint.sync = true;
    CHECK_OK(writeback_submit_job(bench->writeback, job));
    struct writeback_result result = take(bench);
    assert_ptr_equal(result.job, job);
    CHECK_OK(job->status);
    assert_true(disk_rig_has_session(&bench->rig, "s"));
    writeback_job_destroy(job);
    // A later record without `keep` does not take it away.
    CHECK_OK(writeback_submit_job(bench->writeback, job_of(WRITEBACK_CHECKPOINT, "s")));
    writeback_job_destroy(take(bench).job);
    job = calloc(1, sizeof(*job));
    job->kind = WRITEBACK_EVICT;
    job->bytes = 1;
    CHECK_OK(writeback_submit_job(bench->writeback, job));
    result = take(bench);
    assert_int_equal(result.job->status, STATUS_REFUSED); // it is kept
    writeback_job_destroy(result.job);
    CHECK_OK(writeback_submit_job(bench->writeback, job_of(WRITEBACK_REMOVE_SESSION, "s")));
    result = take(bench);
    CHECK_OK(result.job->status);
    assert_int_equal(result.job->removed.session_count, 1);
    writeback_job_destroy(result.job);
    CHECK_OK(writeback_submit_job(bench->writeback, job_of(WRITEBACK_REMOVE_SESSION, "s")));
    result = take(bench);
    assert_int_equal(result.job->status, STATUS_NOT_FOUND);
    writeback_job_destroy(result.job);
    bench_destroy(bench);
}

static void jobs_are_bounded(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct writeback_job *job = job_of(WRITEBACK_REMOVE_SESSION, "x");
    uint32_t count = 0;
    while (writeback_submit_job(bench->writeback, job) == STATUS_OK) {
        job = job_of(WRITEBACK_REMOVE_SESSION, "x");
        count++;
    }
    assert_int_equal(count, WRITEBACK_JOBS_MAX); // results that wait count as well
    writeback_job_destroy(job);
    for (uint32_t i = 0; i < count; i++) {
        writeback_job_destroy(take(bench).job);
    }
    bench_destroy(bench);
}

static void a_stop_answers_everything(void **state)
{
    (void)state;
    for (uint32_t timeout_ms = 0; timeout_ms <= 5000; timeout_ms += 5000) {
        struct bench *bench = bench_create();
        uint32_t cancelled = 0;
        for (uint32_t i = 0; i < BLOCKS; i++) {
            submit(bench, i);
        }
        writeback_stop(bench->writeback, timeout_ms);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            struct writeback_result result = take(bench);
            assert_true(result.status == STATUS_OK || result.status == STATUS_CANCELLED);
            assert_int_equal(disk_rig_has(&bench->rig, 1, i), result.status == STATUS_OK);
            cancelled += result.status == STATUS_CANCELLED;
        }
        assert_true(timeout_ms == 0 || cancelled == 0);
        writeback_destroy(bench->writeback);
        bell_finish(&bench->bell);
        disk_rig_finish(&bench->rig);
        free(bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_answered_is_on_disk),
        cmocka_unit_test(what_decayed_is_not_written),
        cmocka_unit_test(jobs_are_answered_when_done),
        cmocka_unit_test(jobs_are_bounded),
        cmocka_unit_test(a_stop_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
