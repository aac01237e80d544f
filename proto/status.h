// SPDX-License-Identifier: Apache-2.0
// The one set of results that every module, both daemons and the wire use, and `struct reason`,
// which carries the words a person reads. Thread-safe: no state. Values are part of the wire
// protocol (docs/PROTOCOL.md): append, never renumber.
#ifndef KVTIER_PROTO_STATUS_H
#define KVTIER_PROTO_STATUS_H

enum status {
    STATUS_OK = 0,
    STATUS_INVALID = 1,      // the caller's input is malformed or out of range
    STATUS_NO_MEMORY = 2,    // memory (RAM, shared memory, device) could not be had
    STATUS_NO_SPACE = 3,     // disk or its budget is full
    STATUS_NOT_FOUND = 4,    // no such session, block, file
    STATUS_BUSY = 5,         // a bounded resource is in use; the same call may work later
    STATUS_REFUSED = 6,      // can never fit the limits, however long one waits
    STATUS_DAMAGED = 7,      // checksum, length or token comparison failed
    STATUS_UNREACHABLE = 8,  // the peer is not there
    STATUS_TIMEOUT = 9,      // the peer or device did not answer before the deadline
    STATUS_CLOSED = 10,      // the connection or queue ended
    STATUS_CANCELLED = 11,   // the user or client asked to stop
    STATUS_VERSION = 12,     // protocol or format version not understood
    STATUS_STALE = 13,       // a message of a dead instance (epoch) or an old generation
    STATUS_IO = 14,          // the operating system reported an I/O failure
    STATUS_EXISTS = 15,      // the name is taken
    STATUS_UNSUPPORTED = 16, // well-formed, but not something this build can do
    STATUS_PERMISSION = 17,  // the peer may not do this
    STATUS_MISMATCH = 18,    // belongs to another model, format or user
    STATUS_COUNT
};

#define KV_MUST_CHECK __attribute__((warn_unused_result))

enum { REASON_TEXT_BYTES = 384, REASON_HINT_BYTES = 192 };

// Why something failed, in the form of INTERFACE's one-line error: "WHAT: WHY; WHAT TO DO".
// Plain data, owned by the caller; `{0}` is "no reason".
struct reason {
    char text[REASON_TEXT_BYTES]; // WHAT: WHY, without a full stop
    char hint[REASON_HINT_BYTES]; // WHAT TO DO; may be empty
};

// Stable lower-case name of a status ("not_found"), the `code` of JSON errors; "unknown" otherwise.
const char *status_name(enum status status);

// The exit code of a program that ends with this status (docs: 0 done, 1 failed, 2 usage, 3 daemon
// unreachable, 4 not found, 5 busy or over quota, 6 refused, 7 damaged data found).
int status_exit_code(enum status status);

// The status a wire integer stands for; numbers outside the enum become STATUS_INVALID.
enum status status_from_wire(long long value);

// Makes a C string fit for a message, a log and a terminal: what is not UTF-8, and control
// characters, become '?'. Names that files and users chose may hold anything.
void text_clean(char *text);

// Fills `reason` (may be NULL) and returns `status`, so that a failing function ends with
// `return reason_set(reason, STATUS_X, "hint", "what: why %d", n);`. Cuts off what does not fit,
// and cleans it (text_clean).
enum status reason_set(struct reason *reason, enum status status, const char *hint,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
