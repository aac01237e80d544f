// SPDX-License-Identifier: Apache-2.0
// Whether a person watches: progress is drawn and prompts are printed on a terminal only. Any
// thread.
#ifndef KVTIER_PROTO_OS_TERMINAL_H
#define KVTIER_PROTO_OS_TERMINAL_H

#include <stdbool.h>

bool os_terminal_input(void);  // stdin is one
bool os_terminal_errors(void); // stderr is one

#endif
