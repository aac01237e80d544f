// SPDX-License-Identifier: Apache-2.0
// At stake: that a question about the disk sees all namespaces when it may, and only its user's
// sessions when not. Two namespaces, one of them in use, as kvctl and gpud ask.
#include "kvstored/inspector.h"
#include "tests/kvstored/disk_rig.h"

#include <sys/stat.h>

struct bench {
    char data_dir[200];
    struct catalog catalog;
    struct disk_rig active, other;
    struct bell bell;
    struct inspector *inspector;
};

static void open_rig(struct bench *bench, struct disk_rig *rig, uint8_t mark)
{
    char path[CATALOG_PATH_BYTES];
    struct catalog_name name;
    *rig = (struct disk_rig){.name_space = rig_namespace(mark)};
    catalog_name_of(rig->name_space.fingerprint, &name);
    catalog_path(&bench->catalog, &name, path);
    assert_true(strlen(path) < sizeof(rig->folder));
    strcpy(rig->folder, path);
    CHECK_OK(disk_rig_open(rig, 32 << 20));
}

static struct bench *bench_create(void)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    char folder[256];
    struct reason reason = {0};
    check_folder_create(folder);
    assert_true(strlen(folder) < sizeof(bench->data_dir));
    strcpy(bench->data_dir, folder);
    CHECK_OK(catalog_open(bench->data_dir, &bench->catalog, &reason));
    open_rig(bench, &bench->active, 1);
    open_rig(bench, &bench->other, 2);
    disk_rig_put_chain(&bench->active, 1, 6);
    disk_rig_put_session(&bench->active, "one", 1, 6, false, 10);
    disk_rig_put_session(&bench->active, "two", 1, 2, false, 20);
    disk_rig_put_chain(&bench->other, 1, 4);
    disk_rig_put_session(&bench->other, "one", 1, 4, true, 30);
    disk_close(bench->other.disk); // the inspector opens it itself
    bell_init(&bench->bell, NULL, NULL);
    CHECK_OK(inspector_start(&bench->catalog, bench->active.disk, &bench->bell, &bench->inspector));
    return bench;
}

static void bench_destroy(struct bench *bench)
{
    inspector_stop(bench->inspector);
    inspector_destroy(bench->inspector);
    disk_close(bench->active.disk);
    bell_finish(&bench->bell);
    catalog_close(&bench->catalog);
    check_folder_remove(bench->data_dir);
    free(bench);
}

// Asks and waits; the caller destroys the job.
static struct inspector_job *ask(struct bench *bench, enum kv_op op, bool scoped, const char *salt,
                                 const char *name)
{
    struct inspector_job *job = calloc(1, sizeof(*job));
    uint64_t deadline = os_clock_ms() + 10000;
    job->op = op;
    job->scoped = scoped;
    job->salt_bytes = (uint32_t)strlen(salt);
    memcpy(job->salt, salt, job->salt_bytes);
    strcpy(job->name, name);
    if (op == KV_OP_BLOCK) {
        struct rig_block block;
        rig_block_make(&bench->active.name_space, 1, 2, &block);
        memcpy(job->block.id, block.header.id.bytes, BLOCK_ID_BYTES);
    }
    CHECK_OK(inspector_submit(bench->inspector, job));
    while (!inspector_next_result(bench->inspector, &job)) {
        assert_true(os_clock_ms() < deadline);
        bell_wait(&bench->bell, 100);
    }
    return job;
}

static void lists(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct inspector_job *job = ask(bench, KV_OP_SESSION_LIST, true, "u", "");
    CHECK_OK(job->reply.status);
    assert_int_equal(job->reply.session_list.count, 2);
    assert_int_equal(job->id_count, 8); // of both rows
    assert_int_equal(job->reply.session_list.rows[0].disk_block_count, 6);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_SESSION_LIST, true, "v", "");
    assert_int_equal(job->reply.session_list.count, 0);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_SESSION_LIST, false, "", "");
    assert_int_equal(job->reply.session_list.count, 3);
    assert_int_equal(job->reply.session_list.rows[2].fingerprint[0], 2);
    assert_int_equal(job->reply.session_list.rows[2].disk_block_count, 4);
    assert_int_equal(job->id_count, 8); // only of the namespace in use
    inspector_job_destroy(job);
    bench_destroy(bench);
}

static void gets(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct inspector_job *job = ask(bench, KV_OP_SESSION_GET, true, "u", "one");
    CHECK_OK(job->reply.status);
    assert_int_equal(job->reply.session_get.token_count, 6 * 16);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_SESSION_GET, false, "", "one"); // the one updated last
    CHECK_OK(job->reply.status);
    assert_int_equal(job->reply.session_get.token_count, 4 * 16);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_SESSION_GET, true, "v", "one");
    assert_int_equal(job->reply.status, STATUS_NOT_FOUND);
    inspector_job_destroy(job);
    disk_rig_spoil_session(&bench->active, "two");
    job = ask(bench, KV_OP_SESSION_GET, true, "u", "two");
    assert_int_equal(job->reply.status, STATUS_NOT_FOUND);
    assert_int_equal(job->damaged_session_count, 1);
    inspector_job_destroy(job);
    bench_destroy(bench);
}

static void chains_and_blocks(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct inspector_job *job = ask(bench, KV_OP_BLOCKS, false, "", "two");
    CHECK_OK(job->reply.status);
    assert_int_equal(job->id_count, 2);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_BLOCKS, false, "", "none");
    assert_int_equal(job->reply.status, STATUS_NOT_FOUND);
    inspector_job_destroy(job);
    job = ask(bench, KV_OP_BLOCK, false, "", "");
    CHECK_OK(job->reply.status);
    assert_true(job->reply.block.intact);
    assert_int_equal(job->reply.block.header.first_position, 32);
    inspector_job_destroy(job);
    bench_destroy(bench);
}

static void verifies_all_and_repairs_what_is_not_in_use(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    inspector_stop(bench->inspector);
    inspector_destroy(bench->inspector);
    CHECK_OK(disk_rig_open(&bench->other, 32 << 20));
    disk_rig_put_damaged(&bench->other, 3, 0);
    disk_close(bench->other.disk);
    disk_rig_put_damaged(&bench->active, 3, 0);
    CHECK_OK(inspector_start(&bench->catalog, bench->active.disk, &bench->bell, &bench->inspector));
    struct inspector_job *job = calloc(1, sizeof(*job));
    job->op = KV_OP_VERIFY;
    job->verify.repair = true;
    CHECK_OK(inspector_submit(bench->inspector, job));
    while (!inspector_next_result(bench->inspector, &job)) {
        bell_wait(&bench->bell, 100);
    }
    CHECK_OK(job->reply.status);
    assert_int_equal(job->reply.verify.namespace_count, 2);
    assert_int_equal(job->reply.verify.session_count, 3);
    assert_int_equal(job->reply.verify.block_count, 12);
    assert_int_equal(job->reply.verify.damaged_count, 2);
    assert_int_equal(job->reply.verify.repaired_count, 1); // the other is its writer's
    assert_int_equal(job->damage.blocks.count, 1);
    inspector_job_destroy(job);
    bench_destroy(bench);
}

static void a_stop_answers_everything(void **state)
{
    (void)state;
    struct bench *bench = bench_create();
    struct inspector_job *job;
    uint32_t count = 0, answered = 0;
    for (;; count++) {
        job = calloc(1, sizeof(*job));
        job->op = KV_OP_VERIFY;
        if (inspector_submit(bench->inspector, job) != STATUS_OK) {
            break;
        }
    }
    inspector_job_destroy(job);
    assert_int_equal(count, INSPECTOR_JOBS_MAX);
    inspector_stop(bench->inspector);
    while (inspector_next_result(bench->inspector, &job)) {
        assert_true(job->reply.status == STATUS_OK || job->reply.status == STATUS_CLOSED ||
                    job->reply.status == STATUS_CANCELLED);
        inspector_job_destroy(job);
        answered++;
    }
    assert_int_equal(answered, count);
    inspector_destroy(bench->inspector);
    CHECK_OK(inspector_start(&bench->catalog, bench->active.disk, &bench->bell, &bench->inspector));
    bench_destroy(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(gets),
        cmocka_unit_test(chains_and_blocks),
        cmocka_unit_test(verifies_all_and_repairs_what_is_not_in_use),
        cmocka_unit_test(a_stop_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
