// SPDX-License-Identifier: Apache-2.0
// At stake: everything above trusts this layer's words: a queue neither loses nor reorders, a wait
// ends at its deadline, shared memory that cannot be had is an error and no signal, a folder of
// another user is refused, a lock dies with its holder, a write is whole or not there.
#include "tests/check.h"

#include "proto/os/os.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

// ---- queue

enum { ITEMS = 20000, PRODUCERS = 2 };

struct item {
    uint32_t producer;
    uint32_t number;
};

struct producer {
    struct os_queue *queue;
    uint32_t index;
};

static void produce(void *argument)
{
    struct producer *producer = argument;
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct item item = {producer->index, i};
        CHECK_OK(os_queue_push(producer->queue, &item));
    }
}

static void queue_keeps_order_over_threads(void **state)
{
    (void)state;
    struct os_queue queue;
    CHECK_OK(os_queue_init(&queue, sizeof(struct item), 7));
    struct producer producers[PRODUCERS];
    struct os_thread *threads[PRODUCERS];
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){&queue, i};
        CHECK_OK(os_thread_start("produce", produce, &producers[i], &threads[i]));
    }
    uint32_t next[PRODUCERS] = {0};
    for (uint32_t i = 0; i < PRODUCERS * ITEMS; i++) {
        struct item item;
        CHECK_OK(os_queue_pop(&queue, &item, 5000));
        assert_int_equal(item.number, next[item.producer]++);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        os_thread_join(threads[i]);
    }
    assert_int_equal(os_queue_count(&queue), 0);
    os_queue_finish(&queue);
}

static void queue_is_bounded_and_timed(void **state)
{
    (void)state;
    struct os_queue queue;
    int item = 1;
    CHECK_OK(os_queue_init(&queue, sizeof(item), 2));
    CHECK_OK(os_queue_try_push(&queue, &item));
    item = 2;
    CHECK_OK(os_queue_try_push(&queue, &item));
    assert_int_equal(os_queue_try_push(&queue, &item), STATUS_BUSY);
    assert_int_equal(os_queue_count(&queue), 2);
    CHECK_OK(os_queue_pop(&queue, &item, 0));
    assert_int_equal(item, 1);
    os_queue_close(&queue);
    assert_int_equal(os_queue_try_push(&queue, &item), STATUS_CLOSED);
    assert_int_equal(os_queue_push(&queue, &item), STATUS_CLOSED);
    CHECK_OK(os_queue_pop(&queue, &item, 0)); // what was pushed before is handed out
    assert_int_equal(item, 2);
    assert_int_equal(os_queue_pop(&queue, &item, OS_WAIT_FOREVER), STATUS_CLOSED);
    os_queue_finish(&queue);
    CHECK_OK(os_queue_init(&queue, sizeof(item), 2));
    assert_int_equal(os_queue_pop(&queue, &item, 0), STATUS_TIMEOUT);
    uint64_t begin = os_clock_ms();
    assert_int_equal(os_queue_pop(&queue, &item, 50), STATUS_TIMEOUT);
    assert_in_range(os_clock_ms() - begin, 45, 1000);
    os_queue_finish(&queue);
    os_queue_finish(&(struct os_queue){0});
}

static void close_soon(void *argument)
{
    os_sleep_ms(50);
    os_queue_close(argument);
}

static void closing_wakes_who_waits(void **state)
{
    (void)state;
    struct os_queue queue;
    struct os_thread *thread;
    int item = 0;
    CHECK_OK(os_queue_init(&queue, sizeof(item), 1));
    CHECK_OK(os_thread_start("close", close_soon, &queue, &thread));
    assert_int_equal(os_queue_pop(&queue, &item, OS_WAIT_FOREVER), STATUS_CLOSED);
    os_thread_join(thread);
    os_queue_finish(&queue);
    CHECK_OK(os_queue_init(&queue, sizeof(item), 1));
    CHECK_OK(os_queue_push(&queue, &item));
    CHECK_OK(os_thread_start("close", close_soon, &queue, &thread));
    assert_int_equal(os_queue_push(&queue, &item), STATUS_CLOSED);
    os_thread_join(thread);
    os_queue_finish(&queue);
    os_thread_join(NULL);
}

// ---- clock

static void clocks_and_deadlines(void **state)
{
    (void)state;
    char text[OS_CLOCK_TEXT_BYTES];
    os_clock_text(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    os_clock_text(951827696789, text); // a 29th of February
    assert_string_equal(text, "2000-02-29T12:34:56.789Z");
    assert_true(os_clock_wall_ms() > 1700000000000);
    assert_true(os_clock_deadline(OS_WAIT_FOREVER) == OS_DEADLINE_NEVER);
    assert_int_equal(os_clock_left(OS_DEADLINE_NEVER), OS_WAIT_FOREVER);
    assert_int_equal(os_clock_left(0), 0);
    assert_in_range(os_clock_left(os_clock_deadline(1000)), 900, 1000);
    uint64_t begin = os_clock_ns();
    os_sleep_ms(20);
    assert_in_range((os_clock_ns() - begin) / 1000000, 20, 1000);
    uint8_t random[2][16];
    os_random(random[0], 16);
    os_random(random[1], 16);
    assert_memory_not_equal(random[0], random[1], 16);
}

// ---- shared memory

static void shm_name(char *out, size_t bytes)
{
    snprintf(out, bytes, "/kvtier-test-%ld", (long)getpid());
}

static void shm_is_shared_and_exclusive(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    struct os_shm one;
    struct os_shm two;
    struct reason reason = {0};
    assert_int_equal(os_shm_open(name, &two, &reason), STATUS_NOT_FOUND);
    assert_true(strstr(reason.text, name) != NULL);
    CHECK_OK(os_shm_create(name, 1 << 20, &one, &reason));
    assert_int_equal(os_shm_create(name, 1 << 20, &two, &reason), STATUS_EXISTS);
    CHECK_OK(os_shm_open(name, &two, &reason));
    assert_int_equal(two.bytes, 1 << 20);
    uint64_t backed = 1;
    CHECK_OK(os_shm_backed_bytes(&one, &backed));
    assert_int_equal(backed, 0); // sparse
    CHECK_OK(os_shm_reserve(&one, 4096, 8192));
    CHECK_OK(os_shm_backed_bytes(&two, &backed));
    assert_int_equal(backed, 8192);
    ((uint8_t *)one.base)[5000] = 42;
    assert_int_equal(((uint8_t *)two.base)[5000], 42);
    CHECK_OK(os_shm_reserve(&one, 0, 1 << 20)); // what is there stays
    assert_int_equal(((uint8_t *)two.base)[5000], 42);
    CHECK_OK(os_shm_reserve(&one, 0, 0));
    CHECK_OK(os_shm_unlink(name));
    assert_int_equal(os_shm_unlink(name), STATUS_NOT_FOUND);
    ((uint8_t *)one.base)[6000] = 43; // mappings outlive the name
    assert_int_equal(((uint8_t *)two.base)[6000], 43);
    os_shm_close(&one);
    os_shm_close(&two);
    os_shm_close(&(struct os_shm){0});
}

static void shm_of_others_or_empty_is_refused(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    struct os_shm shm;
    struct reason reason = {0};
    CHECK_OK(os_shm_create(name, 4096, &shm, &reason));
    struct stat info;
    assert_int_equal(fstat(shm.handle, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    struct os_shm other;
    assert_int_equal(fchmod(shm.handle, 0640), 0);
    assert_int_equal(os_shm_open(name, &other, &reason), STATUS_PERMISSION);
    assert_int_equal(fchmod(shm.handle, 0600), 0);
    assert_int_equal(ftruncate(shm.handle, 0), 0);
    assert_int_equal(os_shm_open(name, &other, &reason), STATUS_DAMAGED);
    os_shm_close(&shm);
    CHECK_OK(os_shm_unlink(name));
}

static void shm_that_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    char name[64];
    shm_name(name, sizeof(name));
    uint64_t free_bytes;
    uint64_t total_bytes;
    CHECK_OK(os_shm_capacity(&free_bytes, &total_bytes));
    assert_true(free_bytes <= total_bytes && total_bytes > 0);
    if (total_bytes > (UINT64_C(1) << 40)) {
        print_message("/dev/shm has no bound here: skipped\n");
        skip();
    }
    struct os_shm shm;
    size_t bytes = (size_t)total_bytes * 2;
    CHECK_OK(os_shm_create(name, bytes, &shm, NULL)); // a promise of nothing
    enum status status = os_shm_reserve(&shm, 0, bytes);
    os_shm_close(&shm);
    CHECK_OK(os_shm_unlink(name));
    assert_int_equal(status, STATUS_NO_MEMORY);
    CHECK_OK(os_shm_capacity(&total_bytes, &total_bytes)); // and the part it got is given back
}

static void private_memory_has_the_same_shape(void **state)
{
    (void)state;
    struct os_shm shm;
    CHECK_OK(os_shm_create_private(1 << 20, &shm, NULL));
    uint64_t backed = 1;
    CHECK_OK(os_shm_backed_bytes(&shm, &backed));
    assert_int_equal(backed, 0);
    CHECK_OK(os_shm_reserve(&shm, 0, 4096));
    ((uint8_t *)shm.base)[4095] = 1;
    CHECK_OK(os_shm_lock(&shm, 0));
    bool held = true;
    CHECK_OK(os_shm_lock_held(&shm, 0, &held)); // by ourselves does not count
    assert_false(held);
    os_shm_unlock(&shm, 0);
    os_shm_close(&shm);
}

// ---- files and folders

static void folders_are_ours_alone(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    struct reason reason = {0};
    snprintf(path, sizeof(path), "%s/a/b/c", base);
    CHECK_OK(os_folder_create(path, &reason));
    CHECK_OK(os_folder_create(path, &reason)); // again
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(os_folder_create(path, &reason), STATUS_PERMISSION);
    assert_true(strstr(reason.text, path) != NULL);
    assert_int_equal(chmod(path, 0700), 0);
    char link_path[300];
    snprintf(link_path, sizeof(link_path), "%s/link", base);
    assert_int_equal(symlink(path, link_path), 0);
    assert_int_equal(os_folder_create(link_path, &reason), STATUS_INVALID);
    char file_path[300];
    snprintf(file_path, sizeof(file_path), "%s/file", base);
    CHECK_OK(os_file_write_atomic(file_path, "x", 1));
    assert_int_equal(os_folder_create(file_path, &reason), STATUS_INVALID);
    assert_int_equal(os_folder_create("relative", &reason), STATUS_INVALID);
    if (getuid() == 0) { // only root can make another user's folder
        assert_int_equal(chown(path, 1, 1), 0);
        assert_int_equal(os_folder_create(path, &reason), STATUS_PERMISSION);
    }
    struct os_folder_identity one;
    struct os_folder_identity two;
    CHECK_OK(os_folder_identify(base, &one));
    CHECK_OK(os_folder_identify(path, &two));
    assert_true(one.inode != two.inode);
    snprintf(path, sizeof(path), "%s/absent", base);
    assert_int_equal(os_folder_identify(path, &one), STATUS_NOT_FOUND);
    uint64_t free_bytes = 1;
    uint64_t total_bytes = 0;
    CHECK_OK(os_folder_space(base, &free_bytes, &total_bytes));
    assert_true(free_bytes <= total_bytes);
    assert_int_equal(os_folder_space(path, &free_bytes, &total_bytes), STATUS_NOT_FOUND);
    check_folder_remove(base);
}

static void files_are_read_and_written_whole(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/file", base);
    uint8_t *data = NULL;
    size_t bytes = 0;
    assert_int_equal(os_file_read_all(path, 100, &data, &bytes), STATUS_NOT_FOUND);
    static const size_t sizes[] = {0, 1, 65534, 65535, 65536, 65537, 300000};
    char *content = malloc(300000);
    for (size_t i = 0; i < 300000; i++) {
        content[i] = (char)(i * 31 >> 3);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK_OK(os_file_write_atomic(path, content, sizes[i]));
        CHECK_OK(os_file_read_all(path, sizes[i], &data, &bytes));
        assert_int_equal(bytes, sizes[i]);
        assert_memory_equal(data, content, bytes);
        assert_int_equal(data[bytes], 0);
        free(data);
        if (sizes[i] > 0) {
            assert_int_equal(os_file_read_all(path, sizes[i] - 1, &data, &bytes), STATUS_REFUSED);
        }
    }
    free(content);
    char other[300];
    snprintf(other, sizeof(other), "%s/absent/file", base);
    assert_int_equal(os_file_write_atomic(other, "x", 1), STATUS_NOT_FOUND);
    CHECK_OK(os_file_remove(path));
    assert_int_equal(os_file_remove(path), STATUS_NOT_FOUND);
    assert_int_equal(rmdir(base), 0); // nothing else was left there
}

static void a_file_lock_dies_with_its_holder(void **state)
{
    (void)state;
    char base[256];
    char path[300];
    check_folder_create(base);
    snprintf(path, sizeof(path), "%s/x.lock", base);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct os_file_lock lock;
        uint64_t holder;
        char byte = os_file_lock_acquire(path, &lock, &holder) == STATUS_OK;
        (void)!write(ready[1], &byte, 1);
        pause();
        _exit(0);
    }
    char byte = 0;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    struct os_file_lock lock;
    struct os_file_lock second;
    uint64_t holder = 0;
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_BUSY);
    assert_int_equal(holder, pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK_OK(os_file_lock_acquire(path, &lock, &holder));
    assert_int_equal(os_file_lock_acquire(path, &second, &holder), STATUS_BUSY); // of one process
    assert_int_equal(holder, getpid());
    os_file_lock_release(&lock);
    os_file_lock_release(&lock);
    CHECK_OK(os_file_lock_acquire(path, &second, &holder));
    os_file_lock_release(&second);
    snprintf(path, sizeof(path), "%s/absent/x.lock", base);
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_NOT_FOUND);
    char target[300];
    snprintf(target, sizeof(target), "%s/target", base);
    snprintf(path, sizeof(path), "%s/link.lock", base);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(os_file_lock_acquire(path, &lock, &holder), STATUS_PERMISSION);
    check_folder_remove(base);
}

// ---- machine and service

static void the_machine_says_what_it_has(void **state)
{
    (void)state;
    struct os_memory memory;
    struct os_process_memory before;
    struct os_process_memory after;
    CHECK_OK(os_machine_memory(&memory));
    assert_true(memory.total_bytes > 64u << 20 && memory.available_bytes <= memory.total_bytes);
    CHECK_OK(os_machine_process(&before));
    size_t bytes = 32u << 20;
    volatile char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i += 512) {
        data[i] = 1;
    }
    CHECK_OK(os_machine_process(&after));
    assert_in_range(after.anonymous_bytes - before.anonymous_bytes, bytes - (1 << 20), 2 * bytes);
    assert_true(after.resident_bytes >= after.anonymous_bytes);
    free((void *)(uintptr_t)data);
    assert_true(os_machine_cpu_count() >= 1);
    assert_int_equal(os_machine_user_id(), geteuid());
    assert_int_equal(os_machine_process_id(), getpid());
}

static void signals_wait_for_their_thread(void **state)
{
    (void)state;
    os_service_init();
    assert_int_equal(os_service_wait(0), OS_SIGNAL_NONE);
    uint64_t begin = os_clock_ms();
    assert_int_equal(os_service_wait(30), OS_SIGNAL_NONE);
    assert_in_range(os_clock_ms() - begin, 25, 1000);
    kill(getpid(), SIGTERM);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_STOP);
    kill(getpid(), SIGINT);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_INTERRUPT);
    kill(getpid(), SIGHUP);
    assert_int_equal(os_service_wait(1000), OS_SIGNAL_RELOAD);
    assert_int_equal(os_service_wait(0), OS_SIGNAL_NONE);
}

static void the_service_manager_is_told(void **state)
{
    (void)state;
    char base[256];
    check_folder_create(base);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/notify", base);
    int handle = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(handle, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_OK(os_service_notify(address.sun_path, "READY=1"));
    char text[64] = {0};
    assert_int_equal(recv(handle, text, sizeof(text) - 1, 0), 7);
    assert_string_equal(text, "READY=1");
    close(handle);
    assert_int_equal(os_service_notify(address.sun_path, "READY=1"), STATUS_UNREACHABLE);
    CHECK_OK(os_service_notify(NULL, "READY=1"));
    CHECK_OK(os_service_notify("", "READY=1"));
    assert_int_equal(os_service_notify("relative", "READY=1"), STATUS_INVALID);
    check_folder_remove(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_keeps_order_over_threads),
        cmocka_unit_test(queue_is_bounded_and_timed),
        cmocka_unit_test(closing_wakes_who_waits),
        cmocka_unit_test(clocks_and_deadlines),
        cmocka_unit_test(shm_is_shared_and_exclusive),
        cmocka_unit_test(shm_of_others_or_empty_is_refused),
        cmocka_unit_test(shm_that_cannot_be_had_is_an_error),
        cmocka_unit_test(private_memory_has_the_same_shape),
        cmocka_unit_test(folders_are_ours_alone),
        cmocka_unit_test(files_are_read_and_written_whole),
        cmocka_unit_test(a_file_lock_dies_with_its_holder),
        cmocka_unit_test(the_machine_says_what_it_has),
        cmocka_unit_test(signals_wait_for_their_thread),
        cmocka_unit_test(the_service_manager_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
