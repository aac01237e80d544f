// SPDX-License-Identifier: Apache-2.0
// thread.h over pthreads. Condition variables wait on the monotonic clock, so that setting the wall
// clock neither hangs nor hurries a wait. Threads block the signals of service.h: they belong to
// the one thread that waits for them.
#include "proto/os/thread.h"

#include "proto/os/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static_assert(sizeof(struct os_mutex) >= sizeof(pthread_mutex_t), "storage fits");
static_assert(sizeof(struct os_condition) >= sizeof(pthread_cond_t), "storage fits");

enum { THREAD_NAME_BYTES = 16 }; // what Linux keeps, with its NUL

struct os_thread {
    pthread_t id;
    void (*body)(void *argument);
    void *argument;
    char name[THREAD_NAME_BYTES];
};

static void *thread_main(void *context)
{
    struct os_thread *thread = context;
    (void)pthread_setname_np(pthread_self(), thread->name); // a nicety: no name is no failure
    thread->body(thread->argument);
    return NULL;
}

enum status os_thread_start(const char *name, void (*body)(void *argument), void *argument,
                            struct os_thread **out_thread)
{
    struct os_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL) {
        return STATUS_NO_MEMORY;
    }
    thread->body = body;
    thread->argument = argument;
    snprintf(thread->name, sizeof(thread->name), "%s", name);
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int error = pthread_create(&thread->id, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        free(thread);
        return STATUS_NO_MEMORY;
    }
    *out_thread = thread;
    return STATUS_OK;
}

void os_thread_join(struct os_thread *thread)
{
    if (thread == NULL) {
        return;
    }
    int error = pthread_join(thread->id, NULL);
    assert(error == 0);
    (void)error;
    free(thread);
}

void os_thread_yield(void)
{
    sched_yield();
}

static pthread_mutex_t *native_mutex(struct os_mutex *mutex)
{
    return (pthread_mutex_t *)(void *)mutex->opaque;
}

static pthread_cond_t *native_condition(struct os_condition *condition)
{
    return (pthread_cond_t *)(void *)condition->opaque;
}

void os_mutex_init(struct os_mutex *mutex)
{
    int error = pthread_mutex_init(native_mutex(mutex), NULL);
    assert(error == 0);
    (void)error;
}

void os_mutex_finish(struct os_mutex *mutex)
{
    int error = pthread_mutex_destroy(native_mutex(mutex));
    assert(error == 0);
    (void)error;
}

void os_mutex_lock(struct os_mutex *mutex)
{
    int error = pthread_mutex_lock(native_mutex(mutex));
    assert(error == 0);
    (void)error;
}

void os_mutex_unlock(struct os_mutex *mutex)
{
    int error = pthread_mutex_unlock(native_mutex(mutex));
    assert(error == 0);
    (void)error;
}

void os_condition_init(struct os_condition *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int error = pthread_cond_init(native_condition(condition), &attributes);
    pthread_condattr_destroy(&attributes);
    assert(error == 0);
    (void)error;
}

void os_condition_finish(struct os_condition *condition)
{
    int error = pthread_cond_destroy(native_condition(condition));
    assert(error == 0);
    (void)error;
}

void os_condition_signal(struct os_condition *condition)
{
    pthread_cond_signal(native_condition(condition));
}

void os_condition_broadcast(struct os_condition *condition)
{
    pthread_cond_broadcast(native_condition(condition));
}

bool os_condition_wait(struct os_condition *condition, struct os_mutex *mutex, uint64_t deadline_ms)
{
    if (deadline_ms == OS_DEADLINE_NEVER) {
        pthread_cond_wait(native_condition(condition), native_mutex(mutex));
        return true;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ms / 1000),
                             .tv_nsec = (long)(deadline_ms % 1000) * 1000000L};
    return pthread_cond_timedwait(native_condition(condition), native_mutex(mutex), &until) !=
           ETIMEDOUT;
}
