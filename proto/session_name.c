// SPDX-License-Identifier: Apache-2.0
// Names come from users and end in messages, database keys and export files; what is dangerous in
// any of them is refused here.

#include "proto/session_name.h"

#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

// Length of the UTF-8 sequence at `at` (RFC 3629: no surrogates, nothing over-long, at most
// U+10FFFF), its code point in *out_point; 0 when it is not one. A NUL ends any sequence.
static size_t utf8_length(const uint8_t *at, uint32_t *out_point)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = at[0] < 0x80             ? 1
                    : (at[0] & 0xe0) == 0xc0 ? 2
                    : (at[0] & 0xf0) == 0xe0 ? 3
                    : (at[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (length == 0) {
        return 0;
    }
    uint32_t point = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (at[i] & 0x3f);
    }
    if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
        return 0;
    }
    *out_point = point;
    return length;
}

static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029;
}

// CON, PRN, AUX, NUL, COM1..9, LPT1..9, alone or before an extension, in any case.
static bool is_device(const char *name)
{
    size_t length = strcspn(name, ".");
    while (length > 0 && name[length - 1] == ' ') {
        length--;
    }
    if (length == 3) {
        return strncasecmp(name, "con", 3) == 0 || strncasecmp(name, "prn", 3) == 0 ||
               strncasecmp(name, "aux", 3) == 0 || strncasecmp(name, "nul", 3) == 0;
    }
    return length == 4 && name[3] >= '1' && name[3] <= '9' &&
           (strncasecmp(name, "com", 3) == 0 || strncasecmp(name, "lpt", 3) == 0);
}

static enum status refuse(struct reason *reason, const char *why)
{
    return reason_set(reason, STATUS_INVALID, "choose another name", "session name: %s", why);
}

enum status session_name_check(const char *name, struct reason *reason)
{
    size_t bytes = strnlen(name, LIMIT_SESSION_NAME_BYTES + 1);
    if (bytes == 0) {
        return refuse(reason, "is empty");
    }
    if (bytes > LIMIT_SESSION_NAME_BYTES) {
        return refuse(reason, "is longer than 128 bytes");
    }
    for (const uint8_t *at = (const uint8_t *)name; *at != '\0';) {
        uint32_t point = 0;
        size_t length = utf8_length(at, &point);
        if (length == 0) {
            return refuse(reason, "is not UTF-8");
        }
        if (is_control(point)) {
            return refuse(reason, "has a control character");
        }
        if (point == '/' || point == '\\') {
            return refuse(reason, "has a slash or backslash");
        }
        at += length;
    }
    if (strstr(name, "..") != NULL) {
        return refuse(reason, "has \"..\"");
    }
    return is_device(name) ? refuse(reason, "is the name of a device on Windows") : STATUS_OK;
}
