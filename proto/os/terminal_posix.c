// SPDX-License-Identifier: Apache-2.0
#include "proto/os/terminal.h"

#include <unistd.h>

bool os_terminal_input(void)
{
    return isatty(STDIN_FILENO) == 1;
}

bool os_terminal_errors(void)
{
    return isatty(STDERR_FILENO) == 1;
}
